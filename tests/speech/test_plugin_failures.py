"""What a family's SpeechSpec raises names the plugin and the function, and ends one recording alone."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import RATE, clip

from transept import Engine, Transcriber, Transcript
from transept.errors import PluginFailedError

NOW = ("languages", "tokens", "window_seconds", "target_languages", "alignment_heads")  # as it is loaded
LATER = ("decoder_prompt", "features", "language_prompt", "timestamp_rules", "unspoken_tokens")


@pytest.fixture(scope="module")
def engine(base_dir: Path) -> Engine:
    return Engine(base_dir)


@pytest.fixture
def declared(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Transcriber]:
    """Whisper base with other fields of its SpeechSpec."""

    def make(**fields: Any) -> Transcriber:
        speech = dataclasses.replace(engine.spec.speech, **fields)
        monkeypatch.setattr(engine, "spec", dataclasses.replace(engine.spec, speech=speech))
        return Transcriber.from_engine(engine)

    return make


def broken(*given: Any, **named: Any) -> Any:
    raise ZeroDivisionError("this is broken")


@pytest.fixture(scope="module")
def speech(speech_dir: Path) -> np.ndarray:
    return clip(sorted((speech_dir / "librivox").glob("*.flac"))[0])[: 4 * RATE]


@pytest.mark.parametrize("name", [*NOW, *LATER])
def test_a_function_that_raises_is_named(declared: Callable[..., Transcriber], speech: np.ndarray, name: str) -> None:
    def call() -> Any:
        return declared(**{name: broken}).transcribe(speech, temperature=0.0, max_new_tokens=8)

    named = rf'^speech\.{name} of plugin family "whisper" \(plugin "whisper" of transept \S+\) raised ZeroDivisionError'
    with pytest.raises(PluginFailedError, match=named) as raised:
        call()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_reference_that_cannot_be_imported_is_named(declared: Callable[..., Transcriber]) -> None:
    transcriber = declared(features="transept_nothing.features:make")
    with pytest.raises(PluginFailedError, match=r'"transept_nothing.features:make" cannot be imported: ModuleNotFound'):
        transcriber.transcribe(np.zeros(RATE, np.float32))


def test_one_recording_fails_and_no_other(
    declared: Callable[..., Transcriber], engine: Engine, speech: np.ndarray
) -> None:
    make = engine.spec.speech.features

    def features(waveform: np.ndarray, view: Any, device: str) -> Any:
        from transept.registry.spec import resolve

        if len(waveform) == RATE:
            raise ZeroDivisionError("this is broken")
        return resolve(make)(waveform, view, device)

    options = {"language": "en", "temperature": 0.0, "max_new_tokens": 8, "mode": "sequential"}
    expected = Transcriber.from_engine(engine).transcribe(speech, **options)
    both = [np.zeros(RATE, np.float32), speech]
    failed, heard = declared(features=features).transcribe_many(both, **options)
    assert isinstance(failed, PluginFailedError)
    assert "speech.features of plugin family" in str(failed)
    assert isinstance(heard, Transcript)
    assert heard.segments == expected.segments
