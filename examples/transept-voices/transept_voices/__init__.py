"""Tells speakers apart and recognizes voices for Transept: the declaration, which loads nothing heavy."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from transept.authoring import VoiceModel, hookimpl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Shown by `transept plugins check`, and for requests with speakers.
if importlib.util.find_spec("resemblyzer") is None:
    raise ImportError("the weights are in the package Resemblyzer: pip install --no-deps resemblyzer")


@hookimpl
def diarize(
    waveform: npt.NDArray[np.float32], sample_rate: int, min_speakers: int | None, max_speakers: int | None
) -> list[tuple[float, float, str]]:
    """Return turns (start, end, speaker). Speakers are numbered in the order of their first turn."""
    from transept_voices.diarizer import turns_of

    return turns_of(waveform, sample_rate, min_speakers, max_speakers)


@hookimpl
def voice_model() -> VoiceModel:
    """Return the name of the weights, and the similarity above which two embeddings are of one voice."""
    return VoiceModel("resemblyzer", threshold=0.75, min_seconds=1.6, size=256)


@hookimpl
def embed_voice(waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """Return the embedding of one voice, float32 [256]."""
    from transept_voices.diarizer import voice_of

    return voice_of(waveform, sample_rate)
