"""A program written for faster-whisper, run with it and with Transept: the same text at the same times."""

import dataclasses
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import faster_whisper
import numpy as np
import pytest
import soundfile

from transept.compat import faster_whisper as ours
from transept.errors import ParameterError


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0870.flac"


@pytest.fixture(scope="module", params=["path", "samples"])
def audio(request: pytest.FixtureRequest, clip: Path) -> Any:
    return str(clip) if request.param == "path" else faster_whisper.decode_audio(str(clip))


@pytest.fixture(scope="module")
def models(tiny_en_dir: Path) -> list[tuple[ModuleType, Any]]:
    """Each library, ours first, and its model, made as people paste it."""
    return [
        (library, library.WhisperModel(str(tiny_en_dir), device="cpu", compute_type="float32", cpu_threads=1))
        for library in (ours, faster_whisper)
    ]


def program(model: Any, audio: Any, **options: Any) -> tuple[list[Any], Any]:
    """What people paste."""
    segments, info = model.transcribe(audio, **options)
    assert isinstance(segments, Iterator)
    return list(segments), info


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam_size": 1, "word_timestamps": True, "language": "en"},
        {"vad_filter": True, "vad_parameters": {"min_silence_duration_ms": 500}, "temperature": 0},
        {"log_prob_threshold": None, "without_timestamps": True, "suppress_tokens": [-1]},
        {"clip_timestamps": "1,4", "condition_on_previous_text": False},
        {"vad_parameters": {"min_silence_duration_ms": 500}, "hallucination_silence_threshold": 2.0},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
def test_segments_and_info_are_those_of_faster_whisper(
    models: list[tuple[ModuleType, Any]], clip: Path, options: dict[str, Any]
) -> None:
    (segments, info), (expected, expected_info) = (program(model, str(clip), **options) for _, model in models)
    assert [segment.text for segment in segments] == [segment.text for segment in expected]
    assert segments
    for segment, other in zip(segments, expected, strict=True):
        assert (segment.id, segment.seek, segment.tokens) == (other.id, other.seek, other.tokens)
        assert (segment.start, segment.end) == pytest.approx((other.start, other.end), abs=0.05)
        assert segment.avg_logprob == pytest.approx(other.avg_logprob, abs=0.02)
        assert segment.compression_ratio == pytest.approx(other.compression_ratio)
        assert [word.word for word in segment.words or ()] == [word.word for word in other.words or ()]
    fields = {each.name for each in dataclasses.fields(expected[0])}
    assert {each.name for each in dataclasses.fields(segments[0])} == fields
    assert {each.name for each in dataclasses.fields(info)} == {each.name for each in dataclasses.fields(expected_info)}
    assert (info.language, info.language_probability) == (expected_info.language, expected_info.language_probability)
    for each in dataclasses.fields(expected_info.transcription_options):
        assert hasattr(info.transcription_options, each.name)
    assert info.duration == pytest.approx(expected_info.duration)
    assert info.duration_after_vad == pytest.approx(expected_info.duration_after_vad, abs=0.5)


@pytest.mark.sampled(2)
def test_batches_of_a_path_or_samples(models: list[tuple[ModuleType, Any]], audio: Any) -> None:
    texts = []
    for library, model in models:
        segments, info = library.BatchedInferencePipeline(model=model).transcribe(audio, batch_size=4)
        texts.append("".join(segment.text for segment in segments))
        assert info.duration > 5
    assert texts[0] == texts[1]


def test_languages_are_detected(base_dir: Path, clip: Path) -> None:
    samples = ours.decode_audio(str(clip))
    assert np.allclose(samples, faster_whisper.decode_audio(str(clip)), atol=1e-4)
    model = ours.WhisperModel(base_dir, device="cpu")
    language, probability, ranked = model.detect_language(samples)
    assert (language, ranked[0]) == ("en", ("en", probability))
    assert model.detect_language(str(clip))[0] == "en"
    assert model.detect_language(samples, vad_filter=True, vad_parameters={"threshold": 0.4})[0] == "en"
    with pytest.raises(ParameterError, match="features are computed by the engine; give the recording as audio"):
        model.detect_language(samples, features=samples)
    assert model.is_multilingual
    assert {"de", "en", "zh"} <= set(model.supported_languages) == {code for code, _ in ranked}
    _, info = model.transcribe(samples)
    assert info.language == "en"
    assert info.all_language_probs[0] == ("en", info.language_probability)


def test_the_channels_of_a_call_are_split(clip: Path, tmp_path: Path) -> None:
    samples = ours.decode_audio(str(clip))
    call = tmp_path / "call.wav"
    soundfile.write(call, np.stack([samples, samples[::-1]], 1), 16_000, "FLOAT")
    split = ours.decode_audio(str(call), split_stereo=True)
    for channel, expected in zip(split, faster_whisper.decode_audio(str(call), split_stereo=True), strict=True):
        assert np.allclose(channel, expected, atol=1e-4)


