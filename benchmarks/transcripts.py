"""Recordings with what is said in them, and how well an engine writes it down."""

from __future__ import annotations

import json
from dataclasses import dataclass

import jiwer
import numpy as np
import soundfile
from whisper.normalizers import EnglishTextNormalizer

from benchmarks.whisper import SAMPLE_RATE, SPEECH

normalize = EnglishTextNormalizer()  # of the Whisper paper: case, punctuation, numbers and spelling do not count


@dataclass(frozen=True)
class Clip:
    """One file of a set. waveform: float32 [num_samples] at 16 kHz. text: what is said in it."""

    name: str
    waveform: np.ndarray
    text: str


def clips(folder: str) -> list[Clip]:
    """All clips of a set, in the order of their names."""
    entries = json.loads((SPEECH / folder / "transcripts.json").read_text())
    return [
        Clip(entry["audio"], soundfile.read(SPEECH / folder / entry["audio"], dtype="float32")[0], entry["text"])
        for entry in sorted(entries, key=lambda entry: entry["audio"])
    ]


def joined(folder: str) -> tuple[np.ndarray, str]:
    """A set as one recording, and what is said in it."""
    parts = clips(folder)
    return np.concatenate([clip.waveform for clip in parts]), " ".join(clip.text for clip in parts)


def word_error_rate(spoken: str, written: str) -> float:
    """Wrong words in a hundred, after normalisation."""
    return 100 * jiwer.wer(normalize(spoken), normalize(written))


def seconds_of(waveform: np.ndarray) -> float:
    """How long a waveform is."""
    return len(waveform) / SAMPLE_RATE
