"""Boundaries of words, from the attention and the loudness around them.

`algorithms.window_words` says when the decoder begins to attend to each word (`timing.onsets`), which is a little after
the word begins. `refined` moves the starts and ends to where the sound changes. Auto and batched mode call it for
finished segments, so it changes nothing but their times. `forced_alignment` calls it for a known text.

All words of a run are placed together: the cheapest choice of boundaries, by dynamic programming. Between two words
there is either a point, preferably quiet, or a pause: the costs say how far the next word begins from its onset, how
loud the pause and how quiet the word is, and how unlikely the length of each word is, given its letters.

    boundaries      |   word   | word |    pause    |  word  |
    onsets              o         o                    o           each later than its word's start by one delay
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np

from transept.multimodal.waveforms import Waveform
from transept.speech.segments import AttendedWord, Segment, Word
from transept.speech.timing.loudness import FRAME, PER_SECOND, Loudness
from transept.speech.vad.spans import SAMPLE_RATE
from transept.speech.word_breaks import SHORTEST as SHORTEST_WORD
from transept.speech.word_breaks import lengthened

DELAYS = np.arange(-20, 51, 2)  # frames from a word's start to its onset; tiny.en has 22, base 0
USUAL_DELAY, DELAY_SPREAD = 10, 20  # frames; of a run with too few words to measure it
DIP_BEFORE_START = 3  # frames from the dip between two words to the start of the second one
ROUNDING = 1e-6  # hundredths of a second that a time may differ from a whole one, and still be equal to it
MARGIN = 1.0  # seconds of the recording around a run of words
STRAYED = 1.0  # seconds
LONGEST_PAUSE = 3.0  # seconds between two words that end a run
ALONE = 0.3  # seconds before the next word, from which a word without a length is alone
REACH = 50  # frames by which a boundary may differ from the attention's
PAUSE_REACH = 70  # the same for a boundary with a pause
STEP = 2  # frames between points
FOLLOWING = 60  # frames of silence that count before the first and after the last word
CERTAINTY = 1 / 8  # cost of each frame between a word's start and the one that attention suggests: 40 ms cost 1
LAST_CERTAINTY = 1 / 20  # the same for the end of the last word, after which no word begins
SILENCE = 0.3  # gain of a frame of clear silence in a pause
PAUSE = 1.0  # cost of a pause, so that the silence before a plosive is not one
DIP = 0.5  # gain of a boundary in a dip of 10 dB
SPREAD = 0.4  # standard deviation of the logarithm of a word's length
UNLIKELIEST = 6.0  # the most that an unlikely length costs
SHORTEST = 6  # frames of a word
TOO_SHORT = 20.0  # cost of a shorter one, plus a half for each frame that it lacks
USUAL_LETTER = 0.07  # seconds of a letter, if there are too few words to measure it
USUAL_WORDS = (0.05, 1.0)  # seconds between two onsets from which the length of a letter is measured


def refined(
    segments: Sequence[Segment], waveform: Waveform, limits: tuple[float, float], *, strayed: float = STRAYED
) -> list[Segment]:
    """Return segments whose words are plain words with refined times. Segments start and end with their words.

    segments: in order of time; segments without words that have an onset do not change. waveform: float32 [samples] of
    the recording at SAMPLE_RATE, in whose seconds all times are. limits: seconds between which all words lie. strayed:
    seconds before a word's start, from which its onset is not believed, because attention strayed to a pause.
    """
    attended = [[word for word in segment.words or () if isinstance(word, AttendedWord)] for segment in segments]
    following, found = iter(_all_placed([word for words in attended for word in words], waveform, limits, strayed)), []
    for segment, words in zip(segments, attended, strict=True):
        if words:
            own = list(islice(following, len(words)))
            segment = dataclasses.replace(segment, start=own[0].start, end=own[-1].end, words=own)
        found.append(segment)
    return found


def _all_placed(
    words: Sequence[AttendedWord], waveform: Waveform, limits: tuple[float, float], strayed: float
) -> list[Word]:
    """Return the words with their boundaries, all of them at hundredths of a second, so that rounding moves none."""
    begin, end = math.ceil(limits[0] * 100 - ROUNDING) / 100, math.floor(limits[1] * 100 + ROUNDING) / 100
    words_left = len(words)
    if words_left * SHORTEST_WORD > end - begin:
        return _shared_out(words, limits)
    placed: list[Word] = []
    for run, next_start in _runs(words):
        words_left -= len(run)
        latest = max(next_start, begin + (len(run) + 1) * SHORTEST_WORD)
        latest = min(round(latest, 2), round(end - words_left * SHORTEST_WORD, 2))
        placed += _placed(run, waveform, (begin, latest), strayed)
        begin = max(begin, placed[-1].end)
    return placed


def _shared_out(words: Sequence[AttendedWord], limits: tuple[float, float]) -> list[Word]:
    """Return words for which the time is too short: each gets the same share of it, or a millisecond."""
    begin, end = limits
    share = max((end - begin) / len(words), 0.001) if words else 0.0
    times = [round(begin + place * share, 3) for place in range(len(words) + 1)]
    return [Word(*span, word.word, word.probability) for word, span in zip(words, pairwise(times), strict=True)]


def _runs(words: Sequence[AttendedWord]) -> Iterator[tuple[Sequence[AttendedWord], float]]:
    """Yield each run of words without a long pause, and the start of the next run."""
    begin = 0
    for index, (one, other) in enumerate(pairwise(words), 1):
        if other.start - one.end > LONGEST_PAUSE:
            yield words[begin:index], other.start
            begin = index
    if words:
        yield words[begin:], math.inf


def _placed(
    words: Sequence[AttendedWord], waveform: Waveform, limits: tuple[float, float], strayed: float
) -> list[Word]:
    """Return a run of words with their boundaries."""
    begun = np.array([word.onset if word.onset > word.start - strayed else word.start for word in words])
    first = max(limits[0], float(begun.min()) - MARGIN)
    last = min(limits[1], max(max(word.end for word in words), float(begun.max())) + MARGIN)
    starts, ends = (np.clip([getattr(word, side) for word in words], *limits) for side in ("start", "end"))
    plain = [
        Word(float(start), float(end), word.word, word.probability)
        for word, start, end in zip(words, starts, ends, strict=True)
    ]
    stretch = waveform[max(0, round(first * SAMPLE_RATE)) : max(0, round(last * SAMPLE_RATE))]
    if len(stretch) > 2 * FRAME:
        loudness = Loudness.of(stretch)
        onsets = (begun - first) * PER_SECOND
        delay = measured_delay(onsets, loudness)
        onsets -= delay
        end = (words[-1].end - first) * PER_SECOND - delay
        letters = np.array([max(1, sum(map(str.isalnum, word.word))) for word in words])
        frames = boundaries(onsets, end, letters, loudness)
        times = (first + frames / PER_SECOND).tolist()
        plain = [
            dataclasses.replace(word, start=start, end=end) for word, (start, end) in zip(plain, times, strict=True)
        ]
    return _lengthened(out_of_silence(plain), limits)


def out_of_silence(words: list[Word]) -> list[Word]:
    """Return words of which none without a length is alone in silence: it shares the time of the word after it."""
    found = list(words)
    for index in reversed(range(len(words) - 1)):
        word, following = words[index], found[index + 1]
        if word.end - word.start < 1.5 * SHORTEST_WORD and following.start - word.end > ALONE:
            share = len(word.word) / (len(word.word) + len(following.word))
            middle = following.start + share * (following.end - following.start)
            found[index] = dataclasses.replace(word, start=following.start, end=middle)
            found[index + 1] = dataclasses.replace(following, start=middle)
    return found


def _lengthened(words: list[Word], limits: tuple[float, float]) -> list[Word]:
    """Return words that all have a length. The first one begins earlier if they do not fit before the limit."""
    latest = limits[1] - len(words) * SHORTEST_WORD
    if words[0].start > latest:
        words[0] = dataclasses.replace(words[0], start=max(limits[0], latest))
    return [dataclasses.replace(word, start=round(word.start, 2), end=round(word.end, 2)) for word in lengthened(words)]


def measured_delay(onsets: np.ndarray, loudness: Loudness) -> float:
    """Return the frames by which onsets are later than starts: the delay with which most starts are in dips."""
    frames = np.rint(onsets[:, None] - DELAYS).astype(int).clip(0, loudness.num_frames - 1)
    unusual = np.square((DELAYS - USUAL_DELAY) / DELAY_SPREAD) / 2
    return float(DELAYS[(loudness.relief[frames].sum(axis=0) + unusual).argmin()] + DIP_BEFORE_START)


@dataclass(frozen=True)
class _Choices:
    """The choices for one boundary: frames at which the word before it ends and the next one starts, and the costs."""

    ends: np.ndarray
    starts: np.ndarray
    costs: np.ndarray


def boundaries(onsets: np.ndarray, end: float, letters: np.ndarray, loudness: Loudness) -> np.ndarray:
    """Return the frames at which each word starts and ends: [words, 2].

    onsets: [words], frames at which the words seem to start. end: frame at which the last one seems to end. letters:
    [words], number of each word.
    """
    expected = _expected_lengths(onsets, letters)
    choices = [
        _first(onsets[0], loudness),
        *(_between(one, other, loudness) for one, other in pairwise(onsets)),
        _last(onsets[-1], max(end, onsets[-1] + expected[-1] / 2), loudness),
    ]
    costs, steps = choices[0].costs, []
    for length, before, after in zip(expected, choices, choices[1:], strict=False):
        total = costs[:, None] + _length_costs(after.ends - before.starts[:, None], length)
        steps.append(total.argmin(axis=0))
        costs = total.min(axis=0) + after.costs
    path = [int(costs.argmin())]
    for step in reversed(steps):
        path.insert(0, int(step[path[0]]))
    return np.array(
        [
            (before.starts[one], after.ends[other])
            for before, after, (one, other) in zip(choices, choices[1:], pairwise(path), strict=False)
        ]
    )


def _expected_lengths(onsets: np.ndarray, letters: np.ndarray) -> np.ndarray:
    """Return the length of each word in frames, as its letters suggest at the median rate of these words."""
    lengths = np.diff(onsets) / PER_SECOND
    usual = (lengths > USUAL_WORDS[0]) & (lengths < USUAL_WORDS[1])
    letter = np.median(lengths[usual] / letters[:-1][usual]) if usual.any() else USUAL_LETTER
    return np.maximum(letters * letter * PER_SECOND, SHORTEST)


def _length_costs(lengths: np.ndarray, expected: float) -> np.ndarray:
    unlikely = np.square(np.log(np.maximum(lengths, 1) / expected)) / (2 * SPREAD**2)
    return np.where(lengths < SHORTEST, TOO_SHORT + (SHORTEST - lengths) / 2, np.minimum(unlikely, UNLIKELIEST))


def _points(first: float, last: float, loudness: Loudness) -> np.ndarray:
    """Return the frames between two, every STEP frames; at least one of the stretch."""
    begin, stop = (int(np.clip(frame, 0, loudness.num_frames - 1)) for frame in (first, last))
    return np.arange(begin, stop + 1, STEP)


def _first(onset: float, loudness: Loudness) -> _Choices:
    """Choices for the start of the first word: points, and the ends of pauses."""
    points = _points(onset - REACH, onset + REACH, loudness)
    ends = loudness.pause_ends[np.abs(loudness.pause_ends - onset) <= PAUSE_REACH]
    starts = np.concatenate([points, ends])
    costs = np.abs(starts - onset) * CERTAINTY
    costs[: len(points)] += DIP * loudness.relief[points]
    costs[len(points) :] -= _silence(np.maximum(ends - FOLLOWING, 0), ends, loudness) - PAUSE
    return _Choices(starts, starts, costs)


def _between(previous: float, onset: float, loudness: Loudness) -> _Choices:
    """Choices for the boundary before a word: points, and stretches from a pause's begin to the same or another's end.

    previous: frame at which the word before seems to start.
    """
    points = _points(onset - REACH, onset + REACH, loudness)
    begins = loudness.pause_begins
    begins = begins[(begins >= previous + SHORTEST) & (begins <= onset + PAUSE_REACH)]
    stops = loudness.pause_ends[np.abs(loudness.pause_ends - onset) <= PAUSE_REACH]
    rows, columns = np.nonzero(begins[:, None] < stops)
    begins, stops = begins[rows], stops[columns]
    ends, starts = np.concatenate([points, begins]), np.concatenate([points, stops])
    costs = np.abs(starts - onset) * CERTAINTY
    costs[: len(points)] += DIP * loudness.relief[points]
    costs[len(points) :] -= _silence(begins, stops, loudness) - PAUSE
    return _Choices(ends, starts, costs)


def _last(onset: float, end: float, loudness: Loudness) -> _Choices:
    """Choices for the end of the last word: points, and the begins of pauses.

    onset: frame at which it seems to start. Silence before the attention's end counts, so the end moves before it.
    """
    earliest = min(onset + SHORTEST, end)
    points = _points(earliest, end + 2 * REACH, loudness)
    begins = loudness.pause_begins
    begins = begins[(begins >= earliest) & (begins <= end + 2 * REACH)]
    ends = np.concatenate([points, begins])
    stop = int(np.clip(end + FOLLOWING, 0, loudness.num_frames))
    stops = np.full(len(ends), stop)
    stops[len(points) :] = np.clip(begins + FOLLOWING, stop, loudness.num_frames)
    costs = np.maximum(ends - end, 0) * LAST_CERTAINTY - _silence(ends, np.maximum(stops, ends), loudness)
    costs[: len(points)] += DIP * loudness.relief[points]
    costs[len(points) :] += PAUSE
    return _Choices(ends, ends, costs)


def _silence(begins: np.ndarray, ends: np.ndarray, loudness: Loudness) -> np.ndarray:
    gains: np.ndarray = SILENCE * (loudness.quiet_before[ends] - loudness.quiet_before[begins])
    return gains
