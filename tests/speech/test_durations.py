"""Words that attention gives no time, and what a transcript makes of them."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept import Transcriber
from transept.compat import faster_whisper, whisper
from transept.compat.transcribers import CompatTranscriber
from transept.speech.segments import Segment, Word
from transept.speech.word_breaks import SHORTEST, lasting, lengthened

SQUEEZED = (
    "auth-incorrect",
    "confbridge-rest-talk-vol-in",
    "privacy-prompt",
)  # a word of tiny.en has no length in each


def words_at(*times: tuple[float, float]) -> list[Word]:
    return [Word(start, end, f" {index}", 0.5) for index, (start, end) in enumerate(times)]


def times_of(words: list[Word]) -> list[tuple[float, float]]:
    return [(round(word.start, 3), round(word.end, 3)) for word in words]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(1.0, 1.5), (1.5, 2.0)], [(1.0, 1.5), (1.5, 2.0)]),
        ([(1.0, 1.5), (1.5, 1.5), (1.7, 2.0)], [(1.0, 1.5), (1.5, 1.52), (1.7, 2.0)]),  # from the pause
        ([(1.0, 1.5), (1.5, 1.5), (1.5, 2.0)], [(1.0, 1.5), (1.5, 1.52), (1.52, 2.0)]),  # from the next
        ([(1.0, 1.5), (1.5, 1.5)], [(1.0, 1.48), (1.48, 1.5)]),  # from the one before
        ([(1.0, 1.0), (1.0, 1.0), (1.0, 2.0)], [(1.0, 1.02), (1.02, 1.04), (1.04, 2.0)]),
        ([(1.0, 1.0), (1.0, 1.0)], [(1.0, 1.02), (1.02, 1.04)]),  # nothing to take from
        ([(1.0, 1.6), (1.5, 2.0)], [(1.0, 1.6), (1.6, 2.0)]),  # no two at once
    ],
)
def test_a_word_without_a_length_takes_one(
    given: list[tuple[float, float]], expected: list[tuple[float, float]]
) -> None:
    assert times_of(lengthened(words_at(*given))) == expected


times = st.integers(0, 60).map(lambda number: number / 50)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=12))
def test_words_follow_each_other_and_last(steps: list[tuple[float, float]]) -> None:
    time, drawn = 0.0, []
    for pause, length in steps:
        drawn.append((time + pause, time + pause + length))
        time += pause + length
    words = words_at(*drawn)
    found = lengthened(words)
    slack = 1e-9
    assert all(word.end - word.start >= SHORTEST - slack for word in found)
    assert all(one.end <= other.start + slack for one, other in pairwise(found))
    assert found[0].start == words[0].start
    assert found[-1].end <= max(words[-1].end, words[0].start + len(words) * SHORTEST) + slack
    assert times_of(lengthened(found)) == times_of(found)
    if all(word.end - word.start > SHORTEST for word in words):
        assert times_of(found) == times_of(words)


def test_a_segment_that_says_something_has_a_length() -> None:
    segment = Segment(0, 0, 1.5, 1.5, " a", [1], 0.0, -0.2, 1.1, 0.01)
    assert (lasting(segment).start, lasting(segment).end) == (1.5, 1.52)
    silent = Segment(0, 0, 1.5, 1.5, "", [], 0.0, -0.2, 1.1, 0.01, words=[])
    assert lasting(silent) is silent
    word = Segment(0, 0, 1.5, 1.5, " a", [1], 0.0, -0.2, 1.1, 0.01, words=words_at((1.5, 1.5)))
    assert times_of(lasting(word).words) == [(1.5, 1.52)]
    assert lasting(word).end == 1.52


@pytest.mark.parametrize("batched", [False, True])
def test_every_word_of_a_transcript_has_a_length(tiny_en_dir: Path, speech_dir: Path, batched: bool) -> None:
    with Transcriber(tiny_en_dir) as transcriber:
        for name in SQUEEZED:
            file = speech_dir / "prompts-en" / f"{name}.flac"
            transcript = transcriber.transcribe(file, word_timestamps=True, batched=batched)
            assert all(word.end > word.start for segment in transcript.segments for word in segment.words)
            with transcriber.stream(file, word_timestamps=True, batched=batched) as stream:
                assert list(stream) == transcript.segments


def test_compat_doors_have_the_words_of_their_libraries(tiny_en_dir: Path, speech_dir: Path) -> None:
    file = str(speech_dir / "prompts-en" / f"{SQUEEZED[0]}.flac")
    options = {"word_timestamps": True, "temperature": 0.0}
    with Transcriber(tiny_en_dir) as transcriber:
        ours = transcriber.transcribe(file, mode="sequential", **options).segments
        stock = whisper.Whisper(CompatTranscriber.from_engine(transcriber.engine))
        found = [
            Segment(**{**segment, "words": [Word(**word) for word in segment["words"]]})
            for segment in stock.transcribe(file, **options)["segments"]
        ]
        assert [lasting(segment) for segment in found] == ours
    assert type(whisper.load_model(str(tiny_en_dir)).transcriber) is CompatTranscriber
    assert type(faster_whisper.WhisperModel(str(tiny_en_dir)).transcriber) is CompatTranscriber
