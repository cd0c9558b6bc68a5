"""When each word of a window was said, from the cross-attention of the heads that follow the speech.

The rules are openai-whisper's (``whisper/timing.py``). Pure numpy: `timing.window_words` makes the request
whose decoder prompt is the finished text, and hands what its probe read to `token_times` and `word_timings`;
`place_words` then gives new segments with their words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transept.speech.segments import Segment, Word
from transept.speech.timing.alignment import alignment_cost, warping_path
from transept.speech.timing.word_tokens import split_words

SENTENCE_ENDS = ".。!！?？"  # noqa: RUF001  full-width marks are meant
LONGEST_MEDIAN = 0.7  # seconds; a median word longer than this is no measure of the others
PAUSE_MEDIANS = 4  # a pause as long as so many median words is a long one
CLEAR_DIFFERENCE = 0.5  # seconds between a segment's time and its word's from which the segment's is believed


@dataclass(frozen=True)
class WordTiming:
    """A word of a window. start, end: seconds from the window's begin. probability: mean over its tokens."""

    word: str
    tokens: list[int]
    start: float
    end: float
    probability: float

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start


def token_times(
    weights: np.ndarray,
    num_text_tokens: int,
    *,
    num_frames: int,
    frames_per_position: int,
    frames_per_second: float,
) -> np.ndarray:
    """When each token of a window's text begins and the last one ends: seconds, [num_text_tokens + 1], rising.

    weights: [heads, tokens of the decoder prompt, encoder positions], cross-attention after softmax over all positions;
        the decoder prompt ends with the token before the text, the text and the end-of-text token.
    num_frames: frames of the window that are recording, not padding; positions beyond them are not looked at.
    frames_per_position: frames that the encoder makes one position of (Whisper's convolutions: 2).
    frames_per_second: of the features (Whisper: 100).

    Returns nothing, shape [0], for an empty text and for a window shorter than one position.
    """
    num_positions = num_frames // frames_per_position
    if not num_text_tokens or not num_positions:
        return np.empty(0)
    cost = alignment_cost(weights[:, :, :num_positions])
    # A token's row looks at what comes after it: the row before the text finds its first token, the last its end.
    rows, positions = warping_path(cost[-num_text_tokens - 2 : -1])
    times: np.ndarray = positions[np.diff(rows, prepend=-1) > 0] * frames_per_position / frames_per_second
    return times


def word_timings(
    text_tokens: Sequence[int],
    logprobs: Sequence[float],
    times: np.ndarray,
    *,
    tokenizer: Any,
    language: str | None,
) -> list[WordTiming]:
    """The words of a window's text, in order, with their times.

    text_tokens: token ids of the text. logprobs: the log probability of each. times: seconds, as `token_times` gives
    them; empty: no words. tokenizer: of transformers. language: code, or None; see `split_words`.
    """
    if not len(times):
        return []
    timings = []
    begin = 0
    for word, tokens in split_words(text_tokens, tokenizer, language):
        end = begin + len(tokens)
        probability = float(np.mean(np.exp(logprobs[begin:end])))
        timings.append(WordTiming(word, tokens, float(times[begin]), float(times[end]), probability))
        begin = end
    return timings


def place_words(
    segments: Sequence[Segment],
    timings: Sequence[WordTiming],
    *,
    num_text_tokens: Sequence[int],
    time_offset: float,
    last_speech_timestamp: float,
    prepend_punctuations: str,
    append_punctuations: str,
) -> list[Segment]:
    """The segments of a window with their words, and with start and end as the words say.

    timings: of the segments' joined text, as `word_timings` gives them. num_text_tokens: of each segment.
    time_offset: where the window begins, in seconds of the recording. last_speech_timestamp: where the last word before
    this window ends, in seconds of the recording; 0 when there is none. prepend_punctuations, append_punctuations:
    marks that become part of the word behind or before them.

    The words' times are mended where attention is known to err: a word much longer than the median next to the end of a
    sentence, after a pause, or beyond what the segment's own timestamps say is shortened.
    """
    durations = [timing.duration for timing in timings if timing.duration]
    median = min(LONGEST_MEDIAN, float(np.median(durations))) if durations else 0.0
    if durations:
        timings = _shorten_at_sentence_ends(timings, longest=2 * median)
    timings = merge_punctuation(timings, prepend_punctuations, append_punctuations)
    placed = []
    begin = 0
    for segment, count in zip(segments, num_text_tokens, strict=True):
        end = begin
        covered = 0  # text tokens; a word may reach into the next segment, which then has fewer words
        while end < len(timings) and covered < count:
            covered += len(timings[end].tokens)
            end += 1
        words = [
            Word(round(time_offset + each.start, 2), round(time_offset + each.end, 2), each.word, each.probability)
            for each in timings[begin:end]
        ]
        begin = end
        segment = _settle(segment, words, median, last_speech_timestamp)
        if words:
            last_speech_timestamp = segment.end
        placed.append(segment)
    return placed


