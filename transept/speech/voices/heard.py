"""The voices of a recording: the embedding of each of its speakers.

`transept.speech.conversation` calls it after the diarizer, in the same thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from transept.core.request.limits import DEFAULT_LIMITS
from transept.errors import MediaError
from transept.multimodal.waveforms import Waveform
from transept.registry.diarizers import Turn
from transept.registry.plugins import discover
from transept.registry.voice_embedders import VoiceEmbedder, find_voice_embedder
from transept.speech.vad.spans import SAMPLE_RATE, speech_spans

if TYPE_CHECKING:
    from transept.multimodal.audio import AudioInput

MOST_SECONDS = 60.0  # of a voice's speech that are embedded; more speech changes the embedding little


@dataclass(frozen=True)
class HeardVoice:
    """The voice of a speaker in a recording.

    speaker: the diarizer's name. seconds: length of the speech during which no other speaker speaks. embedding:
    float32 [n], of length 1; None if the speech is too short.
    """

    speaker: str
    seconds: float
    embedding: npt.NDArray[np.float32] | None = field(repr=False)


@dataclass(frozen=True)
class HeardVoices:
    """An event: the voices of a recording, in the order in which they first speak."""

    voices: Sequence[HeardVoice]


def installed_embedder() -> VoiceEmbedder:
    """Return the installed voice embedder. Raises ParameterError unless exactly one is installed."""
    return find_voice_embedder(discover(), "voices")


def voices_of(waveform: Waveform, rate: int, turns: Sequence[Turn], embedder: VoiceEmbedder) -> list[HeardVoice]:
    """Return the voices of a recording, in the order of their first turns.

    waveform: float32 [samples]. rate: in Hz. turns: in order of time. Speech where turns overlap is not embedded.
    Raises PluginError if the plugin fails.
    """
    alone = _alone(turns)
    return [
        _heard(speaker, waveform, rate, alone.get(speaker, ()), embedder)
        for speaker in dict.fromkeys(turn.speaker for turn in turns)
    ]


def voice_in(recording: AudioInput, embedder: VoiceEmbedder) -> HeardVoice:
    """Return the voice of a recording of one speaker, with its embedding.

    Raises MediaError for audio that cannot be read or has too little speech.
    """
    waveform = DEFAULT_LIMITS.load_audio(recording, SAMPLE_RATE)
    spans = [(span.start / SAMPLE_RATE, span.end / SAMPLE_RATE) for span in speech_spans(waveform)]
    voice = _heard("", waveform, SAMPLE_RATE, spans, embedder)
    if voice.embedding is None:
        least = f"a voice needs at least {embedder.model.min_seconds:g} s"
        raise MediaError(f"the recording has {voice.seconds:.1f} s of speech; {least}")
    return voice


def _alone(turns: Sequence[Turn]) -> dict[str, list[tuple[float, float]]]:
    """Return the stretches in which only one speaker has a turn, (start, end) in seconds, by speaker."""
    times = sorted({time for turn in turns for time in (turn.start, turn.end)})
    begun = deque(sorted(turns, key=lambda turn: turn.start))
    found: dict[str, list[tuple[float, float]]] = {}
    active: list[Turn] = []
    for start, end in pairwise(times):
        while begun and begun[0].start <= start:
            active.append(begun.popleft())
        active = [turn for turn in active if turn.end > start]
        speakers = {turn.speaker for turn in active}
        if len(speakers) != 1:
            continue
        stretches = found.setdefault(speakers.pop(), [])
        if stretches and stretches[-1][1] == start:
            stretches[-1] = (stretches[-1][0], end)
        else:
            stretches.append((start, end))
    return found


def _heard(
    speaker: str,
    waveform: Waveform,
    rate: int,
    stretches: Sequence[tuple[float, float]],
    embedder: VoiceEmbedder,
) -> HeardVoice:
    """Return the voice that speaks in some stretches (start, end), in seconds. Embeds the longest ones."""
    left, chosen = MOST_SECONDS, []
    for start, end in sorted(stretches, key=lambda each: each[0] - each[1]):
        if left > 0:
            chosen.append((start, min(end, start + left)))
            left -= end - start
    parts = [waveform[round(start * rate) : round(end * rate)] for start, end in sorted(chosen)]
    speech = np.concatenate(parts) if parts else waveform[:0]
    seconds = sum(end - start for start, end in stretches)
    if len(speech) == 0 or len(speech) < embedder.model.min_seconds * rate:
        return HeardVoice(speaker, seconds, None)
    return HeardVoice(speaker, seconds, embedder(speech, rate))
