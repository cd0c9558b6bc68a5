"""Batched mode: against sequential mode and the spoken text, alone and together, with nothing lost or doubled."""

from __future__ import annotations

import json
from itertools import groupby, pairwise
from pathlib import Path

import jiwer
import numpy as np
import pytest
import soundfile
from whisper.normalizers import EnglishTextNormalizer

from transept import Transcriber, Transcript, TranscriptionOptions
from transept.core.jobs.job import Gather
from transept.multimodal.waveforms import NO_SAMPLES
from transept.speech.algorithms.batched import decode_windows
from transept.speech.algorithms.passages import decode_passages
from transept.speech.algorithms.source import Source
from transept.speech.vad.options import VadOptions

RATE = 16_000
normalize = EnglishTextNormalizer()


@pytest.fixture(scope="module")
def tiny(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def base(base_dir: Path) -> Transcriber:
    return Transcriber(base_dir)


def clips(folder: Path) -> list[tuple[np.ndarray, str]]:
    entries = sorted(json.loads((folder / "transcripts.json").read_text()), key=lambda entry: entry["audio"])
    return [(soundfile.read(folder / entry["audio"], dtype="float32")[0], entry["text"]) for entry in entries]


@pytest.fixture(scope="module")
def novel(speech_dir: Path) -> list[tuple[np.ndarray, str]]:
    return clips(speech_dir / "librivox")


@pytest.fixture(scope="module")
def prompts(speech_dir: Path) -> list[tuple[np.ndarray, str]]:
    return clips(speech_dir / "prompts-en")


def joined(parts: list[tuple[np.ndarray, str]], pause: float = 0.0) -> np.ndarray:
    silence = np.zeros(int(pause * RATE), np.float32)
    return np.concatenate([array for waveform, _ in parts for array in (waveform, silence)])


def word_error_rate(parts: list[tuple[np.ndarray, str]], written: str) -> float:
    return jiwer.wer(normalize(" ".join(text for _, text in parts)), normalize(written))


def temperatures_of_windows(transcript: Transcript) -> dict[int, float]:
    """By the frame at which a window begins."""
    return {seek: next(group).temperature for seek, group in groupby(transcript.segments, lambda each: each.seek)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "parts", "count"),
    [
        ("tiny", "novel", 5),
        ("tiny", "prompts", 18),
        ("base", "novel", 5),
        pytest.param("tiny", "prompts", 54, marks=pytest.mark.slow),
        pytest.param("base", "prompts", 54, marks=pytest.mark.slow),
    ],
)
def test_word_error_rate_is_that_of_sequential_mode(
    model: str, parts: str, count: int, request: pytest.FixtureRequest
) -> None:
    transcriber, spoken = request.getfixturevalue(model), request.getfixturevalue(parts)[:count]
    recording = (joined(spoken), RATE)
    batched, sequential = (
        transcriber.transcribe(recording, language="en", temperature=0.0, mode=mode)
        for mode in ("batched", "sequential")
    )
    assert word_error_rate(spoken, batched.text) <= word_error_rate(spoken, sequential.text) + 0.003


