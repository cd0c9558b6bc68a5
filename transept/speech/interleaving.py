"""Interleaving: the transcriptions of a recording's channels, beside each other, told as that of one recording.

`transept.speech.conversation` merges the events of the channels' jobs with it. A segment is passed on once no channel
can bring an earlier one, so streams have the order of the transcript.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from transept.speech.events import Found, Opened
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.transcript import Transcript, TranscriptionInfo


@dataclass(frozen=True)
class ChannelEnded:
    """An event: nothing more comes of a channel."""


class Interleaving:
    """What the channels have brought so far.

    names: of the channels, in their order. options: of the whole transcription.
    """

    def __init__(self, names: Sequence[str], options: TranscriptionOptions) -> None:
        self.names = names
        self.options = options
        self.infos: dict[int, TranscriptionInfo] = {}
        self.reached = [0.0 for _ in names]  # seconds; no segment of that channel before it is still to come
        self.waiting: list[deque[Segment]] = [deque() for _ in names]  # for segments of other channels
        self.numbers = count()

    def __call__(self, channel: int, event: Any) -> list[Any]:
        """The events that take the place of an event of a channel: TranscriptionInfo, once, then Founds."""
        if isinstance(event, Opened):
            return []  # the recording was, before
        if isinstance(event, TranscriptionInfo):
            self.infos[channel] = event
            if len(self.infos) < len(self.names):
                return []
            return [self.info(), *self._found()]
        if isinstance(event, Found):
            self.waiting[channel] += event.segments
            self.reached[channel] = max(self.reached[channel], event.progress_seconds)
        elif isinstance(event, ChannelEnded):
            self.reached[channel] = math.inf
        else:
            return [event]
        return self._found() if len(self.infos) == len(self.names) else []

    def info(self) -> TranscriptionInfo:
        """What is known of the recording: the language of the channel that is surest of it, and the longest speech."""
        infos = [self.infos[channel] for channel in range(len(self.names))]
        surest = max(infos, key=lambda info: info.language_probability or 0.0)
        longest = max(info.duration_after_vad for info in infos)
        return dataclasses.replace(surest, duration_after_vad=longest, options=self.options)

    def reason(self, transcripts: Sequence[Transcript]) -> str:
        """Return why the channels are empty: one sentence if they agree, else one for each channel with its name."""
        reasons = [transcript.reason or "" for transcript in transcripts]
        if len(set(reasons)) == 1:
            return reasons[0]
        return "; ".join(f"{name}: {reason}" for name, reason in zip(self.names, reasons, strict=True))

    def segments(self, transcripts: Sequence[Transcript]) -> list[Segment]:
        """All segments, in order of time. transcripts: of the channels, in their order."""
        named = (
            self._named(channel, segment)
            for channel, transcript in enumerate(transcripts)
            for segment in transcript.segments
        )
        in_order = sorted(named, key=lambda segment: segment.start)  # of those that begin at once by channel
        return [dataclasses.replace(segment, id=index) for index, segment in enumerate(in_order)]

    def _found(self) -> list[Found]:
        """The segments that are certain now, and how far all channels have come."""
        certain = []
        while any(self.waiting):
            starts = [queue[0].start if queue else math.inf for queue in self.waiting]
            first = min(starts)
            channel = starts.index(first)
            behind = [(self.reached[other], other) for other, queue in enumerate(self.waiting) if not queue]
            if min(behind, default=(math.inf, channel)) < (first, channel):  # which may bring an earlier one
                break
            segment = self._named(channel, self.waiting[channel].popleft())
            certain.append(dataclasses.replace(segment, id=next(self.numbers)))
        return [Found(certain, min(*self.reached, self.infos[0].duration))]

    def _named(self, channel: int, segment: Segment) -> Segment:
        """A segment with its channel as speaker, and with its language, where channels differ in that."""
        differ = len({info.language for info in self.infos.values()}) > 1
        language = self.infos[channel].language if differ and segment.language is None else segment.language
        return dataclasses.replace(segment, speaker=self.names[channel], language=language)
