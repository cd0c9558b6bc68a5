"""Speakers: Transept's diarizer and voice embedder. This package has their two small networks for CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from transept.authoring import hookimpl

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from transept.authoring import VoiceModel

SAME_VOICE = 0.5  # lowest cosine similarity of two embeddings of one voice


@hookimpl
def diarize(
    waveform: npt.NDArray[np.float32], sample_rate: int, min_speakers: int | None, max_speakers: int | None
) -> list[tuple[float, float, str]]:
    """Return turns (start, end, speaker) in order of time. Speakers are numbered in the order of their first turn."""
    from transept_speakers.diarizer import find_turns

    return find_turns(waveform, sample_rate, min_speakers, max_speakers)


@hookimpl
def embed_voice(waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """Return the embedding of one voice, float32 [192], of length 1."""
    from transept_speakers.embedding import embed_waveform

    return embed_waveform(waveform, sample_rate)


@hookimpl
def voice_model() -> VoiceModel:
    """Return the name and the threshold of the embeddings."""
    from transept.authoring import VoiceModel
    from transept_speakers.embedding import SIZE

    return VoiceModel(name="3D-Speaker CAM++ zh-en, 192", threshold=SAME_VOICE, size=SIZE)