@pytest.mark.parametrize(("count", "seconds"), [(24, 120), pytest.param(54, 320, marks=pytest.mark.slow)])
def test_every_clip_is_found_once_at_its_time(
    count: int, seconds: int, tiny: Transcriber, prompts: list[tuple[np.ndarray, str]]
) -> None:
    pause, prompts = 2.0, prompts[:count]
    transcript = tiny.transcribe((joined(prompts, pause), RATE), batched=True, word_timestamps=True)
    assert transcript.duration > seconds
    words = [word for segment in transcript.segments for word in segment.words or ()]
    begin = 0.0
    for waveform, text in prompts:
        end = begin + len(waveform) / RATE + pause
        heard = "".join(word.word for word in words if begin <= (word.start + word.end) / 2 < end)
        spoken = normalize(text).split()
        result = jiwer.process_words(" ".join(spoken), normalize(heard))
        assert result.hits >= len(spoken) / 2, (text, heard)
        assert result.insertions <= max(1, len(spoken) / 2), (text, heard)
        begin = end


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("first", "left_out"), [(51, 5), pytest.param(53, 3, marks=pytest.mark.slow), (2, 0)])
def test_a_sentence_that_was_just_heard_is_heard_again(
    first: int, left_out: int, tiny: Transcriber, prompts: list[tuple[np.ndarray, str]]
) -> None:
    """With such a text before it tiny.en leaves out "Password incorrect. Please enter your password ..."."""
    spoken = [prompts[(first + index) % len(prompts)] for index in range(10 if first == 51 else 8)]
    before = " ".join(prompts[(first + index) % len(prompts)][1] for index in range(-8, 0))
    transcript = tiny.transcribe((joined(spoken, 1.0), RATE), language="en", batched=True, initial_prompt=before)
    begin = sum(len(waveform) / RATE + 1.0 for waveform, _ in spoken[:left_out])
    end = begin + len(spoken[left_out][0]) / RATE + 1.0
    heard = [each.text for each in transcript.segments if begin <= (each.start + each.end) / 2 < end]
    assert jiwer.wer(normalize(spoken[left_out][1]), normalize(" ".join(heard))) < 0.2
    assert word_error_rate(spoken, transcript.text) < 0.06
    assert all(one.end <= other.start for one, other in pairwise(transcript.segments))


def test_segments_are_sentences_at_their_times(tiny: Transcriber, novel: list[tuple[np.ndarray, str]]) -> None:
    pause = 3.0
    transcript = tiny.transcribe((joined(novel, pause), RATE), batched=True)
    begin = 0.0
    assert len(transcript.segments) == len(novel)
    for (waveform, text), segment in zip(novel, transcript.segments, strict=True):
        end = begin + len(waveform) / RATE
        assert jiwer.wer(normalize(text), normalize(segment.text)) < 0.2
        assert begin - 0.05 <= segment.start < begin + 0.6
        assert end - 0.6 < segment.end <= end + 0.4
        assert segment.words is None
        begin = end + pause


def test_words_have_the_times_of_sequential_mode(tiny: Transcriber, novel: list[tuple[np.ndarray, str]]) -> None:
    recording = (joined(novel, 1.0), RATE)
    batched, sequential = (
        [word for segment in transcript.segments for word in segment.words or ()]
        for transcript in (
            tiny.transcribe(recording, word_timestamps=True, batched=batched) for batched in (True, False)
        )
    )
    assert [normalize(word.word) for word in batched] == [normalize(word.word) for word in sequential]
    apart = [abs(one.start - other.start) for one, other in zip(batched, sequential, strict=True)]
    assert np.median(apart) <= 0.04
    assert np.quantile(apart, 0.95) <= 0.3


def test_without_timestamps_a_window_is_a_segment(tiny: Transcriber, novel: list[tuple[np.ndarray, str]]) -> None:
    transcript = tiny.transcribe((joined(novel, 2.0), RATE), batched=True, without_timestamps=True)
    assert len({segment.seek for segment in transcript.segments}) == len(transcript.segments)
    assert word_error_rate(novel, transcript.text) < 0.05


def test_windows_of_many_recordings_are_those_of_each_alone(
    tiny: Transcriber, prompts: list[tuple[np.ndarray, str]], novel: list[tuple[np.ndarray, str]]
) -> None:
    recordings = [(joined(parts, 0.5), RATE) for parts in (prompts[:10], novel, prompts[10:14])]
    together = list(tiny.transcribe_many(recordings, batched=True))
    alone = [tiny.transcribe(recording, batched=True) for recording in recordings]
    for one, other in zip(together, alone, strict=True):
        assert one.text == other.text
        assert [(each.start, each.end, each.tokens) for each in one.segments] == [
            (each.start, each.end, each.tokens) for each in other.segments
        ]


def test_segments_stream_in_order_of_time(tiny: Transcriber, prompts: list[tuple[np.ndarray, str]]) -> None:
    recording = (joined(prompts[:18], 0.5), RATE)
    streamed = list(tiny.stream(recording, batched=True))
    assert streamed == tiny.transcribe(recording, batched=True).segments
    assert [segment.id for segment in streamed] == list(range(len(streamed)))
    assert len({segment.seek for segment in streamed}) >= 3  # windows
    for one, other in pairwise(streamed):
        assert one.start <= one.end <= other.start
    assert all(segment.text.strip() for segment in streamed)