def merge_punctuation(timings: Sequence[WordTiming], prepended: str, appended: str) -> list[WordTiming]:
    """Join each mark of ``prepended`` to the word behind it, then each of ``appended`` to the word before it.

    The word keeps its time and probability. A mark counts as opening only with a blank before it.
    """
    # A mark that has moved leaves an empty place until the end: what follows it must not be joined across it.
    opened: list[WordTiming] = []  # from the last to the first
    following = None  # index in opened of the word that opening marks join
    for timing in reversed(timings):
        if following is not None and timing.word.startswith(" ") and timing.word.strip() in prepended:
            opened[following] = _joined([timing, opened[following]], timed_as=opened[following])
            timing = dataclasses.replace(timing, word="", tokens=[])
        else:
            following = len(opened)
        opened.append(timing)
    merged: list[WordTiming] = []
    for timing in reversed(opened):
        if merged and not merged[-1].word.endswith(" ") and timing.word in appended:
            merged[-1] = _joined([merged[-1], timing], timed_as=merged[-1])
        else:
            merged.append(timing)
    return [timing for timing in merged if timing.word]


def _joined(parts: Sequence[WordTiming], timed_as: WordTiming) -> WordTiming:
    word = "".join(part.word for part in parts)
    return dataclasses.replace(timed_as, word=word, tokens=[token for part in parts for token in part.tokens])


def _shorten_at_sentence_ends(timings: Sequence[WordTiming], longest: float) -> list[WordTiming]:
    """Cut the silence between sentences off the mark before it, or else off the word behind it."""
    shortened = list(timings)
    for i in range(1, len(shortened)):
        timing = shortened[i]
        if timing.duration <= longest:
            continue
        if timing.word in SENTENCE_ENDS:
            shortened[i] = dataclasses.replace(timing, end=timing.start + longest)
        elif shortened[i - 1].word in SENTENCE_ENDS:
            shortened[i] = dataclasses.replace(timing, start=timing.end - longest)
    return shortened


def _settle(segment: Segment, words: list[Word], median: float, last_speech_timestamp: float) -> Segment:
    """The segment with its words, after shortening its first and last words where they are too long to be true."""
    if not words:
        return dataclasses.replace(segment, words=[])
    words = _shorten_after_pause(words, median, last_speech_timestamp)
    start, end = segment.start, segment.end
    if start < words[0].end and start - CLEAR_DIFFERENCE > words[0].start:
        words[0] = dataclasses.replace(words[0], start=max(0.0, min(words[0].end - median, start)))
    else:
        start = words[0].start
    if end > words[-1].start and end + CLEAR_DIFFERENCE < words[-1].end:
        words[-1] = dataclasses.replace(words[-1], end=max(words[-1].start + median, end))
    else:
        end = words[-1].end
    return dataclasses.replace(segment, start=start, end=end, words=words)


def _shorten_after_pause(words: list[Word], median: float, last_speech_timestamp: float) -> list[Word]:
    """Let the first word, and the second with it, begin later when a pause before them was taken for speech."""
    longest = 2 * median
    first, *others = words
    second = others[0] if others else None
    if first.end - last_speech_timestamp <= PAUSE_MEDIANS * median:
        return words
    if first.end - first.start <= longest and (second is None or second.end - first.start <= 2 * longest):
        return words
    if second is not None and second.end - second.start > longest:
        boundary = max(second.end / 2, second.end - longest)
        first = dataclasses.replace(first, end=boundary)
        others[0] = dataclasses.replace(second, start=boundary)
    return [dataclasses.replace(first, start=max(0.0, first.end - longest)), *others]
