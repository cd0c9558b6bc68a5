"""Translations of speech where the first model that is served does not translate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess

from transept import Transcriber

PATH = "/v1/audio/translations"


@pytest.fixture(scope="module")
def two_models(tiny_en_dir: Path, base_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    models = (f"tiny.en={tiny_en_dir}", f"base={base_dir}")
    process = ServeProcess(tmp_path_factory.mktemp("server"), *models)
    yield process.wait_until_ready()
    process.stop()


@pytest.fixture(scope="module")
def spanish(speech_dir: Path) -> Path:
    return speech_dir / "languages" / "es.flac"


@pytest.fixture(scope="module")
def english(base_dir: Path, spanish: Path) -> str:
    with Transcriber(base_dir) as transcriber:
        return transcriber.transcribe(spanish, task="translate", temperature=0).text


def ask(server: ServeProcess, clip: Path, path: str = PATH, **fields: Any) -> Any:
    answer = httpx.post(
        server.url + path, files={"file": clip.read_bytes()}, data={"temperature": "0", **fields}, timeout=PATIENCE
    )
    return answer.json()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (PATH, {}),
        (PATH, {"model": "whisper-1"}),
        (PATH, {"model": ""}),
        ("/v1/audio/transcriptions", {"task": "translate"}),
    ],
    ids=str,
)
def test_the_first_model_that_translates_does(
    path: str, fields: dict[str, str], two_models: ServeProcess, spanish: Path, english: str
) -> None:
    assert ask(two_models, spanish, path, **fields)["text"] == english


def test_a_model_that_is_named_is_the_one_that_is_asked(two_models: ServeProcess, spanish: Path) -> None:
    error = ask(two_models, spanish, model="tiny.en")["error"]
    assert "multilingual" in error["message"]


def test_without_a_translation_the_first_model_transcribes(two_models: ServeProcess, speech_dir: Path) -> None:
    clip = speech_dir / "librivox" / "austen-0870.flac"
    answer = ask(two_models, clip, "/v1/audio/transcriptions", response_format="verbose_json")
    assert answer["text"].startswith("And Mr. John Dashwood")
    assert "spoken_language" not in answer
    assert answer["language_probabilities"] == {}  # of tiny.en, which detects none


def test_its_language_is_english_and_the_spoken_one_stands_beside_it(two_models: ServeProcess, spanish: Path) -> None:
    answer = ask(two_models, spanish, response_format="verbose_json")
    assert (answer["task"], answer["language"], answer["spoken_language"]) == ("translate", "english", "spanish")
