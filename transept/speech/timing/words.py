"""Word times of a window, from the cross-attention of the heads that follow the speech.

The rules are openai-whisper's (``whisper/timing.py``). Pure NumPy: `algorithms.window_words` makes the request whose
decoder prompt is the finished text, and passes its cross-attention to `token_times` (median filter, dynamic time
warping) and `word_timings`; `place_words` then returns segments with words.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transept.core.kernels.dispatch import CHEAPEST_PATH, MEDIANS, NEIGHBOURS
from transept.speech.segments import AttendedWord, Segment, Word

SENTENCE_ENDS = ".。!！?？"  # noqa: RUF001  full-width marks are meant
LONGEST_MEDIAN = 0.7  # seconds; a longer median word says nothing about the others
PAUSE_MEDIANS = 4  # a pause of this many median words is a long one
CLEAR_DIFFERENCE = 0.5  # seconds between a segment's time and its word's from which the segment's is believed
UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # no blanks between words; as in openai-whisper
REPLACEMENT = "\ufffd"  # in a tokenizer's text, stands for invalid bytes


@dataclass(frozen=True)
class WordTiming:
    """A word of a window. start, end: seconds from the window's start. probability: mean over its tokens.

    onset: see AttendedWord, in seconds from the window's start; None if the times are final.
    """

    word: str
    tokens: list[int]
    start: float
    end: float
    probability: float
    onset: float | None = None

    @property
    def duration(self) -> float:
        """Length in seconds."""
        return self.end - self.start


def token_times(
    weights: np.ndarray,
    num_text_tokens: int,
    *,
    num_frames: int,
    frames_per_position: int,
    frames_per_second: float,
) -> np.ndarray:
    """Return the start of each token of a window's text and the end of the last one.

    weights: [heads, tokens of the decoder prompt, encoder positions], cross-attention after softmax over all positions;
        the decoder prompt ends with the token before the text, the text and the end-of-text token.
    num_frames: frames of the window without padding; later positions are ignored.
    frames_per_position: frames for each encoder position (Whisper's convolutions: 2).
    frames_per_second: of the features (Whisper: 100).

    Returns seconds, ascending, [num_text_tokens + 1]; [0] for an empty text and for a window shorter than one position.
    """
    num_positions = num_frames // frames_per_position
    if not num_text_tokens or not num_positions:
        return np.empty(0)
    cost = alignment_cost(weights[:, :, :num_positions])
    # A token's row attends to the audio of the next token: the row before the text finds the text's first token.
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
    onsets: np.ndarray | None = None,
) -> list[WordTiming]:
    """Return the words of a window's text, in order, with their times.

    text_tokens: token ids of the text. logprobs: the log probability of each. times: seconds, from `token_times`;
    empty: no words. tokenizer: of transformers. language: code, or None; see `split_words`. onsets: seconds, from
    `timing.onsets`.
    """
    if not len(times):
        return []
    timings = []
    begin = 0
    for word, tokens in split_words(text_tokens, tokenizer, language):
        end = begin + len(tokens)
        probability = float(np.mean(np.exp(logprobs[begin:end])))
        onset = None if onsets is None else float(onsets[begin + _first_with_letters(tokens, tokenizer)])
        timings.append(WordTiming(word, tokens, float(times[begin]), float(times[end]), probability, onset))
        begin = end
    return timings


def _first_with_letters(tokens: Sequence[int], tokenizer: Any) -> int:
    """Return the place of a word's first token with a letter or a digit, before which there are marks; otherwise 0."""
    spoken = (place for place, token in enumerate(tokens) if any(map(str.isalnum, _decode([token], tokenizer))))
    return next(spoken, 0)


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
    """Return the segments of a window with their words, and with the start and end of the words.

    timings: of the segments' joined text, from `word_timings`. num_text_tokens: of each segment. time_offset: start of
    the window, in seconds of the recording. last_speech_timestamp: end of the last word before this window, in seconds
    of the recording, or 0. prepend_punctuations, append_punctuations: marks that become part of the word after or
    before them.

    Known errors of attention are corrected: a word much longer than the median is shortened at the end of a sentence,
    after a pause, and where it exceeds the segment's own timestamps.
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
        words = [_placed(each, time_offset) for each in timings[begin:end]]
        begin = end
        segment = _settle(segment, words, median, last_speech_timestamp)
        if words:
            last_speech_timestamp = segment.end
        placed.append(segment)
    return placed


def _placed(timing: WordTiming, time_offset: float) -> Word:
    start, end = round(time_offset + timing.start, 2), round(time_offset + timing.end, 2)
    if timing.onset is None:
        return Word(start, end, timing.word, timing.probability)
    return AttendedWord(start, end, timing.word, timing.probability, time_offset + timing.onset)


def merge_punctuation(timings: Sequence[WordTiming], prepended: str, appended: str) -> list[WordTiming]:
    """Join each mark of ``prepended`` to the word after it, then each of ``appended`` to the word before it.

    The word keeps its time and probability. A mark counts as opening only with a blank before it.
    """
    # A moved mark leaves an empty place until the end: the marks after it must not be joined across it.
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
    """Cut the silence between sentences off the mark before it, or otherwise off the word after it."""
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
    """Return the segment with its words, the first and the last shortened if they are too long to be true."""
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
    """Let the first word, and the second with it, begin later if a pause before them was mistaken for speech."""
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


def alignment_cost(weights: np.ndarray) -> np.ndarray:
    """Return the cost of saying a token at a position, from the weights of the heads that follow the speech.

    weights: [heads, tokens, positions], none negative. Only their proportions within a token count, so a part of a
    longer softmax may be passed. Returns [tokens, positions] in float32, low where the heads attend.
    The rule is openai-whisper's: standardise over the tokens, median over neighbouring positions, mean over the heads.
    """
    total = np.zeros(weights.shape[1:], dtype=np.float32)
    for head in weights:
        share = head / np.maximum(head.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        mean = share.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = share.std(axis=0, dtype=np.float64).astype(np.float32)
        standard = np.divide(share - mean, deviation, out=np.zeros_like(share), where=deviation > 0)
        total += median_filter(standard)
    return -total / len(weights)


def median_filter(values: np.ndarray) -> np.ndarray:
    """Return the median of each value and its NEIGHBOURS to either side along the last axis, mirrored at both ends.

    values: float32; unchanged if the axis is too short to be mirrored. As many neighbours as in openai-whisper.
    """
    length = values.shape[-1]
    if length <= NEIGHBOURS:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(NEIGHBOURS, NEIGHBOURS)], mode="reflect")
    return MEDIANS.only(padded.reshape(-1, length + 2 * NEIGHBOURS)).reshape(values.shape)


def warping_path(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the cheapest path through a matrix, by steps right, down or both (Sakoe & Chiba 1978).

    cost: [rows, columns], neither 0. Returns the rows and the columns of its cells, from the first cell to the last.
    Among equally cheap ways into a cell, the one from the left is chosen, as in openai-whisper.
    """
    path = CHEAPEST_PATH.only(cost)
    return path[:, 0], path[:, 1]


def split_words(tokens: Sequence[int], tokenizer: Any, language: str | None) -> list[tuple[str, list[int]]]:
    """Return the words of a text with their tokens, in order.

    tokenizer: of transformers. language: code; in a language without blanks between words, each run of tokens that
    makes whole characters is a word. A blank belongs to the word after it, and punctuation is a separate word.
    """
    pieces = _whole_characters(tokens, tokenizer)
    if language in UNSPACED_LANGUAGES:
        return pieces
    words: list[tuple[str, list[int]]] = []
    for text, ids in pieces:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, ids))
        else:
            begun, begun_ids = words[-1]
            words[-1] = (begun + text, begun_ids + ids)
    return words


def _whole_characters(tokens: Sequence[int], tokenizer: Any) -> list[tuple[str, list[int]]]:
    """Return the shortest runs of tokens that end with a character, with their texts.

    A token may end inside a character, as byte-level tokens of many scripts do.
    """
    whole = _decode(tokens, tokenizer)
    pieces: list[tuple[str, list[int]]] = []
    done = 0  # characters of the whole text in the pieces
    run: list[int] = []
    for token in tokens:
        run.append(token)
        text = _decode(run, tokenizer)
        broken = text.find(REPLACEMENT)
        # The model wrote a replacement character that is also in the whole text; another one comes from this cut.
        if broken < 0 or whole[done + broken : done + broken + 1] == REPLACEMENT:
            pieces.append((text, run))
            done += len(text)
            run = []
    if run:  # the text ends inside a character
        pieces.append((whole[done:], run))
    return pieces


def _decode(tokens: Sequence[int], tokenizer: Any) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))
