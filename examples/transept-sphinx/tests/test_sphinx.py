"""Words of real speech, whose pauses are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
from transept_sphinx import align_words
from transept_sphinx.aligner import RATE

SPEECH = Path(__file__).parents[3] / "tests" / "data" / "speech" / "prompts-en"


def clip(name: str) -> np.ndarray:
    """Float32 [samples], at RATE."""
    waveform, rate = soundfile.read(SPEECH / f"{name}.flac", dtype="float32")
    assert rate == RATE
    return np.asarray(waveform)


@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_words_lie_in_their_own_prompt(noise: float) -> None:
    """No word is in the second of silence between two prompts, also in noise."""
    first, second = clip("vm-tooshort"), clip("check-number-dial-again")
    waveform = np.concatenate([first, np.zeros(RATE, np.float32), second])
    waveform += np.random.default_rng(0).normal(0, noise, len(waveform)).astype(np.float32)
    words = ["your", "message", "is", "too", "short.", "Please", "check", "the", "number", "and", "dial", "again."]
    times = align_words(waveform, RATE, words, "en")
    assert times is not None
    assert len(times) == len(words)
    assert all(start < end for start, end in times)
    assert times == sorted(times)
    assert times[4][1] < len(first) / RATE + 0.05
    assert times[5][0] > len(first) / RATE + 0.95


def test_signs_and_numbers_are_spoken_and_dashes_are_not() -> None:
    """A number is a word with a length, and a dash has none."""
    waveform = clip("vm-repeat")  # press five to repeat the current message
    words = ["Press", "5", "\u2013", "to", "repeat", "the", "current", "message."]
    times = align_words(waveform, RATE, words, "en")
    assert times is not None
    lengths = [end - start for start, end in times]
    assert lengths.pop(2) == 0
    assert min(lengths) > 0
    assert align_words(clip("vm-tocancelmsg"), RATE, ["press", "*", "to", "cancel", "this", "message"], "en")


def test_untimeable_words() -> None:
    """Other languages, other rates, no spoken words, and too little audio for the words."""
    waveform = clip("vm-repeat")
    assert align_words(waveform, RATE, ["bonjour"], "fr") is None
    assert align_words(waveform, 8_000, ["hello"], "en") is None
    assert align_words(waveform, RATE, ["-"], "en") is None
    assert align_words(waveform[: RATE // 10], RATE, ["many", "more", "words", "than", "sound"], "en") is None
