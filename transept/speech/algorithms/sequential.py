"""Sequential mode: window after window, each beginning where the last one's timestamps end.

This is openai-whisper's algorithm (``transcribe.py``) with its results on the same weights. It differs where that
algorithm fails: silent windows are not decoded, a clip ends with the recording at the latest, no window begins where
the last one did, and no text follows the end of the audio. After each window `second_hearing.py` looks for speech
without text. `transept.speech.recording` and auto mode (`passages.py`) call `transcribe`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from typing import Any, TypeAlias

from transept.core.jobs.job import Job
from transept.speech.algorithms.decoding import DecodedWindow, decode_window
from transept.speech.algorithms.hallucination import believable, last_word_end
from transept.speech.algorithms.language import in_one_language
from transept.speech.algorithms.prompt import EarlierText
from transept.speech.algorithms.second_hearing import Heard, SecondHearing, Stretch
from transept.speech.algorithms.segmentation import audible, cleared, cut_segments, divided
from transept.speech.algorithms.source import Source, Window
from transept.speech.algorithms.window_words import add_words
from transept.speech.segments import Found, Segment
from transept.speech.timing.timeline import Timeline

# Makes a job after each window. Receives the clip, the window, its segments, and the frame where the next one begins.
Listener: TypeAlias = Callable[[Window, Window, list[Segment], int], Job]
# Refines the times of the words of segments, of which none begins before a time in seconds.
Refine: TypeAlias = Callable[[list[Segment], float], Generator[Any, Any, list[Segment]]]


def decode_windows(source: Source, listener: Listener) -> Generator[Any, Any, int]:
    """A job that decodes a recording window by window. Returns the number of windows whose text a threshold dropped."""
    model, options, fps = source.model, source.options, source.model.fps
    earlier, prefix = EarlierText(model, options), options.prefix
    language = None if options.multilingual else source.language
    last_speech, num_dropped = 0.0, 0  # seconds, windows

    def decode(heard: Source) -> Generator[Any, Any, DecodedWindow]:
        return (yield from decode_window(heard, earlier.prompt(heard.language), prefix))

    for start, last in options.clips(source.num_frames, fps):
        clip = Window(start, last - start)
        while start < last:
            window = Window(start, min(source.chunk, last - start))
            heard = source.window(window)
            if heard.features.amin() == heard.features.amax():  # digital silence, for which models invent words
                start = window.end
                yield from listener(clip, window, [], start)
                continue

            # language, and decoding with fallback; with `multilingual` a window ends where its language changes
            if options.multilingual:
                heard, decoded = yield from in_one_language(heard, language, decode)
                window, language = Window(start, heard.num_frames), heard.language
            else:
                decoded = yield from decode(heard)
            prefix = None

            # timestamps divide the text, and the last one sets the next window's start; word times set it more exactly
            cut = cut_segments(heard, window, decoded)
            if source.times_words and not cut.is_skipped:
                timed = yield from add_words(heard, cut.segments, window.start / fps, last_speech, decoded.context)
                cut = believable(dataclasses.replace(cut, segments=timed), window, source, last_speech)
                last_speech = last_word_end(cut.segments, last_speech)

            # the text is the next window's context
            segments = cleared(divided(source, cut.segments))
            if cut.is_skipped:
                num_dropped += bool(decoded.text)
            else:
                earlier.add(segments, decoded.temperature)
            start = min(cut.next_start, window.end) if options.multilingual else cut.next_start
            yield from listener(clip, window, audible(source, segments, window, clip), start)
    return num_dropped


def transcribe(source: Source, timeline: Timeline, refine: Refine | None = None) -> Generator[Any, Any, Heard]:
    """Transcribe a recording, including speech that its windows miss, as a job. Emits a Found for each window.

    timeline: maps times of segments and progress to the recording. refine: applied to the segments of each window, with
    the recording's times. Speech that no segment covers is decoded again if `source.speech` is known. With
    ``multilingual``, speech is detected between segments, and decoded again.
    """
    options, fps = source.options, source.model.fps
    second, segments = SecondHearing(source, decode_stretch), list[Segment]()
    progress = 0.0  # seconds of the recording, before which no later segment begins

    def listener(clip: Window, window: Window, found: list[Segment], start: int) -> Generator[Any, Any, None]:
        nonlocal progress
        found = yield from second.complete(clip, window, found, start)
        found = [timeline.restored(segment) for segment in found]
        if refine is not None:
            found = yield from refine(found, max(progress, segments[-1].end if segments else 0.0))
        if not options.word_timestamps:
            found = [dataclasses.replace(segment, words=None) for segment in found]
        found = [dataclasses.replace(segment, id=index) for index, segment in enumerate(found, len(segments))]
        segments.extend(found)
        reached = min(source.num_frames, start) / fps
        if second.decodes and start < clip.end:
            reached = min(reached, second.covered)  # later speech may be decoded again
        progress = timeline.time(reached, after_pause=False)
        yield Found(found, progress)

    num_dropped = yield from decode_windows(source, listener)
    missed = [
        (timeline.time(begin, after_pause=True), timeline.time(end, after_pause=False)) for begin, end in second.missed
    ]
    return Heard(segments, missed, num_dropped)


def decode_stretch(source: Source, stretch: Stretch) -> Generator[Any, Any, list[Segment]]:
    """A job that decodes a stretch on its own, without previous text as a prompt. Returns its segments."""
    segments: list[Segment] = []

    def listener(clip: Window, window: Window, found: list[Segment], start: int) -> Generator[Any, Any, None]:
        segments.extend(dataclasses.replace(each, end=min(each.end, stretch[1])) for each in found if each.text)
        yield from ()

    alone = dataclasses.replace(source.options, prefix=None, clip_timestamps=stretch)
    yield from decode_windows(dataclasses.replace(source, options=alone), listener)
    return segments
