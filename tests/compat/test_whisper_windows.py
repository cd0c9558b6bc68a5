"""openai-whisper's functions on one window of 30 s, with it and with Transept: the same spectrograms and results."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import whisper
from speech.openai_reference import openai_model

from transept.compat import whisper as ours
from transept.compat.whisper.audio import N_FRAMES, N_SAMPLES, SAMPLE_RATE
from transept.errors import MediaError, ParameterError

EXACT = ("language", "tokens", "text")


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[np.ndarray]:
    files = sorted((speech_dir / "librivox").glob("*.flac"))[:2]
    return [ours.load_audio(file) for file in files]


@pytest.fixture(scope="module")
def models(base_dir: Path) -> tuple[ours.Whisper, Any]:
    return ours.load_model(str(base_dir), device="cpu"), openai_model(base_dir)


@pytest.mark.parametrize("length", [N_SAMPLES, 20_000, 16_001])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["array", "tensor"])
def test_spectrograms_are_openai_whispers(clips: list[np.ndarray], length: int, kind: Any) -> None:
    samples = kind(clips[0])
    cut, theirs = ours.pad_or_trim(samples, length), whisper.pad_or_trim(samples, length)
    assert type(cut) is type(theirs)
    assert np.array_equal(cut, theirs)
    for options in ({}, {"n_mels": 128}, {"padding": 5000}):
        mel, expected = ours.log_mel_spectrogram(cut, **options), whisper.log_mel_spectrogram(theirs, **options)
        assert mel.shape == expected.shape
        assert torch.allclose(mel, expected, atol=1e-4)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_axis_is_padded_or_trimmed(axis: int) -> None:
    array = np.arange(20.0).reshape(4, 5)
    for length in (3, 4, 5, 7):
        expected = whisper.pad_or_trim(array, length, axis=axis)
        assert np.array_equal(ours.pad_or_trim(array, length, axis=axis), expected)
        assert np.array_equal(ours.pad_or_trim(torch.from_numpy(array), length, axis=axis), expected)


@pytest.mark.slow
def test_the_second_program_of_its_readme(models: tuple[ours.Whisper, Any], speech_dir: Path) -> None:
    audio = next(iter(sorted((speech_dir / "librivox").glob("*.flac"))))

    def program(library: Any, model: Any, waveform: np.ndarray) -> tuple[str, float, str]:
        waveform = library.pad_or_trim(waveform)
        mel = library.log_mel_spectrogram(waveform, n_mels=model.dims.n_mels).to(model.device)
        _, probabilities = model.detect_language(mel)
        language = max(probabilities, key=probabilities.get)
        options = library.DecodingOptions(fp16=False)
        return language, probabilities[language], library.decode(model, mel, options).text

    samples = ours.load_audio(audio)
    language, probability, text = program(ours, models[0], samples)
    expected = program(whisper, models[1], samples)
    assert (language, text) == (expected[0], expected[2])
    assert probability == pytest.approx(expected[1], abs=1e-4)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "options",
    [
        {"language": "en", "without_timestamps": True, "prompt": "Norland Park, in Sussex."},
        {},
        {"task": "translate", "language": "de", "sample_len": 20},
        {"language": "en", "beam_size": 3, "patience": 2.0, "suppress_tokens": "", "suppress_blank": False},
        {"language": "en", "without_timestamps": True, "prefix": "The family", "max_initial_timestamp": None},
        {"task": "lang_id"},
        {"language": "en", "beam_size": 3, "patience": 0.5, "without_timestamps": True},
        {"language": "en", "max_initial_timestamp": 0},
    ],
    ids=lambda options: " ".join(options) or "defaults",
)
def test_windows_are_decoded_as_there(
    models: tuple[ours.Whisper, Any], clips: list[np.ndarray], options: dict[str, Any]
) -> None:
    if "beam_size" not in options and options:  # several windows at once: with beams, and with nothing asked
        clips = clips[:1]
    mel = torch.stack([whisper.log_mel_spectrogram(whisper.pad_or_trim(clip)) for clip in clips])
    assert mel.shape[-1] == N_FRAMES
    results = ours.decode(models[0], mel, ours.DecodingOptions(**options))
    asked = whisper.DecodingOptions(fp16=False, **options)
    expected = [whisper.decode(models[1], each, asked) for each in mel]  # it has no beams for several windows
    for result, other in zip(results, expected, strict=True):
        assert [getattr(result, name) for name in EXACT] == [getattr(other, name) for name in EXACT]
        for name in ("temperature", "compression_ratio", "avg_logprob", "no_speech_prob"):
            assert getattr(result, name) == pytest.approx(getattr(other, name), abs=2e-4, nan_ok=True)
        assert (result.language_probs is None) == (other.language_probs is None)


@pytest.mark.slow
def test_languages_of_several_windows(models: tuple[ours.Whisper, Any], clips: list[np.ndarray]) -> None:
    mel = torch.stack([whisper.log_mel_spectrogram(whisper.pad_or_trim(clip)) for clip in clips])
    tokens, probabilities = ours.detect_language(models[0], mel)
    their_tokens, their_probabilities = whisper.detect_language(models[1], mel)
    assert tokens.tolist() == their_tokens.tolist()
    for each, other in zip(probabilities, their_probabilities, strict=True):
        assert each == pytest.approx(other, abs=1e-4)


def test_an_english_only_model_hears_english(tiny_en_dir: Path, clips: list[np.ndarray]) -> None:
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(clips[0]))
    asked = {"language": "de", "task": "translate"}
    model = ours.load_model(str(tiny_en_dir))
    result = ours.decode(model, mel, **asked)
    expected = whisper.decode(openai_model(tiny_en_dir), mel, whisper.DecodingOptions(fp16=False, **asked))
    assert [getattr(result, name) for name in EXACT] == [getattr(expected, name) for name in EXACT]
    with pytest.raises(ParameterError, match="no language 'germn'"):
        model.decode(mel, language="germn")


def test_sizes_and_devices(models: tuple[ours.Whisper, Any], tiny_en_dir: Path) -> None:
    for model, theirs in (models, (ours.load_model(str(tiny_en_dir)), openai_model(tiny_en_dir))):
        for name in ("n_mels", "n_audio_ctx", "n_vocab", "n_text_ctx"):
            assert getattr(model.dims, name) == getattr(theirs.dims, name)
        assert (model.num_languages, model.is_multilingual) == (theirs.num_languages, theirs.is_multilingual)
    model = models[0]
    assert model.to("cpu") is model
    assert model.device == torch.device("cpu")
    with pytest.raises(ParameterError, match="runs on cpu; load_model"):
        model.to("cuda")


def test_what_makes_no_sense(models: tuple[ours.Whisper, Any], tiny_en_dir: Path) -> None:
    model, mel = models[0], torch.zeros(80, N_FRAMES)
    with pytest.raises(MediaError, match="n_mels, frames"):
        model.decode(torch.zeros(80))
    with pytest.raises(MediaError, match="audio_features"):
        model.decode(torch.zeros(128, N_FRAMES))
    with pytest.raises(ParameterError, match="task must be"):
        model.decode(mel, ours.DecodingOptions(task="summarize"))
    with pytest.raises(ParameterError, match="no 'beam_sise'"):
        model.decode(mel, beam_sise=2)
    with pytest.raises(ParameterError, match="no language 'germn'"):
        model.decode(mel, language="germn")
    with pytest.raises(ParameterError, match="one language only"):
        ours.load_model(str(tiny_en_dir)).detect_language(mel)
    with pytest.raises(MediaError, match="num_samples"):
        ours.log_mel_spectrogram(np.zeros((2, SAMPLE_RATE)))
