"""The weights of the benchmarks in the peers' formats, in the temporary directory; what is there is kept.

make peers
python -m benchmarks.peers.export [--models tiny.en base bart-large-cnn t5-base]
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from benchmarks import text
from benchmarks.peers import huggingface
from benchmarks.peers.environment import REPOSITORY, interpreter

WHISPER = ("tiny.en", "base")
EXPORTERS = {
    "whisper": ("openvino_whisper", "onnx_whisper", "ggml_whisper"),
    "text": ("openvino_text",),
}


def export(model: str) -> Path:
    """The folder of a model, with everyone's files in it."""
    if model in WHISPER:
        huggingface.write(model)
    else:
        text.checkpoint(model)
    folder = text.CACHE / model
    for exporter in EXPORTERS["whisper" if model in WHISPER else "text"]:
        print(f"{model}: {exporter}", flush=True)
        subprocess.run(
            [interpreter(), "-m", f"benchmarks.peers.exporters.{exporter}", folder], cwd=REPOSITORY, check=True
        )
    return folder


def main() -> None:
    """Export what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=(*WHISPER, *text.MODELS), default=[*WHISPER, *text.MODELS])
    for model in parser.parse_args().models:
        export(model)


if __name__ == "__main__":
    main()
