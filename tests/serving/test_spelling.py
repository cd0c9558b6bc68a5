"""A refusal names the option at fault as its reader writes it: in Python, in a command, over HTTP and in settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from serve_process import ServeProcess

from transept import SamplingParams, TranscriptionOptions
from transept.cli import main
from transept.errors import ParameterError
from transept.serving.configuration import read_settings

# Options -> the option at fault in Python, its flag, its field in a form.
RECORDINGS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"beam_size": 0}, "beam_size", "--beam-size", "beam_size"),
    ({"best_of": -1}, "best_of", "--best-of", "best_of"),
    ({"patience": -2}, "patience", "--patience", "patience"),
    ({"temperature": -1}, "temperature", "--temperature", "temperature"),
    ({"clip_timestamps": "5,2"}, "clip_timestamps", "--clip-timestamps", "clip_timestamps"),
    ({"suppress_tokens": "-7"}, "suppress_tokens", "--suppress-tokens", "suppress_tokens"),
    ({"suppress_regex": "("}, "suppress_regex", "--suppress-regex", "suppress_regex"),
    ({"encoder_context": "-1"}, "encoder_context", "--encoder-context", "encoder_context"),
    ({"audio_track": "-1"}, "audio_track", "--audio-track", "audio_track"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size", "--no-repeat-ngram-size", "no_repeat_ngram_size"),
    ({"chunk_length": 0.0}, "chunk_length", "--chunk-length", "chunk_length"),
    ({"max_new_tokens": 0}, "max_new_tokens", "--max-new-tokens", "max_new_tokens"),
    ({"vad_options": {"threshold": 3.0}}, "vad_options.threshold", "--vad-threshold", "vad_options.threshold"),
    (
        {"vad_options": {"threshold": 0.2, "neg_threshold": 0.6}},
        *(
            "vad_options.neg_threshold",
            "--vad-neg-threshold (0.6) must not be above --vad-threshold",
            "vad_options.neg",
        ),
    ),
    (
        {"mode": "sequential", "vad_options": {"speech_pad_ms": 10.0}},
        *("vad_options.speech_pad_ms", "--vad-speech-pad-ms defines silence; set --vad", "vad_options.speech_pad_ms"),
    ),
    ({"batched": True, "mode": "sequential"}, "batched", "leave it out for --mode sequential", 'mode="sequential"'),
    ({"channel": "each", "diarize": True}, "channel", "--channel each", 'channel="each"'),
    ({"multilingual": True, "language": "de"}, "language", "--language de has no meaning", 'language="de"'),
    ({"num_beams": 0}, "num_beams", "--num-beams", "num_beams"),
    ({"max_tokens": 0}, "max_tokens", "--max-tokens", "max_tokens"),
]
PROMPTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"num_beams": 0}, "num_beams", "--num-beams", "num_beams"),
    ({"beam_size": 0}, "beam_size", "--beam-size", "beam_size"),
    ({"min_tokens": 9, "max_tokens": 3}, "min_tokens", "--min-tokens 9 is over --max-tokens 3", "min_tokens=9"),
    ({"temperature": 1.0, "top_p": 2.0}, "top_p", "--top-p", "top_p"),
    ({"length_penalty": 99.0}, "length_penalty", "--length-penalty", "length_penalty"),
    ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size", "--no-repeat-ngram-size", "no_repeat_ngram_size"),
    ({"seed": -1}, "seed", "--seed", "seed"),
]


def arguments(options: dict[str, Any]) -> list[str]:
    """The options on the command line."""
    given: list[str] = []
    for name, value in options.items():
        if isinstance(value, dict):
            given += arguments({f"{name.removesuffix('_options')}_{part}": each for part, each in value.items()})
        else:
            flag = f"--{name.replace('_', '-')}"
            given += [flag] if value is True else [f"{flag}={value}"]
    return given


def fields(options: dict[str, Any]) -> dict[str, str]:
    """The options in a form."""
    given: dict[str, str] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            given |= {f"{name}[{part}]": str(each) for part, each in value.items()}
        else:
            given[name] = str(value)
    return given


def check(error: ParameterError, param: str) -> None:
    """The error knows its option, and names it as Python does."""
    assert error.param == param
    assert param in str(error)
    assert "{" not in str(error)


def told(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a command that refuses its arguments."""
    with pytest.raises(SystemExit) as done:
        main(command)
    assert done.value.code == 2
    message = capsys.readouterr().err.partition(" error: ")[2]
    assert "{" not in message
    return message


