"""Tells speakers apart for Transept: the declaration, which loads nothing heavy."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from transept.authoring import hookimpl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Shown by `transept plugins check`, and for requests with speakers.
if importlib.util.find_spec("resemblyzer") is None:
    raise ImportError("the weights are in the package Resemblyzer: pip install --no-deps resemblyzer")


@hookimpl
def diarize(waveform: npt.NDArray[np.float32], sample_rate: int) -> list[tuple[float, float, str]]:
    """Return turns (start, end, speaker). Speakers are numbered in the order of their first turn."""
    from transept_voices.diarizer import turns_of

    return turns_of(waveform, sample_rate)
