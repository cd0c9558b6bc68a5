"""``transept read`` with the checkpoint of conftest.py."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from transept.testing import Parity


def test_an_image_is_read(parity: Parity, tmp_path: Path) -> None:
    file = str(tmp_path / "image.png")
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 80, 3), np.uint8)).save(file)
    command = ["read", file, "--model", str(parity.save_tokenizer())]
    done = subprocess.run([sys.executable, "-m", "transept", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "word" in done.stdout