def test_a_window_falls_back_alone_and_its_encoder_runs_once(
    tiny: Transcriber, prompts: list[tuple[np.ndarray, str]]
) -> None:
    recording = (joined(prompts[:20]), RATE)
    options = {"batched": True, "condition_on_previous_text": False, "no_speech_threshold": None}
    first = tiny.transcribe(recording, temperature=0.0, **options)
    likelihoods = sorted({segment.avg_logprob for segment in first.segments})
    assert len(likelihoods) >= 3
    limit = (likelihoods[0] + likelihoods[1]) / 2  # only the least likely window is below
    runs = tiny.engine.num_encoder_runs
    again = tiny.transcribe(recording, temperature=(0.0, 0.2, 0.4), logprob_threshold=limit, **options)
    temperatures = temperatures_of_windows(again)
    assert sum(temperature > 0 for temperature in temperatures.values()) == 1
    assert tiny.engine.num_encoder_runs - runs <= len(temperatures)
    untouched = {seek for seek, temperature in temperatures.items() if temperature == 0.0}
    texts, first_texts = (
        [segment.text for segment in transcript.segments if segment.seek in untouched] for transcript in (again, first)
    )
    assert texts == first_texts


def test_windows_named_by_their_sound_are_encoded_once_and_give_the_same(
    tiny: Transcriber, prompts: list[tuple[np.ndarray, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording, options = (joined(prompts[:12]), RATE), {"batched": True, "word_timestamps": True, "temperature": 0.0}
    expected = tiny.transcribe(recording, **options)
    monkeypatch.setattr(tiny.model, "device", "cpu:0")  # no other name than "cpu" is a CPU's: windows are named
    tiny.engine.block_manager.reset()
    runs = tiny.engine.num_encoder_runs
    named = tiny.transcribe(recording, **options)
    assert named.segments == expected.segments
    windows = {segment.seek for segment in named.segments}
    assert tiny.engine.num_encoder_runs - runs == len(windows) >= 2
    assert tiny.transcribe(recording, **options).segments == expected.segments
    assert tiny.engine.num_encoder_runs - runs == len(windows)
    assert not tiny.model._names  # a name goes with its window


@pytest.mark.slow
def test_language_is_detected_in_every_window_by_the_same_encoder_run(
    base: Transcriber, prompts: list[tuple[np.ndarray, str]]
) -> None:
    recording = (joined(prompts[:12]), RATE)
    runs = base.engine.num_encoder_runs
    transcript = base.transcribe(recording, batched=True, multilingual=True)
    windows = {segment.seek for segment in transcript.segments}
    assert len(windows) >= 2
    assert base.engine.num_encoder_runs - runs == len(windows)
    assert (transcript.language, {segment.language for segment in transcript.segments}) == ("en", {"en"})
    assert transcript.language_probability > 0.5


def test_a_span_longer_than_a_window_is_not_lost(tiny: Transcriber, prompts: list[tuple[np.ndarray, str]]) -> None:
    spoken = prompts[:18]
    one_span = VadOptions(min_silence_duration_ms=5000)
    transcript = tiny.transcribe((joined(spoken), RATE), batched=True, vad_options=one_span)
    assert transcript.duration > 40
    assert word_error_rate(spoken, transcript.text) < 0.2


def test_closing_a_stream_leaves_nothing_in_the_engine(
    tiny: Transcriber, prompts: list[tuple[np.ndarray, str]]
) -> None:
    stream = tiny.stream((joined(prompts[:20]), RATE), batched=True)
    next(stream)
    stream.close()
    assert not tiny.engine.has_unfinished_requests
    assert tiny.transcribe((prompts[0][0], RATE), batched=True).text


@pytest.mark.parametrize("batch_size", [None, 3])
def test_so_many_windows_are_decoded_at_a_time(tiny: Transcriber, batch_size: int | None) -> None:
    options = TranscriptionOptions(batch_size=batch_size)
    source = Source(tiny.model, options, tiny.model.features(NO_SAMPLES), language="en")
    for job in (
        decode_windows(source, []),
        decode_passages(source, []),
    ):
        gathered = next(job)
        assert (type(gathered), gathered.max_jobs) == (Gather, batch_size)
