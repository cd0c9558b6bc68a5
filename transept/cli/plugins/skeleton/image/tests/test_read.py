"""``transept read`` with the checkpoint of conftest.py."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from transept.cli import main
from transept.testing import Parity


def test_an_image_is_read(parity: Parity, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, checkpoint = str(tmp_path / "image.png"), str(parity.save_tokenizer())
    Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 80, 3), np.uint8)).save(file)
    assert main(["read", file, "--model", checkpoint]) == 0
    assert "word" in capsys.readouterr().out
