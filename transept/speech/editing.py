"""Edits of a transcript's segments. Each function returns new segments, numbered from 0; `Transcript` calls them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from transept.errors import ParameterError, suggest
from transept.option_names import finite
from transept.speech.fields import MAX_SECONDS, wrong_field
from transept.speech.retiming import with_estimated_words, with_text
from transept.speech.segments import Segment, Word
from transept.speech.word_breaks import joined_text, lasting

FRAMES = 100  # per second: the unit of a segment's seek


def numbered(segments: Iterable[Segment]) -> list[Segment]:
    """Return the segments with their positions as ids."""
    return [dataclasses.replace(segment, id=index) for index, segment in enumerate(segments)]


def shifted(segments: Sequence[Segment], seconds: float) -> list[Segment]:
    """Return the segments moved by some seconds, earlier if negative.

    Segments that then end before 0 are dropped. Words that would end before 0 share the start of their segment.
    """
    seconds = checked_seconds("seconds", seconds, lowest=-MAX_SECONDS)
    moved = []
    for segment in segments:
        if segment.end + seconds < 0 or (segment.end + seconds == 0 and segment.end > segment.start):
            continue
        words = segment.words and [
            dataclasses.replace(word, start=_later(word.start, seconds), end=_later(word.end, seconds))
            for word in segment.words
        ]
        start, end = _later(segment.start, seconds), _later(segment.end, seconds)
        seek = max(0, segment.seek + round(seconds * FRAMES))
        one = dataclasses.replace(segment, start=start, end=end, seek=seek, words=words)
        moved.append(lasting(one) if segment.start + seconds < 0 else one)
    return numbered(moved)


def renamed(segments: Sequence[Segment], names: Mapping[str, str] | Sequence[str]) -> list[Segment]:
    """Return the segments with speakers renamed. names: of each speaker, or in the order of their first segments.

    Raises ParameterError for a name that no speaker has, and for more names than speakers.
    """
    if isinstance(names, list | tuple):
        speakers = list(dict.fromkeys(segment.speaker for segment in segments if segment.speaker is not None))
        if len(names) > len(speakers):
            message = f"{{speaker_names}} has {len(names)} names, and the transcript has {len(speakers)} speakers"
            raise ParameterError(message, param="speaker_names", value=names)
        names = dict(zip(speakers, names, strict=False))
    if not isinstance(names, Mapping):
        raise wrong_field("speaker_names", 'a dict {"old": "new"} or a list of names', names)
    known = {segment.speaker for segment in segments} - {None}
    for name, new in names.items():
        if not (isinstance(name, str) and isinstance(new, str) and new.strip()):
            raise wrong_field("speaker_names", "names that are not empty", names)
        if name not in known:
            has = f".{suggest(name, list(map(str, known)))}" if known else "; it names no speakers"
            message = f"the transcript has no speaker {name!r}{has}"
            raise ParameterError(message, param="speaker_names", value=names)
    return [
        segment
        if segment.speaker is None
        else dataclasses.replace(segment, speaker=names.get(segment.speaker, segment.speaker))
        for segment in segments
    ]


def between(segments: Sequence[Segment], start: float, end: float) -> list[Segment]:
    """Return the speech between two times. Words, and segments without words, count by their middle.

    Raises ParameterError for an end before the start.
    """
    start, end = checked_seconds("start", start, lowest=-MAX_SECONDS), checked_seconds("end", end, most=math.inf)
    if end < start:
        raise ParameterError(
            "{end} must be at least {start}, not {end!}", param="end", value=end, others={"start": start}
        )

    def within(each: Segment | Word) -> bool:
        return start <= (each.start + each.end) / 2 < end

    found = []
    for segment in segments:
        if not segment.words:
            found += [segment] if within(segment) else []
            continue
        words = [word for word in segment.words if within(word)]
        if len(words) == len(segment.words):
            found.append(segment)
        elif words:
            found.append(_part(segment, words))
    return numbered(found)


def split(segments: Sequence[Segment], index: int, word: int | None = None, time: float | None = None) -> list[Segment]:
    """Return the segments with one cut in two: before a word, by its index, or at a time.

    A segment without word times is cut between words, and the time of the cut is estimated by the length of the text.
    Raises ParameterError for an index without a segment, and for a cut that would leave one part empty.
    """
    segment = _segment_at(segments, index)
    if (word is None) == (time is None):
        raise ParameterError(
            "{word} and {time} both say where to cut: give exactly one of them",
            param="word",
            value=word,
            others={"time": time},
        )
    if word is not None and not _is_integer(word):
        raise wrong_field("word", "the index of a word", word)
    if time is not None:
        time = checked_seconds("time", time)
    words = with_estimated_words(segment).words or []
    if word is None:
        word = sum((each.start + each.end) / 2 < (time or 0.0) for each in words)
    if not 0 < word < len(words):
        param, value = ("word", word) if time is None else ("time", time)
        message = (
            f"segment {index} has {len(words)} words, from {segment.start:g} to {segment.end:g} s; a cut must leave "
            f"at least one on each side, unlike {{{param}=}}"
        )
        raise ParameterError(message, param=param, value=value)
    halves = [_part(segment, words[:word]), _part(segment, words[word:])]
    if segment.words is None:
        border = words[word].start if time is None else time
        halves = [dataclasses.replace(half, words=None) for half in halves]
        halves[0] = dataclasses.replace(halves[0], start=segment.start, end=border)
        halves[1] = dataclasses.replace(halves[1], start=border, end=segment.end)
    return numbered([*segments[:index], *halves, *segments[index + 1 :]])


def joined(segments: Sequence[Segment], first: int, last: int) -> list[Segment]:
    """Return the segments with those from `first` to `last`, both included, as one. Its speaker is the first one's.

    Raises ParameterError for indices without a segment, or out of order.
    """
    one = _segment_at(segments, first, "first")
    _segment_at(segments, last, "last")
    if last < first:
        message = f"{{last}} is {last} and comes before {{first}}, {first}; exchange them"
        raise ParameterError(message, param="last", value=last, others={"first": first})
    run = segments[first : last + 1]
    has_words = all(segment.words is not None for segment in run)
    has_logprobs = all(segment.token_logprobs is not None for segment in run)
    whole = dataclasses.replace(
        one,
        end=max(segment.end for segment in run),
        text=joined_text(segment.text for segment in run),
        tokens=[token for segment in run for token in segment.tokens],
        words=[word for segment in run for word in segment.words or ()] if has_words else None,
        token_logprobs=[each for segment in run for each in segment.token_logprobs or ()] if has_logprobs else None,
    )
    return numbered([*segments[:first], whole, *segments[last + 1 :]])


def replaced(segments: Sequence[Segment], index: int, text: str) -> list[Segment]:
    """Return the segments with another text for one of them; see `with_text`. The blank before the old text is kept."""
    segment = _segment_at(segments, index)
    if not isinstance(text, str):
        raise wrong_field("text", "text", text)
    blank = segment.text[: len(segment.text) - len(segment.text.lstrip())]
    if text and not text[0].isspace():
        text = blank + text
    return [*segments[:index], with_text(segment, text), *segments[index + 1 :]]


def with_words(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments, each with words. Words without times share their segment's by their lengths.

    Words end before the next segment of their speaker. Segments that start together share their time, in their order.
    """
    found = list(segments)
    untimed: dict[str | None, list[int]] = {}  # by speaker
    for index, segment in enumerate(segments):
        if segment.words is None:
            untimed.setdefault(segment.speaker, []).append(index)
    for indices in untimed.values():
        runs = [[*run] for _, run in itertools.groupby(indices, key=lambda index: segments[index].start)]
        for run, following in itertools.zip_longest(runs, runs[1:]):
            start, end = segments[run[0]].start, max(segments[index].end for index in run)
            if following is not None and segments[following[0]].start > start:
                end = min(end, segments[following[0]].start)
            per_character = (end - start) / (sum(len(segments[index].text.strip()) for index in run) or 1)
            for index in run:
                stop = start + per_character * len(segments[index].text.strip())
                words = with_estimated_words(dataclasses.replace(segments[index], start=start, end=stop)).words
                found[index] = dataclasses.replace(segments[index], words=words)
                start = stop
    return found


