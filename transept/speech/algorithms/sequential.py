"""Sequential mode: window after window, each beginning where the last one's timestamps end.

This is openai-whisper's algorithm (``transcribe.py``) with its results on the same weights. It differs where that
algorithm fails: silent windows are not decoded, a clip ends with the recording at the latest, no window begins where
the last one did, and no text follows the end of the audio. Speech without text is reported; auto mode and
``multilingual`` decode it again. `transept.speech.recording` and auto mode (`passages.py`) call `decode_windows`.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Offload
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.coverage import (
    BELIEVED,
    DECODED_AGAIN,
    LONGEST_GAP,
    Heard,
    Stretch,
    believed,
    gaps_within,
    known_within,
    spoken_within,
    uncovered,
)
from transept.speech.algorithms.segmentation import Window, audible
from transept.speech.algorithms.window_walk import Sound, Walk
from transept.speech.events import Found
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.timeline import Timeline
from transept.speech.timing.turns import cut_between_words
from transept.speech.vad.spans import SAMPLE_RATE, Span

if TYPE_CHECKING:
    from torch import Tensor

SHORTEST_PAUSE = 0.2  # seconds; between sentences
LEAD = 0.1  # seconds before the speech that voice activity detection found


def decode_windows(
    model: SpeechModel,
    waveform: Waveform,
    features: Tensor,
    language: str,
    options: TranscriptionOptions,
    timeline: Timeline,
    speech: Sequence[Span] | None = None,
    cuts: Sequence[float] = (),
) -> Generator[Any, Any, Heard]:
    """A job that decodes a recording window by window.

    waveform: float32 [samples]. features: of all of it, [channels, frames]. language: code. timeline: maps times of
    segments and progress to the recording. speech: spans of speech, in samples of the waveform; speech that no segment
    covers is decoded again. None: look for speech in the gaps between segments, and decode it again with
    ``multilingual``. cuts: seconds, rising, at which silence was cut out of the waveform; segments are divided there.
    With `speech`, words are timed even if ``word_timestamps`` does not ask for them: a model's own timestamps may cover
    speech that its text leaves out.
    """
    num_frames, fps = features.shape[1], model.fps
    sound = Sound(model, waveform, features, speech, tuple(cuts))
    walk = Walk(sound, language, options)
    second = SecondHearing(sound, language, dataclasses.replace(options, prefix=None))
    segments: list[Segment] = []
    for start, end in options.clips(num_frames, fps):
        clip, covered = Window(start, end - start), start / fps  # seconds
        while start < end:
            window = Window(start, min(walk.chunk, end - start))
            kept, start = yield from walk.window(window)
            found: list[Segment] = []
            for segment in audible(kept, window, clip, fps):
                if not segment.text:
                    found.append(segment)
                    continue
                heard = believed(segment) if speech is not None else segment
                found += yield from second.hear(covered, heard.start)
                found += yield from second.hear_between_words(heard, segment.end)
                covered = max(covered, segment.end)
            if start >= end:
                found += yield from second.hear(covered, end / fps)
            found = [
                timeline.restored(dataclasses.replace(segment, id=index))
                for index, segment in enumerate(found, len(segments))
            ]
            if not options.word_timestamps:
                found = [dataclasses.replace(segment, words=None) for segment in found]
            segments += found
            reached = min(num_frames, start) / fps
            if second.decodes and start < end:
                reached = min(reached, covered)  # later speech may be decoded again
            yield Found(found, timeline.time(reached, after_pause=False))
    missed = [
        (timeline.time(begin, after_pause=True), timeline.time(end, after_pause=False)) for begin, end in second.missed
    ]
    return Heard(segments, missed, walk.num_dropped)


class SecondHearing:
    """Decodes speech that no segment covers again, in auto mode and with ``multilingual``; otherwise only records it.

    missed: stretches of speech without words, in seconds of the features.
    """

    def __init__(self, sound: Sound, language: str, options: TranscriptionOptions) -> None:
        self.sound, self.language, self.options = sound, language, options
        self.decodes = options.multilingual or sound.speech is not None
        self.shortest = DECODED_AGAIN if sound.speech is None else 0.0  # seconds
        self.missed: list[Stretch] = []

    def hear(self, begin: float, end: float, since: float | None = None) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of a stretch without text, if it holds long speech and that is decoded again.

        since: where the sentence that the stretch continues may begin. If the model leaves out the begin of the stretch
        again, the sentence is decoded from there on, and the first segment then begins before the stretch.
        """
        sound = self.sound
        if end - begin <= LONGEST_GAP or sound.model.spec.sample_rate != SAMPLE_RATE:
            return []
        if sound.speech is None:
            vad_options = self.options.vad_options
            spoken = yield Offload(partial(spoken_within, sound.waveform, (begin, end), vad_options))
        else:
            spoken = known_within(sound.speech, (begin, end))
        found: list[Segment] = []
        for stretch in spoken:
            decodes = self.decodes and stretch[1] - stretch[0] > self.shortest
            again = (yield from self._walk(*stretch)) if decodes else []
            left_out = uncovered([stretch], again)
            if decodes and since is not None and left_out and left_out[0][0] == stretch[0] <= begin + BELIEVED:
                sentence = yield from self._walk(since, stretch[1])
                if not uncovered([(since, stretch[1])], sentence):
                    again, left_out = sentence, []
            self.missed += left_out
            found += again
        return found

    def hear_between_words(self, segment: Segment, end: float) -> Generator[Any, Any, list[Segment]]:
        """A job: a segment, divided where its text leaves out speech, and that speech's segments between its parts.

        end: up to which the segment's text may leave out speech after its last word.
        """
        gaps = gaps_within(segment)
        if segment.words and end - segment.end > LONGEST_GAP:
            gaps.append((segment.end, end))
        begins: list[float] = []
        replaced: list[Stretch] = []
        heard: list[list[Segment]] = []
        for begin, stop in gaps:
            again = yield from self.hear(begin, stop, self._pause_before(begin, segment.start))
            if again:
                begins.append(min(begin, again[0].start))
                replaced.append((begins[-1], begin))
                heard.append(again)

        def number_of(start: float, end: float) -> int | None:
            """How many of the gaps begin before a word; None if a second hearing replaces the word."""
            middle = (start + end) / 2
            is_replaced = any(first <= middle < last for first, last in replaced)
            return None if is_replaced else bisect_right(begins, start)

        found: list[Segment] = []
        num_placed = 0
        for number, part in cut_between_words(segment, number_of, self.sound.model.tokenizer.decode):
            if number is None:
                continue
            found += [each for again in heard[num_placed:number] for each in again]
            num_placed = number
            found.append(part)
        return found + [each for again in heard[num_placed:] for each in again]

    def _pause_before(self, time: float, earliest: float) -> float | None:
        """Return the end of the last pause before a time, in seconds; None if there is none after `earliest`."""
        speech = self.sound.speech or ()
        pauses = [
            span.start / SAMPLE_RATE
            for before, span in pairwise(speech)
            if span.start - before.end >= SHORTEST_PAUSE * SAMPLE_RATE and earliest < span.start / SAMPLE_RATE < time
        ]
        return round(pauses[-1] - LEAD, 2) if pauses else None

    def _walk(self, begin: float, end: float) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of a stretch, decoded without the text before it as a prompt."""
        fps, segments = self.sound.model.fps, []
        walk = Walk(self.sound, self.language, self.options)
        start, last = round(begin * fps), round(end * fps)
        clip = Window(start, last - start)
        while start < last:
            window = Window(start, min(walk.chunk, last - start))
            kept, start = yield from walk.window(window)
            segments += [segment for segment in audible(kept, window, clip, fps) if segment.text]
        return [dataclasses.replace(segment, end=min(segment.end, end)) for segment in segments]
