"""BART and T5 for OpenVINO: python -m benchmarks.peers.exporters.openvino_text FOLDER

FOLDER, which is Hugging Face's -> FOLDER/openvino/KIND: `float32`; `int8`, in which weights are rounded, by channel.
"""

from __future__ import annotations

import sys
from pathlib import Path

from optimum.intel import OVModelForSeq2SeqLM

from benchmarks.peers.exporters.openvino_models import ENCODER, compressed, write_variant


def main(folder: Path) -> None:
    """Write both kinds if they are not there."""
    exact, rounded = folder / "openvino" / "float32", folder / "openvino" / "int8"
    if not exact.exists():
        partial = exact.with_suffix(".partial")
        OVModelForSeq2SeqLM.from_pretrained(folder, export=True, compile=False, load_in_8bit=False).save_pretrained(
            partial
        )
        partial.rename(exact)
    if not rounded.exists():
        write_variant(exact, rounded, compressed(exact / ENCODER))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
