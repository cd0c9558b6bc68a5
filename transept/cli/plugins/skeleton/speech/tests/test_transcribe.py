"""``transept transcribe`` with the checkpoint of conftest.py."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from transept.cli import main
from transept.testing import Parity


def test_a_recording_longer_than_a_window(parity: Parity, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording, checkpoint = str(tmp_path / "long.wav"), str(parity.save_tokenizer())
    soundfile.write(recording, np.random.default_rng(1).normal(0, 0.1, 160_000), 16_000)  # 10 s; a window has 7
    options = ["--json", "--temperature", "0", "--mode", "sequential"]  # other modes leave out silence
    assert main(["transcribe", recording, "--model", checkpoint, *options]) == 0
    segments = json.loads(capsys.readouterr().out)["segments"]
    assert [segment["start"] for segment in segments] == [0.0, 7.0]
    assert all("word" in segment["text"] for segment in segments)
