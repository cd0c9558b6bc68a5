"""The language that is written, apart from the one that is spoken; and families that do not detect what is spoken."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import RATE

from transept import Engine, Transcriber
from transept.errors import ParameterError
from transept.multimodal.audio import load_audio
from transept.registry.spec import SpeechSpec

TARGETS = ("en", "de")


@pytest.fixture(scope="module")
def transcriber(base_dir: Path) -> Transcriber:
    return Transcriber(base_dir)


@pytest.fixture(scope="module")
def french(speech_dir: Path) -> np.ndarray:
    return load_audio(speech_dir / "languages" / "fr.flac", RATE)[: 12 * RATE]


@pytest.fixture(scope="module")
def english(speech_dir: Path) -> np.ndarray:
    return load_audio(speech_dir / "languages" / "en.flac", RATE)[: 12 * RATE]


@pytest.fixture
def declared(transcriber: Transcriber) -> Callable[..., Transcriber]:
    """Whisper base as families of another kind would declare it: with other fields of its SpeechSpec."""

    def make(**fields: Any) -> Transcriber:
        engine = Engine(transcriber.engine.config.model)
        speech = engine.spec.speech
        assert isinstance(speech, SpeechSpec)
        engine.spec = dataclasses.replace(engine.spec, speech=dataclasses.replace(speech, **fields))
        return Transcriber.from_engine(engine)

    return make


@pytest.mark.sampled(4)
@pytest.mark.parametrize("spoken", [None, "fr"])
@pytest.mark.parametrize("batched", [False, True])
def test_english_is_whispers_task_translate(
    transcriber: Transcriber, french: np.ndarray, spoken: str | None, batched: bool
) -> None:
    options = {"language": spoken, "temperature": 0.0, "batched": batched, "word_timestamps": True}
    translated = transcriber.transcribe(french, task="translate", **options)
    assert translated.text != transcriber.transcribe(french, **options).text
    for asked in ({"target_language": "en"}, {"target_language": "English", "task": "translate"}):
        transcript = transcriber.transcribe(french, **asked, **options)
        assert (transcript.segments, transcript.language) == (translated.segments, "fr")
        assert [transcriber.model.task(each.language, each.options) for each in (transcript, translated)] == [
            "translate"
        ] * 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spoken", [None, "en"])
def test_what_is_spoken_already_is_transcribed(
    transcriber: Transcriber, english: np.ndarray, spoken: str | None
) -> None:
    plain = transcriber.transcribe(english, language="en", temperature=0.0)
    transcript = transcriber.transcribe(english, language=spoken, target_language="en-US", temperature=0.0)
    assert transcript.segments == plain.segments
    assert {transcriber.model.task("en", each.options) for each in (transcript, plain)} == {"transcribe"}
    german = transcriber.transcribe(english, language="de", temperature=0.0)
    assert transcriber.transcribe(english, language="de", target_language="German", temperature=0.0).segments == (
        german.segments
    )


def test_transcribe_and_another_target_language_contradict_each_other(
    transcriber: Transcriber, english: np.ndarray
) -> None:
    for options in ({}, {"language": "fr"}, {"multilingual": True}):
        with pytest.raises(
            ParameterError, match="target_language='English' asks for another one; leave one of them out"
        ):
            transcriber.transcribe_many([], task="transcribe", target_language="English", **options)
    assert transcriber.transcribe_many([], task="transcribe", target_language="English", language="en")


def test_what_a_model_does_not_write_is_refused(transcriber: Transcriber, tiny_en_dir: Path) -> None:
    assert transcriber.supported_target_languages == ["en"]
    for options in ({}, {"language": "fr"}, {"task": "translate"}, {"multilingual": True}):
        with pytest.raises(
            ParameterError, match=r"does not translate to 'de'; target_language may be en, or the spoken language if"
        ):
            transcriber.transcribe_many([], target_language="de", **options)
    with pytest.raises(ParameterError, match="target_language must be text, not 5"):
        transcriber.transcribe_many([], target_language=5)
    only_english = Transcriber(tiny_en_dir)
    assert only_english.supported_target_languages == []
    with pytest.raises(ParameterError, match="no target languages, so 'de' is not one; leave target_language out"):
        only_english.transcribe_many([], target_language="de")
    assert only_english.transcribe_many([], target_language="en", language="English")
    for spoken, advice in (("German", "'German'; use a multilingual one, or leave"), ("Klingon", "'Klingon'; leave")):
        for options in ({}, {"target_language": "English"}):
            with pytest.raises(ParameterError, match=f"English only, not {advice} language out if English is spoken"):
                only_english.transcribe_many([], language=spoken, **options)


def test_a_family_is_told_the_target_language(declared: Callable[..., Transcriber], french: np.ndarray) -> None:
    told = []

    def decoder_prompt(view: Any, *, language: Any, task: str, timestamps: bool, target_language: Any) -> list[int]:
        told.append((language, task, target_language))
        return [50258, *([] if language is None else [languages[language]]), 50359, 50363]

    transcriber = declared(target_languages=lambda view: TARGETS, decoder_prompt=decoder_prompt)
    languages = transcriber.model.languages
    options = {"temperature": 0.0, "without_timestamps": True, "max_new_tokens": 2}
    asked = {
        ("fr", "translate", "de"): {"target_language": "German"},
        ("fr", "translate", "en"): {"task": "translate"},
        ("fr", "transcribe", None): {},
        ("de", "transcribe", None): {"language": "de", "target_language": "de"},
        ("de", "translate", "de"): {"language": "de", "target_language": "de", "task": "translate"},
    }
    for expected, given in asked.items():
        transcriber.transcribe(french, **given, **options)
        assert told[-1] == expected
    with pytest.raises(ParameterError, match="does not translate to 'fr'; target_language may be en, de"):
        transcriber.transcribe(french, target_language="fr")


@pytest.mark.slow
def test_a_family_that_needs_the_language_says_so_first(
    declared: Callable[..., Transcriber], transcriber: Transcriber, french: np.ndarray
) -> None:
    def languages(view: Any) -> dict[str, int]:
        return {code: transcriber.model.languages[code] for code in ("en", "fr")}

    blind = declared(language_prompt=None, languages=languages)
    for options in ({}, {"batched": True}, {"target_language": "en"}):
        with pytest.raises(
            ParameterError, match="does not detect which language is spoken; give language, one of en, fr"
        ):
            blind.transcribe_many([], **options)
    with pytest.raises(ParameterError, match="does not detect which language is spoken; leave multilingual=True out"):
        blind.transcribe_many([], multilingual=True)
    with pytest.raises(ParameterError, match="does not detect which language is spoken, so there is nothing to detect"):
        blind.detect_language(french)
    expected = transcriber.transcribe(french, language="fr", temperature=0.0)
    found = blind.transcribe(french, language="French", temperature=0.0)
    assert (found.segments, found.language_probability) == (expected.segments, None)


@pytest.mark.slow
def test_a_family_that_need_not_be_told_the_language(declared: Callable[..., Transcriber], french: np.ndarray) -> None:
    told, sound = [], french[: 4 * RATE]

    def decoder_prompt(view: Any, *, language: Any, task: str, timestamps: bool, target_language: Any) -> list[int]:
        told.append(language)
        return [50258, 50259, 50359, 50363]

    spoken = {"en": None, "fr": None}
    hears = declared(language_prompt=None, languages=lambda view: spoken, decoder_prompt=decoder_prompt)
    options = {"temperature": 0.0, "max_new_tokens": 2}
    assert hears.transcribe(sound, **options).language == "und"
    assert hears.transcribe(sound, **options, batched=True).language == "und"
    assert {*told} == {None}
    assert hears.transcribe(sound, language="fr", **options).language == "fr"
    assert told[-1] == "fr"
    one = declared(language_prompt=None, languages=lambda view: {"fr": 50265})
    assert one.transcribe(sound, **options).language == "fr"
