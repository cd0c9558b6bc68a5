"""Write down the tokens that transformers gives for every window of the recordings, with Whisper base.

    python tests/parity/record_tokens.py

It takes minutes, which is why `test_whisper.py` reads them from recorded_tokens.json. Some of them are computed anew in
every run of the tests, all of them with ``-m slow``.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

FILE = Path(__file__).parent / "recorded_tokens.json"


def recorded_tokens() -> list[list[int]]:
    """Of each window, in the order of the files."""
    tokens: list[list[int]] = json.loads(FILE.read_text())["tokens"]
    return tokens


def record(directory: Path, waveforms: list[np.ndarray]) -> None:
    """Write the file."""
    from whisper_reference import reference_model, reference_token_ids

    tokens = reference_token_ids(reference_model(directory), waveforms)
    rows = ",\n".join(json.dumps(row) for row in tokens)
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}, float32, greedy"
    FILE.write_text(f'{{"made_by": "{made_by}",\n"tokens": [\n{rows}\n]}}\n')


if __name__ == "__main__":
    import tempfile

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from conftest import join_base
    from whisper_reference import speech_windows

    with tempfile.TemporaryDirectory() as folder:
        record(join_base(Path(folder)), speech_windows(Path(__file__).parents[1] / "data" / "speech"))
