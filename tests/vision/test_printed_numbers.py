"""A trained checkpoint reads in images of numbers, in fonts that it never saw, what transformers reads in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jiwer
import pytest

from transept import VisionReader

PRINTED = Path(__file__).parents[1] / "data" / "printed"
CHECKPOINT = PRINTED / "trocr-numbers"
READINGS = json.loads((PRINTED / "heldout" / "texts.json").read_text(encoding="utf-8"))
FILES = [PRINTED / "heldout" / name for name in READINGS]


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_held_out_numbers(quantization: str | None) -> None:
    read = [each.text for each in VisionReader(CHECKPOINT, quantization=quantization).read(FILES)]
    if quantization is None:
        assert read == [each["transformers"] for each in READINGS.values()]
    assert jiwer.cer([each["text"] for each in READINGS.values()], read) < 0.03


def test_the_command_reads_a_rendered_image(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "transept", "read", *map(str, FILES[:3]), "--model", str(CHECKPOINT)]
    done = subprocess.run([*command, "-o", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for file in FILES[:3]:
        assert (tmp_path / f"{file.stem}.txt").read_text(encoding="utf-8").strip() == READINGS[file.name][
            "transformers"
        ]
