"""Recordings for tests of transcription: the clips of a folder joined into one waveform."""

from pathlib import Path

import numpy as np
import soundfile

RATE = 16_000  # Hz


def clip(file: Path) -> np.ndarray:
    """float32 [samples] at 16 kHz."""
    waveform, rate = soundfile.read(file, dtype="float32")
    assert rate == RATE
    return waveform


def joined(folder: Path, count: int | None = None, pause: float = 0.0) -> np.ndarray:
    """The folder's first clips, in order of their names, with so many seconds of digital silence between them."""
    silence = np.zeros(round(pause * RATE), np.float32)
    clips = [part for file in sorted(folder.glob("*.flac"))[:count] for part in (clip(file), silence)]
    return np.concatenate(clips)