def test_no_samples_are_silence(base_dir: Path) -> None:
    model = ours.WhisperModel(base_dir, device="cpu")
    nothing = np.zeros(0, np.float32)
    assert not list(model.transcribe(nothing)[0])
    assert not list(ours.BatchedInferencePipeline(model).transcribe(nothing)[0])
    assert model.detect_language(nothing)[0] in model.supported_languages


def test_models_are_found_and_copied(tiny_en_dir: Path, tmp_path: Path) -> None:
    assert ours.download_model(str(tiny_en_dir)) == str(tiny_en_dir)
    copied = ours.download_model(str(tiny_en_dir), output_dir=str(tmp_path / "model"), local_files_only=True)
    assert copied == str(tmp_path / "model")
    assert {file.name for file in Path(copied).iterdir()} == {file.name for file in tiny_en_dir.iterdir()}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("batched", [False, True])
def test_an_english_only_model_hears_english(
    models: list[tuple[ModuleType, Any]], clip: Path, batched: bool, caplog: pytest.LogCaptureFixture
) -> None:
    asked = {"language": "de", "multilingual": True, "task": "translate", "beam_size": 1}
    found = []
    for library, model in models:
        caplog.clear()
        segments, info = (library.BatchedInferencePipeline(model) if batched else model).transcribe(str(clip), **asked)
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        text = "".join(segment.text for segment in segments)
        found.append(
            (text, info.language, info.language_probability, [each.replace("toTrue", "to True") for each in warnings])
        )
    assert found[0] == found[1]
    assert len(found[0][-1]) == 2


def test_languages_are_asked_for_alike() -> None:
    ask = [inspect.signature(each.WhisperModel.detect_language).parameters for each in (ours, faster_whisper)]
    assert [*ask[0]] == [*ask[1]]


def test_only_batches_have_a_size() -> None:
    """As in faster-whisper, where programs choose between the two."""
    parameters = [
        set(inspect.signature(each.transcribe).parameters)
        for each in (ours.BatchedInferencePipeline, ours.WhisperModel)
    ]
    assert parameters[0] - parameters[1] == {"batch_size"}
    assert parameters[1] <= parameters[0]


def test_what_has_no_counterpart_is_refused(tiny_en_dir: Path) -> None:
    with pytest.raises(ParameterError, match=r'compute_type must be "default", "auto", .*, not .int4.'):
        ours.WhisperModel(tiny_en_dir, compute_type="int4")
    with pytest.raises(ParameterError, match="one device"):
        ours.WhisperModel(tiny_en_dir, device_index=[0, 1])
    model = ours.WhisperModel(tiny_en_dir, device="cpu", compute_type="int8")
    assert model.transcriber.engine.config.quantization == "int8"
    assert set(faster_whisper.available_models()) <= set(ours.available_models())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vad_filter": True, "vad_parameters": {"x": 1}}, "vad_parameters has no 'x'"),
        ({"vad_filter": True, "vad_parameters": 5}, "vad_parameters must be a dict or VadOptions, not int"),
        ({"vad_filter": True, "vad_parameters": {"threshold": 2}}, "vad_parameters.threshold must be a number"),
        ({"log_prob_threshold": "x"}, "log_prob_threshold must be a number"),
        ({"best_of": 65}, "best_of=65 needs 65 sequences at a time"),
    ],
)
def test_an_error_names_the_option_as_it_was_given(
    models: list[tuple[ModuleType, Any]], clip: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=f"^{message}"):
        models[0][1].transcribe(str(clip), **options)


def test_all_public_names_but_the_version_are_there() -> None:
    assert not set(faster_whisper.__all__) - set(ours.__all__) - {"__version__"}


@pytest.mark.parametrize("seconds", [0, 0.0004, 3.5, 59.9996, 61.25, 3599.9999, 3600, 90061.5])
def test_timestamps_are_written_alike(seconds: float) -> None:
    for options in ({}, {"always_include_hours": True}, {"decimal_marker": ","}):
        assert ours.format_timestamp(seconds, **options) == faster_whisper.format_timestamp(seconds, **options)
    with pytest.raises(ParameterError, match="at least 0"):
        ours.format_timestamp(-seconds - 1)


def test_segments_without_text_are_left_out(models: list[tuple[ModuleType, Any]], clip: Path) -> None:
    silence = np.random.default_rng(0).normal(0, 1e-4, 16_000 * 31).astype(np.float32)
    samples = np.concatenate([silence, ours.decode_audio(str(clip))])
    options = {"no_speech_threshold": None, "temperature": 0, "condition_on_previous_text": False}
    (segments, _), (expected, _) = (program(model, samples, **options) for _, model in models)
    assert [(each.id, each.text) for each in segments] == [(each.id, each.text) for each in expected]
    assert all(each.text for each in segments)


