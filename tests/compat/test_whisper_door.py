"""A program written for openai-whisper, run with it and with Transept: the same dict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import whisper
from speech.openai_reference import openai_model, openai_result
from whisper.utils import get_writer as openai_writer

from transept.compat import whisper as ours
from transept.errors import ParameterError

get_writer = ours.utils.get_writer  # without an import of its own, as there
EXACT = ("id", "seek", "start", "end", "text", "tokens", "temperature", "compression_ratio")


@pytest.fixture(scope="module")
def model(tiny_en_dir: Path) -> ours.Whisper:
    return ours.load_model(str(tiny_en_dir), device="cpu")


@pytest.fixture(scope="module")
def reference(tiny_en_dir: Path) -> whisper.Whisper:
    return openai_model(tiny_en_dir)


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> str:
    return str(speech_dir / "librivox" / "austen-0870.flac")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options",
    [
        {"fp16": False, "temperature": 0.0},
        {"language": "en", "beam_size": 3, "temperature": 0.0, "initial_prompt": "Norland Park", "verbose": True},
        {"word_timestamps": True, "sample_len": 100, "clip_timestamps": "0,5"},
        {"temperature": 0.0, "hallucination_silence_threshold": 2.0, "max_initial_timestamp": 0},
        {"language": "German", "task": "translate", "temperature": 0.0},  # of no effect with an English-only model
    ],
    ids=lambda options: " ".join(options),
)
def test_results_are_openai_whispers(
    model: ours.Whisper,
    reference: whisper.Whisper,
    clip: str,
    options: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = model.transcribe(clip, **options)
    printed = capsys.readouterr().out
    samples, _ = soundfile.read(clip, dtype="float32")
    options.pop("fp16", None)  # openai_result gives it
    expected = openai_result(reference, samples, **options)
    assert result.keys() == expected.keys()
    assert (result["text"], result["language"]) == (expected["text"], expected["language"])
    for segment, other in zip(result["segments"], expected["segments"], strict=True):
        assert segment.keys() == other.keys()
        assert {name: segment[name] for name in EXACT} == {name: other[name] for name in EXACT}
        assert segment["avg_logprob"] == pytest.approx(other["avg_logprob"], abs=1e-4)
        assert [word["word"] for word in segment.get("words", ())] == [word["word"] for word in other.get("words", ())]
    theirs = capsys.readouterr().out
    assert printed == (theirs if options.get("verbose") else "")


def test_samples_and_names(tiny_en_dir: Path, clip: str) -> None:
    samples = ours.load_audio(clip)
    assert np.array_equal(samples, soundfile.read(clip, dtype="float32")[0])
    model = ours.load_model(str(tiny_en_dir))
    assert not model.is_multilingual
    assert ours.transcribe(model, samples, temperature=0)["text"] == model.transcribe(clip, temperature=0)["text"]
    assert set(whisper.available_models()) <= set(ours.available_models())


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (False, None),
        (False, {"max_line_width": 20, "max_line_count": None, "highlight_words": False}),
        (True, {"max_line_width": 20, "max_line_count": 2}),
        (True, {"highlight_words": True, "max_words_per_line": 3}),
    ],
)
def test_results_are_written_as_openai_whisper_writes_them(
    model: ours.Whisper, clip: str, words: bool, options: dict[str, Any] | None, tmp_path: Path
) -> None:
    result = model.transcribe(clip, temperature=0, word_timestamps=words)
    for folder, library in (("ours", get_writer), ("theirs", openai_writer)):
        (tmp_path / folder).mkdir()
        library("all", str(tmp_path / folder))(result, clip, options)
    written = {file.name: file.read_text() for file in (tmp_path / "ours").iterdir()}
    assert written == {file.name: file.read_text() for file in (tmp_path / "theirs").iterdir()}
    assert {Path(name).suffix for name in written} == {".txt", ".vtt", ".srt", ".tsv", ".json"}
    get_writer("srt", str(tmp_path))(result, clip, **(options or {}))
    assert (tmp_path / f"{Path(clip).stem}.srt").read_text() == written[f"{Path(clip).stem}.srt"]
    by_hand = {"segments": [{"start": 0.0, "end": 1.5, "text": " Hello.", "mine": 1}]}
    for folder, library in (("ours", get_writer), ("theirs", openai_writer)):
        library("srt", str(tmp_path / folder))(by_hand, "by_hand.wav", {})
    assert (tmp_path / "ours" / "by_hand.srt").read_text() == (tmp_path / "theirs" / "by_hand.srt").read_text()
    with pytest.raises(ParameterError, match="at least 0 seconds, not -5"):
        get_writer("vtt", str(tmp_path))({"segments": [{"start": -5, "end": 6, "text": "a"}]}, "below.wav")
    with pytest.raises(ParameterError, match=r"no format 'str'\. Did you mean 'srt'"):
        get_writer("str", str(tmp_path))


def test_other_names_replace_the_defaults_of_the_door(model: ours.Whisper, clip: str) -> None:
    """A default of openai-whisper's signature does not count as given."""
    doubtful = {"compression_ratio_threshold": 0.01, "word_timestamps": False}
    result = model.transcribe(clip, log_prob_threshold=-2.0, temperature_increment_on_fallback=0.5, **doubtful)
    assert {segment["temperature"] for segment in result["segments"]} == {1.0}
    result = model.transcribe(clip, condition_on_prev_tokens=False, num_beams=2, temperature=(0.0, 0.4), **doubtful)
    assert {segment["temperature"] for segment in result["segments"]} == {0.4}
    with pytest.raises(ParameterError, match="temperature holds all temperatures to try; leave temperature_increment"):
        model.transcribe(clip, temperature=(0.0, 0.4), temperature_increment_on_fallback=0.2)
    for increment in (0, "x", True):
        with pytest.raises(
            ParameterError, match=r"temperature_increment_on_fallback must be a number of at least 0\.01"
        ):
            model.transcribe(clip, temperature=0.0, temperature_increment_on_fallback=increment)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length_penalty": -5}, "length_penalty must be a number of at least 0"),
        ({"sample_len": 0}, "sample_len must be an integer of at least 1"),
        ({"num_beams": -1}, "num_beams must be an integer of at least 1"),
        ({"beam_size": 65}, "beam_size=65 needs 65 sequences at a time"),
        ({"fp16": "x"}, "fp16 must be True or False, not 'x'"),
    ],
)
def test_an_error_names_the_option_as_it_was_given(
    model: ours.Whisper, clip: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=f"^{message}"):
        model.transcribe(clip, **options)
    if "beam" not in message:
        with pytest.raises(ParameterError, match=f"^{message}"):
            ours.DecodingOptions(**options).checked()
