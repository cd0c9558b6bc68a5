"""Language: detection against openai-whisper, names and codes, and what a model of one language does."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from openai_reference import openai_model
from recordings import RATE, joined
from whisper.audio import N_FRAMES, N_SAMPLES, log_mel_spectrogram, pad_or_trim

from transept import Transcriber
from transept.errors import ParameterError


@pytest.fixture(scope="module")
def transcriber(base_dir: Path) -> Transcriber:
    return Transcriber(base_dir)


@pytest.fixture(scope="module")
def prompts(speech_dir: Path) -> np.ndarray:
    return joined(speech_dir / "prompts-en", count=10)


def test_probabilities_are_openai_whispers(
    transcriber: Transcriber, base_dir: Path, speech_dir: Path, prompts: np.ndarray
) -> None:
    reference = openai_model(base_dir)
    for waveform in (joined(speech_dir / "librivox"), prompts[: 2 * RATE]):
        mel = pad_or_trim(log_mel_spectrogram(waveform, 80, padding=N_SAMPLES), N_FRAMES)
        _, expected = reference.detect_language(mel)
        code, probability, probabilities = transcriber.detect_language((waveform, RATE))
        assert probabilities == pytest.approx(expected, abs=1e-4)
        assert code == max(expected, key=expected.get)
        assert probability == probabilities[code]


def test_a_transcript_has_the_probabilities_of_all_languages(transcriber: Transcriber, prompts: np.ndarray) -> None:
    audio = prompts[5 * RATE : 10 * RATE]
    transcript = transcriber.transcribe(audio, temperature=0.0)
    probabilities = transcript.language_probabilities
    assert set(probabilities) == set(transcriber.supported_languages)
    assert list(probabilities.values()) == sorted(probabilities.values(), reverse=True)
    assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-4)
    assert next(iter(probabilities.items())) == (transcript.language, transcript.language_probability)
    assert transcriber.stream(audio).info.language_probabilities == pytest.approx(probabilities, abs=1e-6)
    assert transcriber.transcribe(audio, language="en", temperature=0.0).language_probabilities == {}


def test_supported_languages_are_faster_whispers(transcriber: Transcriber, tiny_en_dir: Path) -> None:
    theirs = pytest.importorskip("faster_whisper.tokenizer")._LANGUAGE_CODES
    assert set(theirs) - set(transcriber.supported_languages) == {"yue"}  # of large-v3 alone
    assert set(transcriber.supported_languages) <= set(theirs)
    assert Transcriber(tiny_en_dir).supported_languages == ["en"]


def test_detection_three_temperatures_and_words_run_the_encoder_once(
    transcriber: Transcriber, prompts: np.ndarray
) -> None:
    runs, hits = transcriber.engine.num_encoder_runs, transcriber.engine.num_encoder_hits
    transcript = transcriber.transcribe(
        (prompts[: 5 * RATE], RATE),
        temperature=(0.0, 0.2, 0.4),
        best_of=2,
        logprob_threshold=-0.01,
        no_speech_threshold=None,
        word_timestamps=True,
    )
    assert {segment.temperature for segment in transcript.segments} == {0.4}
    assert transcriber.engine.num_encoder_runs == runs + 1
    assert transcriber.engine.num_encoder_hits == hits + 4
    assert transcript.language == "en"
    assert 0.5 < transcript.language_probability < 1.0


def test_the_language_is_that_of_the_first_speech(transcriber: Transcriber, speech_dir: Path) -> None:
    waveform, rate = soundfile.read(speech_dir / "languages" / "fr.flac", dtype="float32")
    late = np.concatenate([np.zeros(60 * rate, np.float32), waveform])
    code, probability, _ = transcriber.detect_language((late, rate))
    assert code == "fr"
    assert probability > 0.9


def test_the_text_of_a_short_clip_decides_on_a_language_in_doubt(transcriber: Transcriber, speech_dir: Path) -> None:
    clip = speech_dir / "short" / "es-password.flac"
    by_sound = transcriber.detect_language(clip, mode="sequential")
    by_text = transcriber.detect_language(clip)
    assert by_sound.language != "es"
    assert by_text.language == "es"
    assert by_text.probability == by_text.probabilities["es"] < by_sound.probability
    transcript = transcriber.transcribe(clip)
    assert (transcript.language, transcript.text[:17]) == ("es", "Por favor ingrese")
    assert transcriber.transcribe(clip, mode="sequential").language == by_sound.language


def test_names_and_codes_in_any_case(transcriber: Transcriber, prompts: np.ndarray) -> None:
    audio = (prompts[: 5 * RATE], RATE)
    by_code = transcriber.transcribe(audio, language="de", temperature=0.0)
    assert by_code.language == "de"
    assert by_code.language_probability is None
    assert transcriber.transcribe(audio, language="German", temperature=0.0).segments == by_code.segments
    for code, names in {
        "de": ("german", "DE", " GERMAN ", "de-DE", "de_AT"),
        "es": ("Castilian", "es-419"),
        "en": ("en-US", "EN_gb"),
        "zh": ("zh-CN", "zh-Hant-TW", "zh_Hans", "cmn"),
        "no": ("nb", "nb-NO"),
    }.items():
        for name in names:
            assert transcriber.model.language_code(name) == code
    assert transcriber.transcribe(audio, language="auto", temperature=0.0).language == "en"


@pytest.mark.parametrize(
    ("language", "hint"),
    [
        ("germn", "Did you mean 'german'"),
        ("dee", "Did you mean 'de'"),
        ("jp", "Did you mean 'ja'"),
        ("spa", "Did you mean 'es'"),
        ("swe", "Did you mean 'sv'"),
        ("Deutsch", "Did you mean 'de'"),
        ("austrian", "Known: "),
        ("en,de", "Known: "),
        ("Klingon", "Known: "),
        ("automatic", "Known: "),
        ("de-", "Did you mean 'de'"),
        ("xx-DE", "Known: "),
    ],
)
def test_an_unknown_language_is_refused_with_the_nearest(transcriber: Transcriber, language: str, hint: str) -> None:
    with pytest.raises(ParameterError, match=hint):
        transcriber.transcribe_many([], language=language)


def test_many_recordings_are_a_list(transcriber: Transcriber) -> None:
    with pytest.raises(ParameterError, match=r"takes a list of recordings; for a single one call transcribe\(\)"):
        transcriber.transcribe_many("talk.flac")
    for several, message in (
        ({"a": "talk.flac"}, "not a dict, whose keys or values are meant"),
        ({"talk.flac", "b.flac"}, "not a set, which has no order"),
        (frozenset(["talk.flac"]), "not a set"),
    ):
        with pytest.raises(ParameterError, match=message):
            transcriber.transcribe_many(several)
    names = {"absent.flac": 1, "missing.flac": 2}
    told = [str(error) for error in transcriber.transcribe_many(names.keys())]
    assert ["absent" in told[0], "missing" in told[1]] == [True, True]


def test_every_window_may_have_a_language_of_its_own(transcriber: Transcriber, prompts: np.ndarray) -> None:
    audio = (prompts[: 8 * RATE], RATE)
    transcript = transcriber.transcribe(audio, multilingual=True, temperature=0.0)
    plain = transcriber.transcribe(audio, temperature=0.0)
    assert {segment.language for segment in transcript.segments} == {"en"}
    assert {segment.language for segment in plain.segments} == {None}
    assert [segment.text for segment in transcript.segments] == [segment.text for segment in plain.segments]
    assert transcript.language_probability == plain.language_probability


def test_more_windows_decide_when_none_is_sure(transcriber: Transcriber, prompts: np.ndarray) -> None:
    audio = (np.concatenate([np.zeros(30 * RATE, np.float32), prompts[: 30 * RATE]]), RATE)
    one, _, _ = transcriber.detect_language(audio, language_detection_threshold=1.0)
    both = transcriber.detect_language(audio, language_detection_segments=2, language_detection_threshold=0.5)
    first_of_two = transcriber.detect_language(audio, language_detection_segments=2, language_detection_threshold=0.0)
    assert both[0] == "en"
    assert first_of_two[0] == one


def test_a_model_of_one_language(tiny_en_dir: Path, prompts: np.ndarray) -> None:
    transcriber = Transcriber(tiny_en_dir)
    audio = (prompts[: 5 * RATE], RATE)
    assert transcriber.model.language_code("en-GB") == "en"
    for language in (None, "auto", "en", "English", "en-US"):
        transcript = transcriber.transcribe(audio, language=language)
        assert (transcript.language, transcript.language_probability) == ("en", None)
    with pytest.raises(ParameterError, match=r"has no language 'Englsh'\. Did you mean 'english'"):
        transcriber.transcribe_many([], language="Englsh")
    for options in ({"language": "German"}, {"task": "translate"}, {"multilingual": True}):
        with pytest.raises(ParameterError, match=r"English|one language"):
            transcriber.transcribe_many([], **options)
    with pytest.raises(ParameterError, match=r'nothing to detect: load a multilingual model, such as "base"$'):
        transcriber.detect_language(audio)
