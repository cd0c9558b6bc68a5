"""What the arguments of ``transept transcribe`` mean as options of a transcription."""

import argparse
import dataclasses
from typing import Any

import pytest

from transept.cli import transcribe
from transept.cli.transcribe_options import transcription_options
from transept.speech import options
from transept.speech.options import TranscriptionOptions
from transept.speech.vad import VadOptions


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    transcribe.add_parser(parser.add_subparsers())
    return parser.parse_args(["transcribe", "talk.flac", *arguments])


def test_every_option_of_a_transcription_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    names = {name for name in TranscriptionOptions.names() if name != "vad_options"}
    names |= {f"vad_{field.name}" for field in dataclasses.fields(VadOptions)}
    with pytest.raises(SystemExit) as end:
        parsed("--help")
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert [name for name in sorted(names) if f"--{name.replace('_', '-')}" not in printed] == []


def test_what_is_not_given_is_left_to_the_defaults() -> None:
    assert transcription_options(parsed()) == {}
    assert transcribe.DEFAULT_MODEL == options.DEFAULT_MODEL


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--beam-size 5 --patience 1.5", {"beam_size": 5, "patience": 1.5}),
        ("--beam_size 5 --best_of 2", {"beam_size": 5, "best_of": 2}),
        ("--word-timestamps --batched", {"word_timestamps": True, "batched": True}),
        ("--word_timestamps True", {"word_timestamps": True}),
        ("--word_timestamps False", {"word_timestamps": False}),
        ("--no-condition-on-previous-text", {"condition_on_previous_text": False}),
        ("--condition_on_previous_text False", {"condition_on_previous_text": False}),
        ("--task translate --language German", {"task": "translate", "language": "German"}),
        ("--temperature 0.2", {"temperature": (0.2, 0.4, 0.6, 0.8, 1.0)}),
        ("--temperature 0 --temperature_increment_on_fallback None", {"temperature": (0.0,)}),
        ("--temperature-increment-on-fallback 0.5", {"temperature": (0.0, 0.5, 1.0)}),
        ("--logprob_threshold None --no-speech-threshold 0.5", {"logprob_threshold": None, "no_speech_threshold": 0.5}),
        ("--suppress_tokens -1", {"suppress_tokens": (-1,)}),
        ("--suppress-tokens=-1,50", {"suppress_tokens": (-1, 50)}),
        ("--clip_timestamps 0,4.5", {"clip_timestamps": "0,4.5"}),
        (
            "--vad --vad_threshold 0.3 --vad-speech-pad-ms 100",
            {"vad": True, "vad_options": VadOptions(threshold=0.3, speech_pad_ms=100)},
        ),
    ],
)
def test_arguments_are_the_options_of_their_names(arguments: str, expected: dict[str, Any]) -> None:
    assert transcription_options(parsed(*arguments.split())) == expected


def test_the_temperatures_of_the_command_are_those_of_the_library() -> None:
    given = transcription_options(parsed("--temperature", "0"))
    assert TranscriptionOptions(**given).temperatures == TranscriptionOptions().temperatures