@pytest.mark.parametrize(("options", "param", "flag", "field"), RECORDINGS, ids=str)
def test_options_of_a_recording(
    options: dict[str, Any],
    param: str,
    flag: str,
    field: str,
    server: ServeProcess,
    clip: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ParameterError) as raised:
        TranscriptionOptions(**options)
    check(raised.value, param)
    message = told(["transcribe", "talk.flac", *arguments(options)], capsys)
    assert flag in message
    assert "_" not in message.partition(", not ")[0]  # no name of Python's; the value may have one
    given = {"data": fields(options), "files": {"file": (clip.name, clip.read_bytes())}}
    answer = server.client.post("/v1/audio/transcriptions", **given)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert field in error["message"]
    assert "--" not in error["message"]


@pytest.mark.parametrize(("options", "param", "flag", "field"), PROMPTS, ids=str)
def test_options_of_a_prompt(
    options: dict[str, Any],
    param: str,
    flag: str,
    field: str,
    server: ServeProcess,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(ParameterError) as raised:
        SamplingParams(**options)
    check(raised.value, param)
    message = told(["generate", "a.txt", "--model", "m", *arguments(options)], capsys)
    assert flag in message
    assert "_" not in message.partition(", not ")[0]
    answer = server.client.post("/v1/completions", json={"model": "t5", "prompt": "a", **options})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert field in error["message"]
    assert "--" not in error["message"]


def test_openais_fields_are_named_where_they_were_sent(server: ServeProcess, clip: Path) -> None:
    for sent, field in (
        ({"languages": "xx"}, "languages"),
        ({"chunking_strategy": '{"type": "server_vad", "threshold": 7}'}, "chunking_strategy.threshold"),
    ):
        files = {"file": (clip.name, clip.read_bytes())}
        error = server.client.post("/v1/audio/transcriptions", data=sent, files=files).json()["error"]
        assert error["param"] == field
        assert field in error["message"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("port", 70000, "must be an integer of at least 0 and at most 65535, not 70000"),
        ("max_running", 0, "must be an integer of at least 1, not 0"),
        ("root_path", "speech", "must be a path such as /speech, not 'speech'"),
        ("max_audio_seconds", -5.0, "must be a number above 0"),
        ("engine.tensor_parallel_size", 0, "must be an integer of at least 1"),
        ("engine.max_num_seqs", 0, "must be an integer of at least 1"),
        ("engine.limits.max_audio_bytes", -1, "must be an integer above 0"),
    ],
)
def test_settings_are_named_where_they_came_from(
    name: str, value: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _, key = name.rpartition(".")
    file = tmp_path / "server.toml"
    file.write_text(f"[{table}]\n{key} = {value!r}" if table else f"{key} = {value!r}")
    with pytest.raises(ParameterError) as raised:
        read_settings({"models": ["a"], "config": str(file)}, {})
    assert str(raised.value).startswith(f'"{file}": {name} {message}')
    if table == "engine.limits":
        return
    with pytest.raises(ParameterError) as raised:
        read_settings({"models": ["a"]}, {f"TRANSEPT_{key.upper()}": str(value)})
    assert str(raised.value).startswith(f"TRANSEPT_{key.upper()} {message}")
    if not table:
        flag = f"--{key.replace('_', '-')}"
        assert told(["serve", "a", f"{flag}={value}"], capsys).startswith(f"{flag} {message}")
