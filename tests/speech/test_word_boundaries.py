"""Boundaries of words from the attention and the sound, on sounds whose boundaries are known."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from recordings import RATE, clip

from transept import Transcriber
from transept.speech.segments import AttendedWord, Segment, Word
from transept.speech.timing.boundaries import out_of_silence, refined
from transept.speech.timing.loudness import PER_SECOND, Loudness
from transept.speech.timing.onsets import token_onsets

SEGMENT = Segment(0, 0, 0.0, 0.0, " text", [1], 0.0, 0.0, 1.0, 0.0)
# Words of five letters and of three, two without a pause between them, and a pause of 0.9 s.
SPOKEN = [("house", 1.0, 1.5), ("and", 1.5, 1.8), ("trees", 2.7, 3.2), ("are", 3.3, 3.6), ("there", 3.9, 4.4)]


def sounding(times: list[tuple[float, float]], seconds: float, noise: float = 0.0) -> np.ndarray:
    """Noise that swells and fades between each two times, in silence or a fainter noise."""
    draw = np.random.default_rng(0)
    waveform = draw.normal(0, noise, int(seconds * RATE)) if noise else np.zeros(int(seconds * RATE))
    for start, end in times:
        first, last = round(start * RATE), round(end * RATE)
        swell = np.sin(np.linspace(0.05, np.pi - 0.05, last - first))
        waveform[first:last] += draw.normal(0, 0.2, last - first) * swell
    return waveform.astype(np.float32)


def attended(words: list[tuple[str, float, float, float]]) -> Segment:
    """A segment of words: text, start, end and onset."""
    own = [AttendedWord(start, end, f" {text}", 1.0, onset) for text, start, end, onset in words]
    return dataclasses.replace(SEGMENT, start=own[0].start, end=own[-1].end, words=own)


@pytest.mark.parametrize("noise", [0.0, 0.002])
@pytest.mark.parametrize("delay", [-0.05, 0.0, 0.1, 0.2])
def test_words_are_where_they_sound_whatever_the_delay_of_attention(delay: float, noise: float) -> None:
    waveform = sounding([(start, end) for _, start, end in SPOKEN], 6.0, noise)
    late = [(text, start + delay, start + delay, start + delay) for text, start, _ in SPOKEN]
    segment = attended([*late[:-1], (late[-1][0], late[-1][1], 4.4 + delay, late[-1][3])])
    (result,) = refined([segment], waveform, (0.0, 6.0))
    assert result.words is not None
    for word, (_, start, end) in zip(result.words, SPOKEN, strict=True):
        assert type(word) is Word
        assert word.start == pytest.approx(start, abs=0.06)
        assert word.end == pytest.approx(end, abs=0.06)
    assert (result.start, result.end) == (result.words[0].start, result.words[-1].end)


def test_a_last_word_with_the_pause_after_it_ends_with_its_sound() -> None:
    waveform = sounding([(start, end) for _, start, end in SPOKEN], 8.0)
    words = [(text, start, end, start) for text, start, end in SPOKEN]
    (result,) = refined([attended([*words[:-1], ("there", 3.9, 6.5, 3.9)])], waveform, (0.0, 8.0))
    assert result.end == pytest.approx(4.4, abs=0.04)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.text("ab1. ", max_size=9), *[st.floats(0, 9.99)] * 3), min_size=1, max_size=30),
    st.sampled_from([0.0, 0.01]),
)
@example(words=[("", 0.0, 0.0, 9.75), ("", 4.0, 0.0, 0.0)], noise=0.0)  # an onset after the next run of words
def test_every_word_has_a_length_and_they_follow_each_other(
    words: list[tuple[str, float, float, float]], noise: float
) -> None:
    ends = sorted(end for _, end, _, _ in words)
    timed = [(text, end, end, onset) for (text, _, _, onset), end in zip(words, ends, strict=True)]
    (result,) = refined([attended(timed)], sounding([(2.0, 3.0), (5.0, 7.0)], 10.0, noise), (0.0, 10.0))
    assert result.words is not None
    assert [word.word for word in result.words] == [f" {text}" for text, *_ in words]
    assert all(word.end > word.start >= 0.0 for word in result.words)
    assert all(one.end <= other.start for one, other in pairwise(result.words))


def test_segments_without_onsets_stay_as_they_are() -> None:
    untimed, empty = dataclasses.replace(SEGMENT, words=[Word(1.0, 1.0, " a", 1.0)]), dataclasses.replace(SEGMENT)
    assert refined([untimed, empty], sounding([], 3.0), (0.0, 3.0)) == [untimed, empty]


def test_words_stay_within_limits() -> None:
    words = attended([("one", 0.9, 1.2, 1.0), ("two", 1.2, 1.6, 1.3)])
    (result,) = refined([words], sounding([(0.5, 2.5)], 3.0), (1.0, 1.5))
    assert 1.0 <= result.start < result.end <= 1.5


def test_pauses_are_found_in_noise_and_in_silence() -> None:
    for noise in (0.0, 0.002):
        loudness = Loudness.of(sounding([(1.0, 2.0), (2.5, 3.0)], 4.0, noise))
        begins, ends = loudness.pause_begins / PER_SECOND, loudness.pause_ends / PER_SECOND
        assert any(abs(begin - 2.0) < 0.03 and abs(end - 2.5) < 0.03 for begin, end in zip(begins, ends, strict=True))


def test_an_onset_is_where_a_token_s_own_attention_begins() -> None:
    """The second token follows a pause of two seconds, which the path of dynamic time warping gave to the first."""
    weights = np.full((2, 6, 400), 1e-5, np.float32)  # two control tokens, two of the text, the end and one after it
    weights[:, 2, 50:70] = 0.05  # finds the first token, from 1.0 to 1.4 s
    weights[:, 3, 170:190] = 0.05  # the second one, from 3.4 to 3.8 s
    onsets = token_onsets(weights, np.array([1.0, 3.5, 4.0]), num_positions=400, positions_per_second=50)
    assert onsets == pytest.approx([1.06, 3.46], abs=0.01)
    assert token_onsets(weights, np.empty(0), num_positions=400, positions_per_second=50).size == 0


def test_words_of_a_recording_begin_and_end_with_its_speech(tiny_en_dir: Path, speech_dir: Path) -> None:
    speech = clip(speech_dir / "prompts-en" / "check-number-dial-again.flac")
    (loud,) = np.nonzero(np.abs(speech) > 0.02)
    begin, end = 1.0 + loud[0] / RATE, 1.0 + loud[-1] / RATE
    silence = np.zeros(RATE, np.float32)
    waveform = np.concatenate([silence, speech, silence])
    transcriber = Transcriber(tiny_en_dir, threads=1)
    transcript = transcriber.transcribe(waveform, word_timestamps=True)
    words = [word for segment in transcript.segments for word in segment.words or ()]
    assert words[0].start == pytest.approx(begin, abs=0.06)
    assert words[-1].end == pytest.approx(end, abs=0.1)
    attention = transcriber.transcribe(waveform, word_timestamps=True, refine_word_times=False)
    assert attention.text == transcript.text
    assert attention.segments[0].words != transcript.segments[0].words
    aligned = transcriber.align(waveform, transcript.text)
    assert aligned.segments[0].start == pytest.approx(begin, abs=0.06)
    assert aligned.segments[-1].end == pytest.approx(end, abs=0.1)


def test_a_word_without_a_length_in_silence_shares_the_time_of_the_next_one() -> None:
    words = [
        Word(1.0, 1.02, " There", 1.0),
        Word(2.0, 2.5, " are", 1.0),
        Word(2.5, 2.52, " a", 1.0),
        Word(2.6, 3.0, " x", 1.0),
    ]
    moved = out_of_silence(words)
    assert [(word.start, word.end) for word in moved[:2]] == [(2.0, pytest.approx(2.3)), (pytest.approx(2.3), 2.5)]
    assert moved[2:] == words[2:]
