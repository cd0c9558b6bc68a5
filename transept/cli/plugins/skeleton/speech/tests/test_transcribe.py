"""``transept transcribe`` with the checkpoint of conftest.py."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import soundfile

from transept.testing import Parity


def test_a_recording_longer_than_a_window(parity: Parity, tmp_path: Path) -> None:
    sound = np.random.default_rng(1).normal(0, 0.1, 160_000).astype(np.float32)
    recording = str(tmp_path / "long.wav")
    soundfile.write(recording, sound, 16_000)  # 10 s; a window has 7
    command = ["transcribe", recording, "--model", str(parity.save_tokenizer()), "--json", "--temperature", "0"]
    done = subprocess.run([sys.executable, "-m", "transept", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    segments = json.loads(done.stdout)["segments"]
    assert [segment["start"] for segment in segments] == [0.0, 7.0]
    assert all("word" in segment["text"] for segment in segments)
