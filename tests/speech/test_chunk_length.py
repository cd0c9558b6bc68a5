"""chunk_length: windows that are shorter than the model could hear."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from openai_reference import before_the_end, openai_model, openai_result
from recordings import RATE, joined

from transept import Transcriber, TranscriptionOptions
from transept.errors import ParameterError
from transept.speech.algorithms.silence import spoken_windows


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def audiobook(speech_dir: Path) -> np.ndarray:
    """24.7 s."""
    return joined(speech_dir / "librivox")


@pytest.mark.slow
def test_windows_are_openai_whispers_clips_of_that_length(
    transcriber: Transcriber, tiny_en_dir: Path, audiobook: np.ndarray
) -> None:
    options = {"without_timestamps": True, "temperature": 0.0}
    transcript = transcriber.transcribe(audiobook, mode="sequential", chunk_length=10, **options)
    expected = openai_result(openai_model(tiny_en_dir), audiobook, clip_timestamps=[0, 10, 10, 20, 20], **options)
    assert [each.tokens for each in transcript.segments] == [each["tokens"] for each in expected["segments"]]
    assert [each.seek for each in transcript.segments] == [0, 1000, 2000]
    assert [each.end for each in transcript.segments] == pytest.approx([10.0, 20.0, len(audiobook) / RATE], abs=0.01)


@pytest.mark.slow
def test_windows_that_follow_their_timestamps_are_faster_whispers(
    transcriber: Transcriber, tiny_en_dir: Path, audiobook: np.ndarray
) -> None:
    reference = pytest.importorskip("faster_whisper").WhisperModel(
        str(tiny_en_dir), device="cpu", compute_type="float32"
    )
    segments, _ = reference.transcribe(audiobook, beam_size=1, temperature=0.0, chunk_length=8)
    theirs = before_the_end([dataclasses.asdict(each) for each in segments], len(audiobook) / RATE)
    expected = [(each["seek"], each["text"]) for each in theirs]
    transcript = transcriber.transcribe(audiobook, mode="sequential", temperature=0.0, chunk_length=8)
    assert [(each.seek, each.text) for each in transcript.segments] == expected
    assert all(later.seek - each.seek <= 800 for each, later in pairwise(transcript.segments))


def test_windows_side_by_side_hold_no_more(transcriber: Transcriber, audiobook: np.ndarray) -> None:
    for seconds in (2, 5.5, 30):
        options = TranscriptionOptions(batched=True, chunk_length=seconds)
        lengths = [len(window.sound()) / RATE for window in spoken_windows(transcriber.model, audiobook, options)]
        assert max(lengths) <= seconds
    assert len(transcriber.transcribe(audiobook, batched=True, chunk_length=5.5).text) > 200


def test_a_chunk_is_no_longer_than_the_model_hears(transcriber: Transcriber) -> None:
    with pytest.raises(ParameterError, match="chunk_length is 31 seconds; a window of this model has at most 30"):
        transcriber.transcribe_many([], chunk_length=31)
    with pytest.raises(ParameterError, match="chunk_length must be a number of at least 2, not 1"):
        transcriber.transcribe_many([], chunk_length=1)
