"""Sequential mode against openai-whisper on the same weights: the same text, segments and figures."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai_reference import before_the_end, openai_model, openai_result
from recordings import RATE, joined
from whisper.model import Whisper

from transept import Segment, Transcriber, Transcript

EXACT = ("id", "seek", "start", "end", "text", "tokens", "temperature", "compression_ratio")


@dataclass(frozen=True)
class Case:
    transcriber: Transcriber
    reference: Whisper


def case(directory: Path) -> Case:
    return Case(Transcriber(directory), openai_model(directory))


@pytest.fixture(scope="module")
def tiny_en(tiny_en_dir: Path) -> Case:
    return case(tiny_en_dir)


@pytest.fixture(scope="module")
def base(base_dir: Path) -> Case:
    return case(base_dir)


@pytest.fixture(scope="module")
def audiobook(speech_dir: Path) -> np.ndarray:
    """25 s: one window."""
    return joined(speech_dir / "librivox")


@pytest.fixture(scope="module")
def prompts(speech_dir: Path) -> np.ndarray:
    """30.1 s: the second window begins where the first one's timestamps end."""
    return joined(speech_dir / "prompts-en", count=10)


@pytest.fixture(scope="module")
def noisy(prompts: np.ndarray) -> np.ndarray:
    """14 s: noise in which the model hears things, words, and more noise."""
    noise = np.random.default_rng(0).normal(0, 0.003, 9 * RATE).astype(np.float32)
    return np.concatenate([noise[: 5 * RATE], prompts[: 5 * RATE], noise[5 * RATE :]])


def both(case: Case, waveform: np.ndarray, **options: Any) -> tuple[Transcript, dict[str, Any]]:
    """Ours and openai-whisper's, with the same options, without what that hears after the end."""
    renamed = {("gnmt_length_penalty" if name == "length_penalty" else name): each for name, each in options.items()}
    ours = case.transcriber.transcribe((waveform, RATE), mode="sequential", **renamed)
    engine = case.transcriber.engine
    assert not engine.has_unfinished_requests
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
    theirs = openai_result(case.reference, waveform, **options)
    clips = options.get("clip_timestamps", ())
    clips = [float(clip) for clip in (clips.split(",") if isinstance(clips, str) else clips)]
    segments = before_the_end(theirs["segments"], len(waveform) / RATE, clips)
    assert len(segments) == len(theirs["segments"])  # some only end earlier
    return ours, theirs | {"segments": segments}


def assert_same(ours: Transcript, theirs: dict[str, Any]) -> None:
    assert ours.text == theirs["text"].strip()
    assert ours.language == theirs["language"]
    assert len(ours.segments) == len(theirs["segments"])
    for segment, expected in zip(ours.segments, theirs["segments"], strict=True):
        assert_same_segment(segment, expected)


def assert_same_segment(segment: Segment, expected: dict[str, Any]) -> None:
    assert {name: getattr(segment, name) for name in EXACT} == {name: expected[name] for name in EXACT}
    assert segment.avg_logprob == pytest.approx(expected["avg_logprob"], abs=1e-4)
    assert segment.no_speech_prob == pytest.approx(expected["no_speech_prob"], abs=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "recording", "options"),
    [
        ("tiny_en", "audiobook", {}),
        ("tiny_en", "prompts", {}),
        ("tiny_en", "prompts", {"condition_on_previous_text": False}),
        pytest.param("base", "audiobook", {}, marks=pytest.mark.slow),
        pytest.param("base", "prompts", {}, marks=pytest.mark.slow),
    ],
    ids=["tiny.en-audiobook", "tiny.en-prompts", "tiny.en-prompts-unconditioned", "base-audiobook", "base-prompts"],
)
def test_greedy(model: str, recording: str, options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    case, waveform = request.getfixturevalue(model), request.getfixturevalue(recording)
    ours, theirs = both(case, waveform, temperature=0.0, **options)
    assert_same(ours, theirs)
    assert ours.duration == pytest.approx(len(waveform) / RATE)
    assert len(ours.segments) > 3


def test_with_the_fallback_that_is_the_default(tiny_en: Case, audiobook: np.ndarray) -> None:
    ours, theirs = both(tiny_en, audiobook[: 12 * RATE])
    assert all(segment["temperature"] == 0.0 for segment in theirs["segments"])  # or the dice would decide
    assert_same(ours, theirs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        {"initial_prompt": "Asterisk, the PBX."},
        {"initial_prompt": "Asterisk, the PBX.", "carry_initial_prompt": True},
        {"clip_timestamps": [3.0, 9.5, 20.0, 29.0]},
        {"clip_timestamps": "25"},
    ],
    ids=["initial", "carried", "clips", "clip"],
)
def test_options_for_the_way_through_the_recording(tiny_en: Case, prompts: np.ndarray, options: dict[str, Any]) -> None:
    assert_same(*both(tiny_en, prompts, temperature=0.0, **options))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {"without_timestamps": True},
        {"suppress_tokens": None, "suppress_blank": False},
        {"max_initial_timestamp": None},
        pytest.param({"beam_size": 5}, marks=pytest.mark.slow),
        {"beam_size": 3, "patience": 2.0, "length_penalty": 0.5},
        {"no_speech_threshold": 0.05, "logprob_threshold": -0.1},
    ],
    ids=lambda options: " ".join(options),
)
def test_options_for_a_window(tiny_en: Case, audiobook: np.ndarray, options: dict[str, Any]) -> None:
    assert_same(*both(tiny_en, audiobook[: 12 * RATE], temperature=0.0, **options))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("recording", "options"),
    [
        ("noisy", {"hallucination_silence_threshold": 0.2, "no_speech_threshold": None}),
        ("noisy", {"hallucination_silence_threshold": 1.0}),
        ("prompts", {}),
    ],
    ids=["noisy-unskipped", "noisy", "prompts"],
)
def test_words(tiny_en: Case, recording: str, options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    waveform = request.getfixturevalue(recording)
    ours, theirs = both(tiny_en, waveform, temperature=0.0, word_timestamps=True, **options)
    assert_same(ours, theirs)
    words = [word for segment in ours.segments for word in segment.words]
    expected = [word for segment in theirs["segments"] for word in segment["words"]]
    assert [word.word for word in words] == [word["word"] for word in expected]
    assert [word.probability for word in words] == pytest.approx([word["probability"] for word in expected], abs=1e-4)
    differences = [
        max(abs(word.start - other["start"]), abs(word.end - other["end"]))
        for word, other in zip(words, expected, strict=True)
    ]
    assert np.mean(np.array(differences) < 0.0201) >= 0.99
    assert len(words) > 5


def test_windows_with_nothing_in_them(tiny_en: Case, audiobook: np.ndarray) -> None:
    silence = np.zeros(70 * RATE, np.float32)
    alone = tiny_en.transcriber.transcribe((audiobook[: 7 * RATE], RATE), temperature=0.0, mode="sequential")
    transcript = tiny_en.transcriber.transcribe(
        (np.concatenate([audiobook[: 7 * RATE], silence]), RATE), mode="sequential"
    )
    assert transcript.text == alone.text
    assert transcript.duration == 77.0


def test_less_than_a_frame(tiny_en: Case) -> None:
    transcript = tiny_en.transcriber.transcribe((np.ones(100, np.float32), RATE), mode="sequential")
    assert (transcript.text, transcript.segments, transcript.language) == ("", [], "en")
