"""What the arguments of ``transept transcribe`` mean as options of a transcription."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transept.cli import main, transcribe
from transept.cli.parser import Parser
from transept.cli.transcribe_options import (
    FORMATS,
    SUBTITLES,
    check,
    formats,
    speech_engine,
    transcription_options,
)
from transept.errors import ParameterError
from transept.multimodal import channels
from transept.options import declared
from transept.speech import options
from transept.speech.options import TranscriptionOptions
from transept.speech.output import writers
from transept.speech.vad.options import VadOptions

PARTS = dataclasses.fields(VadOptions)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = Parser()
    transcribe.add_parser(parser.add_subparsers())
    return parser.parse_args(["transcribe", "talk.flac", *arguments])


def test_names_that_the_command_lists_by_itself_are_the_librarys() -> None:
    """It knows them without NumPy, which `--help` need not wait for."""
    assert declared(TranscriptionOptions)["channel"].choices == channels.CHANNELS
    assert declared(TranscriptionOptions)["mode"].choices == options.MODES
    assert declared(TranscriptionOptions)["task"].choices == options.TASKS
    assert {*writers.FORMATS, *writers.BINARY} == {*FORMATS}
    assert writers.SUBTITLES == SUBTITLES


def test_every_option_of_a_transcription_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    names = set(declared(TranscriptionOptions))
    with pytest.raises(SystemExit) as end:
        parsed("--help-all")
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert [name for name in sorted(names) if f"--{name.replace('_', '-')}" not in printed] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--vad-options threshold=0.4,speech-pad-ms=200", {"threshold": 0.4, "speech_pad_ms": 200}),
        ("--vad_parameters threshold=0.4", {"threshold": 0.4}),
        ('--vad-options {"threshold":0.4}', {"threshold": 0.4}),
        ("--vad-options threshold=0.4 --vad-speech-pad-ms 200", {"threshold": 0.4, "speech_pad_ms": 200}),
        *((f"--vad-{each.name.replace('_', '-')} 0.5", {each.name: 0.5}) for each in PARTS if each.name[0] != "m"),
    ],
)
def test_what_counts_as_silence(arguments: str, expected: dict[str, Any]) -> None:
    assert transcription_options(parsed(*arguments.split())) == {"vad_options": expected}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--vad-options threshold", "must be name=value,... or a JSON object, not 'threshold'"),
        ("--vad-options [1]", "must be name=value,... or a JSON object"),
        ("--vad-options threshold=much", "must be a number above 0 and below 1, not 'much'"),
        ("--vad-options threshhold=1", "--vad-options has no 'threshhold'. Did you mean 'threshold'"),
        (
            "--vad-options threshold=0.4 --vad-threshold 0.3",
            "--vad-options and --vad-threshold are the same option: give one of them",
        ),
    ],
)
def test_what_is_no_silence(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["transcribe", "talk.flac", *arguments.split()])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


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
        ("--word_timestamps False", {}),
        ("--word-timestamps=True --batched True --vad False", {"word_timestamps": True, "batched": True}),
        ("--batched --no_condition_on_previous_text", {"batched": True, "condition_on_previous_text": False}),
        (
            "--no-suppress-blank False --word_timestamps --vad",
            {"suppress_blank": True, "word_timestamps": True, "vad": True},
        ),
        ("--initial_prompt True --hotwords False", {"initial_prompt": "True", "hotwords": "False"}),
        ("--keywords Ada,Grace --keyword_boost 3", {"keywords": "Ada,Grace", "keyword_boost": 3.0}),
        ("--patience 1.5", {"patience": 1.5}),
        ("--chunk_length 10 --suppress_numerals True", {"chunk_length": 10.0, "suppress_numerals": True}),
        (r"--suppress-regex [0-9]+", {"suppress_regex": "[0-9]+"}),
        ("--language auto", {"language": "auto"}),
        ("--no-condition-on-previous-text", {"condition_on_previous_text": False}),
        ("--condition_on_previous_text False", {"condition_on_previous_text": False}),
        ("--task translate --language German", {"task": "translate", "language": "German"}),
        ("--target-language en --language fr", {"target_language": "en", "language": "fr"}),
        ("--temperature 0.2", {"temperature": (0.2, 0.4, 0.6, 0.8, 1.0)}),
        ("--temperature 0 --temperature_increment_on_fallback None", {"temperature": (0.0,)}),
        ("--temperature-increment-on-fallback 0.5", {"temperature": (0.0, 0.5, 1.0)}),
        ("--temperature 0,0.5", {"temperature": (0.0, 0.5)}),
        ("--logprob_threshold None --no-speech-threshold 0.5", {"logprob_threshold": None, "no_speech_threshold": 0.5}),
        ("--suppress_tokens -1", {"suppress_tokens": (-1,)}),
        ("--suppress-tokens=-1,50", {"suppress_tokens": (-1, 50)}),
        ("--suppress_tokens None", {"suppress_tokens": ()}),
        ("--clip_timestamps 0,4.5", {"clip_timestamps": "0,4.5"}),
        (
            "--vad --vad_threshold 0.3 --vad-speech-pad-ms 100",
            {"vad": True, "vad_options": VadOptions(threshold=0.3, speech_pad_ms=100)},
        ),
    ],
)
def test_arguments_are_the_options_of_their_names(arguments: str, expected: dict[str, Any]) -> None:
    given = transcription_options(parsed(*arguments.split()))
    assert given.keys() == expected.keys()
    assert TranscriptionOptions(**given) == TranscriptionOptions(**expected)


@pytest.mark.parametrize(
    "layout",
    [
        "--highlight_words True",
        "--max-line-width 40",
        "--max-line-width 40 --max-line-count 2",
        "--max_words_per_line=3",
    ],
)
def test_a_layout_of_subtitles_finds_the_times_of_words(layout: str) -> None:
    given = parsed("-f", "srt", *layout.split())
    check(given.parser, given)
    assert transcription_options(given) == {"word_timestamps": True}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        ("--batch_size 8", {"max_num_seqs": 24}),  # with three beams
        ("--batch-size 8 --quality fast", {"max_num_seqs": 8}),
        ("--batch-size 8 --beam_size 5", {"max_num_seqs": 40}),
        ("--batch-size 8 --patience 2", {"max_num_seqs": 40}),
        ("--batch-size 1", {"max_num_seqs": 5}),  # as many as best_of, which a fallback draws
        ("--batch-size 1 --best-of 1", {"max_num_seqs": 3}),
        ("--batch-size 8 --keywords Ada", {"max_num_seqs": 48}),
        ("--batch-size 8 --keywords Ada --quality fast", {"max_num_seqs": 32}),  # beams that follow keywords
        ("--batch-size 8 --keywords Ada --beam_size 5", {"max_num_seqs": 64}),
    ],
)
def test_arguments_for_the_engine(arguments: str, expected: dict[str, Any]) -> None:
    given = parsed(*arguments.split())
    assert speech_engine(given, transcription_options(given)) == expected


def test_a_file_of_keywords_adds_to_those_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "keywords.txt"
    file.write_text("\ufeffAda Lovelace\n\n Norland, the house \t2.5\nDashwood\n", encoding="utf-8")
    given = transcription_options(parsed("--keywords-file", str(file), "--keywords", "Margaret"))
    expected = (("Margaret", None), ("Ada Lovelace", None), ("Norland, the house ", 2.5), ("Dashwood", None))
    assert given["keywords"] == tuple((term.strip(), boost) for term, boost in expected)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "keywords_file: cannot read"),
        (b"Ada\tloud\n", "the boost 'loud' of 'Ada' is not a number"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b"Ada\t-1\n", "the boost -1.0 of 'Ada'"),
        (b"Ada\n\t5\n", "holds an empty term"),
    ],
)
def test_a_file_that_holds_no_keywords_is_bad_usage(content: bytes | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "keywords.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ParameterError, match=message):
        transcription_options(parsed("--keywords-file", str(file)))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("all", ("txt", "srt", "vtt", "tsv", "json")),
        ("ass,all,srt", ("ass", "txt", "srt", "vtt", "tsv", "json")),
        ("SRT, vtt,srt", ("srt", "vtt")),
    ],
)
def test_formats_are_named_once_or_all(names: str, expected: tuple[str, ...]) -> None:
    assert formats(names) == expected


def test_the_temperatures_of_the_command_are_those_of_the_library() -> None:
    given = transcription_options(parsed("--temperature", "0"))
    assert TranscriptionOptions(**given).temperatures == TranscriptionOptions().temperatures


@pytest.mark.parametrize("first", [0.0, 0.3, 0.95, 1.0])
@pytest.mark.parametrize("increment", [0.01, 0.1, 0.2, 0.35, 1.0, 5.0, 1e300])
def test_temperatures_rise_as_openai_whispers_do(first: float, increment: float) -> None:
    given = transcription_options(
        parsed("--temperature", str(first), "--temperature-increment-on-fallback", str(increment))
    )
    np.testing.assert_allclose(given["temperature"], np.arange(first, 1.0 + 1e-6, increment), rtol=0, atol=1e-6)


@pytest.mark.parametrize("increment", ["0", "-0.2", "nan", "inf", "-inf", "1e-7", "1e-300", "0.009"])
def test_an_increment_that_would_never_end_is_bad_usage(increment: str, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--temperature-increment-on-fallback", "--temperature_increment_on_fallback"):
        with pytest.raises(SystemExit, match="2"):
            main(["transcribe", "talk.wav", "--model", "no-such-model", f"{flag}={increment}"])
        error = capsys.readouterr().err
        assert "--temperature-increment-on-fallback must be a number of at least 0.01, not" in error


@pytest.mark.parametrize("first", ["-1", "nan", "inf", "-1e300"])
def test_a_first_temperature_that_is_none_is_bad_usage(first: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["transcribe", "talk.wav", "--model", "no-such-model", f"--temperature={first}"])
    assert "temperature must be numbers of at least 0" in capsys.readouterr().err


def test_the_number_of_temperatures_is_bounded() -> None:
    assert len(TranscriptionOptions(temperature=tuple(np.linspace(0, 1, 101))).temperatures) == 101
    with pytest.raises(ParameterError, match="temperature holds 102 numbers"):
        TranscriptionOptions(temperature=np.linspace(0, 1, 102))


def test_files_of_words_are_read(tmp_path: Path) -> None:
    words, terms = tmp_path / "words.txt", tmp_path / "terms.txt"
    words.write_text("# names\nDashwood\t2.5\n\n Norland \n")
    terms.write_text("dash wood = Dashwood\n")
    found = transcription_options(parsed("--hotwords-file", str(words), "--glossary", str(terms)))
    assert found["hotwords"] == "Dashwood, Norland"
    assert found["glossary"] == (("dash wood", "Dashwood"),)
    both = transcription_options(parsed("--hotwords", "Anna", "--hotwords-file", str(words)))
    assert both["hotwords"] == "Anna, Dashwood, Norland"
    for option in ("--hotwords-file", "--glossary"):
        with pytest.raises(ParameterError, match=r"cannot read .*absent\.txt.*: No such file"):
            transcription_options(parsed(option, str(tmp_path / "absent.txt")))