def with_speakers_in_text(segments: Sequence[Segment]) -> list[Segment]:
    """Return segments whose texts and first words begin with the speaker's name.

    A segment without a speaker is of the previous one's.
    """
    found: list[Segment] = []
    for segment in segments:
        words, text = segment.words, segment.text
        if segment.speaker is not None and text.strip():
            text = f" {segment.attribution}{text.lstrip()}"
            if words:
                first = dataclasses.replace(words[0], word=f" {segment.attribution}{words[0].word.lstrip()}")
                words = [first, *words[1:]]
        speaker = found[-1].speaker if found and segment.speaker is None else segment.speaker
        found.append(dataclasses.replace(segment, text=text, words=words, speaker=speaker))
    return found


def merged(segments: Sequence[Segment], others: Sequence[Segment]) -> list[Segment]:
    """Return the segments of two transcripts in order of time."""
    return numbered(sorted([*segments, *others], key=lambda segment: segment.start))


def checked_seconds(name: str, seconds: Any, *, lowest: float = 0.0, most: float = MAX_SECONDS) -> float:
    """Return a number of seconds. Raises ParameterError for another value. name: of the parameter."""
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not lowest <= finite(seconds) <= most:
        raise wrong_field(name, f"a number of seconds from {lowest:.0f} to {most:.0f}", seconds)
    return float(seconds)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _later(time: float, seconds: float) -> float:
    return max(0.0, round(time + seconds, 3))


def _segment_at(segments: Sequence[Segment], index: int, param: str = "index") -> Segment:
    if not _is_integer(index) or not 0 <= index < len(segments):
        has = f"from 0 to {len(segments) - 1}" if segments else "but there is no segment"
        message = f"{{{param}}} must be the index of a segment, {has}, not {{{param}!}}"
        raise ParameterError(message, param=param, value=index)
    return segments[index]


def _part(segment: Segment, words: Sequence[Word]) -> Segment:
    """Return the part of a segment that has these words. It has no tokens."""
    return dataclasses.replace(
        segment,
        start=words[0].start,
        end=words[-1].end,
        text="".join(word.word for word in words),
        words=list(words),
        tokens=[],
        token_logprobs=None if segment.token_logprobs is None else [],
    )
