"""Voice commands: real speech with grammars, through Python, the command and the fields of a form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from transept import Transcriber
from transept.cli import main
from transept.errors import ParameterError
from transept.serving.http.transcription_fields import BODY
from transept.speech.options import TranscriptionOptions

pytest.importorskip("llguidance", reason="needs the extra guided")

COMMANDS = [
    "Please enter your password.",
    "Please enter the conference pin number.",
    "Please check the number and dial again.",
    "Open the door.",
]
GBNF = """
# A leading blank is accepted, as in whisper.cpp's grammars.
root ::= init " Please " (enter | check) "."
enter ::= "enter " ("your " | "the ") thing
check ::= "check the " thing (" and dial again")?
thing ::= ("conference ")? ("pin number" | "number" | "password")
init ::= ""
"""


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.mark.parametrize("options", [{}, {"mode": "batched"}, {"mode": "sequential", "beam_size": 1}], ids=str)
def test_commands_are_understood(transcriber: Transcriber, speech_dir: Path, options: dict) -> None:
    for file, command in (("conf-getpin.flac", COMMANDS[1]), ("check-number-dial-again.flac", COMMANDS[2])):
        audio = speech_dir / "prompts-en" / file
        for guided in ({"choice": COMMANDS}, {"grammar": GBNF}):
            transcript = transcriber.transcribe(audio, guided=guided, **options)
            assert transcript.text.strip() == command
            assert len(transcript.segments) == 1


def test_words_have_times(transcriber: Transcriber, speech_dir: Path) -> None:
    audio = speech_dir / "prompts-en" / "conf-getpin.flac"
    transcript = transcriber.transcribe(audio, guided=COMMANDS, word_timestamps=True)
    words = [word for segment in transcript.segments for word in segment.words]
    assert [word.word.strip() for word in words] == COMMANDS[1].split()
    assert all(0.0 <= word.start <= word.end <= transcript.duration for word in words)


def test_suppressed_characters_may_be_a_part_of_a_form(transcriber: Transcriber, speech_dir: Path) -> None:
    guided = {"regex": r'\{"text": "[a-z ]{10,60}"\}'}
    transcript = transcriber.transcribe(speech_dir / "prompts-en" / "conf-getpin.flac", guided=guided)
    assert re.fullmatch("[a-z ]{10,60}", json.loads(transcript.text)["text"])


def test_an_invalid_form_is_refused_before_any_file_is_read(transcriber: Transcriber) -> None:
    with pytest.raises(ParameterError, match="as its grammar, which is not valid"):
        transcriber.transcribe("missing.wav", guided={"grammar": "root ::= ("})


def test_forms_of_the_command(
    tiny_en_dir: Path, speech_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "commands.gbnf").write_text(GBNF)
    audio = str(speech_dir / "prompts-en" / "conf-getpin.flac")
    given = ["--model", str(tiny_en_dir), "--beam-size", "1", "--guided-grammar"]
    assert main(["transcribe", audio, *given, f"@{tmp_path}/commands.gbnf"]) == 0
    assert capsys.readouterr().out.strip() == COMMANDS[1]
    with pytest.raises(SystemExit):
        main(["transcribe", audio, *given, f"@{tmp_path}/missing.gbnf"])
    assert "--guided-grammar: cannot read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "sent", [{"guided_choice": "stop, go"}, {"guided": '["stop", "go"]'}, {"guided": "choice=stop,go"}]
)
def test_fields_of_a_form(sent: dict[str, str]) -> None:
    fields = BODY.given({name: BODY.value_of(name, text) for name, text in sent.items()})
    assert fields.made(TranscriptionOptions) == TranscriptionOptions(guided=["stop", "go"])
