"""Forced alignment: known texts in recordings whose parts are known to the sample."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import RATE, clip

from transept import Transcriber
from transept.errors import MediaError, ParameterError, PromptError
from transept.speech.forced_alignment import known_words, matching_places

SENTENCE = "He might even have been made amiable himself."
WORDS = st.lists(st.sampled_from(["one", "two", "three", "four", "--"]), max_size=12)


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def prompts(speech_dir: Path) -> tuple[np.ndarray, list[str], list[tuple[float, float]]]:
    """A recording of 39 s with a second of silence after each prompt; their texts, and their seconds in it."""
    folder = speech_dir / "prompts-en"
    entries = json.loads((folder / "transcripts.json").read_text())[:10]
    parts, times, begin = [], [], 0
    for entry in entries:
        waveform = clip(folder / entry["audio"])
        parts += [waveform, np.zeros(RATE, np.float32)]
        times.append((begin / RATE, (begin + len(waveform)) / RATE))
        begin += len(waveform) + RATE
    return np.concatenate(parts), [entry["text"] for entry in entries], times


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", [{}, {"batched": True}], ids=["sequential", "batched"])
def test_each_line_is_found_where_it_is_said(transcriber: Transcriber, prompts: Any, mode: dict[str, Any]) -> None:
    waveform, texts, times = prompts
    transcript = transcriber.align(waveform, "\n".join(texts), **mode)
    assert [segment.text for segment in transcript.segments] == [f" {' '.join(text.split())}" for text in texts]
    for segment, (start, end) in zip(transcript.segments, times, strict=True):
        assert start - 0.1 < segment.start < start + 0.5
        assert end - 0.5 < segment.end < end + 0.1
        assert "".join(word.word for word in segment.words) == segment.text
        assert (segment.start, segment.end) == (segment.words[0].start, segment.words[-1].end)
    words = [word for segment in transcript.segments for word in segment.words]
    assert all(word.start <= word.end <= after.start for word, after in pairwise(words))


def test_words_that_the_model_would_hear_otherwise_have_their_times(transcriber: Transcriber, speech_dir: Path) -> None:
    audio = speech_dir / "librivox" / "austen-0880.flac"
    heard = transcriber.transcribe(audio, word_timestamps=True)
    assert "ill" not in heard.text
    aligned = transcriber.align(audio, "He was not an ill-disposed young man,")
    (segment,) = aligned.segments
    assert aligned.text == "He was not an ill-disposed young man,"
    by_hearing = {word.word.strip(): word for each in heard.segments for word in each.words}
    for word in segment.words:
        if (same := by_hearing.get(word.word.strip())) is not None:
            assert (word.start, word.end) == pytest.approx((same.start, same.end), abs=0.3)


def test_a_text_of_one_line_is_cut_into_sentences(transcriber: Transcriber, prompts: Any) -> None:
    waveform, texts, times = prompts
    transcript = transcriber.align(waveform[: round(times[3][1] * RATE)], " ".join(texts[:4]))
    assert [segment.text.strip() for segment in transcript.segments] == [
        "That agent is already logged on.",
        "Please enter your agent number followed by the pound key.",
        "Please enter your password followed by the pound key.",
        "Password incorrect.",
        "Please enter your password followed by the pound key.",
        "Please check the number and dial again.",
    ]
    assert [segment.id for segment in transcript.segments] == list(range(6))


def test_what_cannot_be_aligned(transcriber: Transcriber, speech_dir: Path) -> None:
    with pytest.raises(ParameterError, match="must be text, not None"):
        transcriber.align(b"", None)
    with pytest.raises(ParameterError, match="no words"):
        transcriber.align(b"", " \n ")
    with pytest.raises(PromptError, match="surrogate"):
        transcriber.align(b"", "\ud800")
    with pytest.raises(MediaError, match="no words were found in the recording"):
        transcriber.align(np.zeros(RATE, np.float32), SENTENCE)
    with pytest.raises(MediaError, match="cannot be decoded"):
        transcriber.align(b"no audio", SENTENCE)
    assert transcriber.align(speech_dir / "librivox" / "austen-0930.flac", SENTENCE).text == SENTENCE


SPOILED = (  # two of its words are others
    "And mister John Dashwood had then treasure to consider how much there might be thoroughly in his power to do for "
    "them."
)


@pytest.mark.parametrize(
    ("clip", "text", "warned"),
    [
        ("austen-0880", "He was not an ill-disposed young man.", False),
        ("austen-0870", SPOILED, False),
        ("austen-0870", "Please enter your agent number followed by the pound key. Thank you for calling us.", True),
        ("austen-0890", "He was not an ill-disposed young man.", True),
    ],
)
def test_a_text_of_another_recording_is_told(
    clip: str, text: str, warned: bool, transcriber: Transcriber, speech_dir: Path
) -> None:
    transcript = transcriber.align(speech_dir / "librivox" / f"{clip}.flac", text)
    assert any(each.startswith("probably of another text: ") for each in transcript.warnings) is warned


def test_a_text_is_in_the_language_that_is_spoken(transcriber: Transcriber, speech_dir: Path) -> None:
    for options in ({"target_language": "en"}, {"task": "translate"}):
        with pytest.raises(ParameterError, match=f"align has no {next(iter(options))}"):
            transcriber.align(speech_dir / "librivox" / "austen-0870.flac", "A text.", **options)


def test_units_are_lines_or_sentences() -> None:
    def units(text: str, language: str = "en") -> list[tuple[str, int]]:
        return [(text[word.start : word.end], word.unit) for word in known_words(text, language)]

    assert units("One two\r\n\n  three. Four\n") == [("One", 0), ("two", 0), ("three.", 1), ("Four", 1)]
    assert units("One. Two?  Three") == [("One.", 0), ("Two?", 1), ("Three", 2)]
    assert units("你好。 再见", "zh") == [("你", 0), ("好", 0), ("。", 0), ("再", 1), ("见", 1)]
    assert units(" ") == []


@given(WORDS, WORDS)
def test_places_rise_from_the_first_known_word_to_the_last(known: list[str], heard: list[str]) -> None:
    places = matching_places(known, heard)
    assert len(places) == len(heard) + 1
    assert places == sorted(places)
    assert places[0] >= 0
    assert places[-1] == len(known)
    assert matching_places(known, [word.upper() + "!" for word in known])[1:] == list(range(1, len(known) + 1))


def test_places_skip_what_only_one_of_both_has() -> None:
    assert matching_places(["a", "b", "c", "d", "e"], ["a", "b", "d", "e"]) == [0, 1, 3, 4, 5]
    assert matching_places(["a", "b", "c"], ["a", "x", "y", "b", "c"]) == [0, 1, 1, 1, 2, 3]
    assert matching_places(["a", "b", "c", "d"], ["a", "x", "y", "d"]) == [0, 1, 2, 3, 4]