def test_other_names_replace_the_defaults_of_the_door(tiny_en_dir: Path, clip: Path) -> None:
    """A default of faster-whisper's signature does not count as given."""
    model = ours.WhisperModel(tiny_en_dir, device="cpu", threads=1, offline=True, model_dir=None)
    assert model.transcriber.engine.config.threads == 1
    _, info = model.transcribe(str(clip), num_beams=2, condition_on_prev_tokens=False)
    assert (info.transcription_options.beam_size, info.transcription_options.mode) == (2, "sequential")
    assert not info.transcription_options.condition_on_previous_text
    _, info = model.transcribe(str(clip), batched=True)
    assert info.transcription_options.mode == "batched"
    _, info = ours.BatchedInferencePipeline(model).transcribe(str(clip), num_beams=1, batched=True, vad=True)
    assert info.transcription_options.beam_size == 1
    with pytest.raises(ParameterError, match="are the same option: give one of them"):
        model.transcribe(str(clip), num_beams=2, beam_size=2)
    with pytest.raises(ParameterError, match="are the same option: give one of them"):
        ours.WhisperModel(tiny_en_dir, cpu_threads=1, threads=1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "options",
    [
        {"clip_timestamps": [{"start": 0.0, "end": 3.0}, {"start": 3.5, "end": 6.5}]},
        {"clip_timestamps": [{"start": 1.25, "end": 6.5}], "vad_filter": False},
        {"vad_filter": False},
        {"vad_filter": False, "word_timestamps": True},
    ],
    ids=lambda options: " ".join(options),
)
def test_each_clip_is_one_window(models: list[tuple[ModuleType, Any]], clip: Path, options: dict[str, Any]) -> None:
    found = []
    for library, model in models:
        segments, info = library.BatchedInferencePipeline(model).transcribe(str(clip), beam_size=1, **options)
        found.append((list(segments), info.duration_after_vad))
    (segments, kept), (expected, expected_kept) = found
    assert kept == pytest.approx(expected_kept, abs=0.01)
    assert segments
    for segment, other in zip(segments, expected, strict=True):
        assert segment.text == other.text
        assert (segment.start, segment.end) == pytest.approx((other.start, other.end), abs=0.1)


def test_a_long_recording_needs_voice_activity_or_clips(models: list[tuple[ModuleType, Any]], clip: Path) -> None:
    (_, model), (_, theirs) = models
    samples = np.tile(ours.decode_audio(str(clip)), 6)
    assert len(samples) > 30 * 16_000
    with pytest.raises(ParameterError, match="vad_filter=False leaves out voice activity detection"):
        ours.BatchedInferencePipeline(model).transcribe(samples, vad_filter=False)
    with pytest.raises(RuntimeError, match="vad_filter"):
        faster_whisper.BatchedInferencePipeline(theirs).transcribe(samples, vad_filter=False)
    long_clip = [{"start": 0.0, "end": len(samples) / 16_000}]
    segments, info = ours.BatchedInferencePipeline(model).transcribe(samples, clip_timestamps=long_clip, beam_size=1)
    assert [segment.start for segment in segments] == [0.0, 30.0]
    assert info.duration_after_vad == info.duration


@pytest.mark.parametrize("batched", [False, True])
def test_times_rise_and_words_lie_in_their_segments(
    models: list[tuple[ModuleType, Any]], speech_dir: Path, batched: bool
) -> None:
    model = models[0][1]
    recording = np.concatenate([ours.decode_audio(str(file)) for file in sorted(speech_dir.glob("librivox/*.flac"))])
    transcribe = (ours.BatchedInferencePipeline(model) if batched else model).transcribe
    segments, info = program(SimpleNamespace(transcribe=transcribe), recording, word_timestamps=True)
    for segment in segments:
        assert segment.start == segment.words[0].start
        assert segment.text == "".join(word.word for word in segment.words)
        assert all(word.start <= word.end <= segment.end for word in segment.words)
    assert all(one.start <= one.end <= other.start for one, other in pairwise(segments))
    assert segments[-1].end <= info.duration


def test_the_info_has_the_options(models: list[tuple[ModuleType, Any]], clip: Path) -> None:
    silence = {"min_silence_duration_ms": 500, "speech_pad_ms": 200}
    asked = {"hotwords": "Dashwood", "vad_filter": True, "vad_parameters": silence, "beam_size": 1}
    for _, model in models:
        _, info = model.transcribe(str(clip), **asked)
        assert info.transcription_options.hotwords == "Dashwood"
        assert {name: getattr(info.vad_options, name) for name in silence} == silence


def test_a_prefix_begins_the_first_segment(models: list[tuple[ModuleType, Any]], clip: Path) -> None:
    (segments, _), (expected, _) = (program(model, str(clip), prefix="The late owner") for _, model in models)
    assert [segment.text for segment in segments] == [segment.text for segment in expected]
    assert segments[0].text.startswith(" The late owner")
    assert segments[0].start == 0
