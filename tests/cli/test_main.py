"""The command line as a whole: its version, its help and its answers to mistakes."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from transept.cli import _parser, main
from transept.cli.parser import Parser, in_flags
from transept.core.jobs.offload import OffloadPool
from transept.errors import MediaError


def test_console_script_is_installed() -> None:
    script = Path(sysconfig.get_path("scripts"), "transept")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"transept {importlib.metadata.version('transept')}, ")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    assert "plugins" in capsys.readouterr().out


@pytest.mark.parametrize("many", ["*", "+"])
def test_what_a_command_is_about_may_stand_on_both_sides_of_an_option(many: str) -> None:
    parser = Parser("transept")
    parser.add_argument("first")
    parser.add_argument("numbers", nargs=many, type=int)
    parser.add_argument("--model")
    for line in ("one 1 2 3 --model m", "one --model m 1 2 3", "one 1 --model m 2 3", "--model m one 1 2 3"):
        parsed = parser.parse_args(line.split())
        assert (parsed.first, parsed.numbers, parsed.model) == ("one", [1, 2, 3], "m")
    with pytest.raises(SystemExit):
        parser.parse_args(["one", "1", "--model", "m", "two"])


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["plugin"], "Did you mean 'plugins'?"),
        (["plugins", "chekc"], "Did you mean 'check'?"),
        ([], "required"),
        (["x"], "Known: align, batch, calibrate, "),
        (["plugins", "list", "--jsn"], "transept plugins list: error: there is no option --jsn. Did you mean --json?"),
        (["transcribe", "talk.flac", "--beam-siz=5"], "there is no option --beam-siz. Did you mean --beam-size?"),
        (["transcribe", "talk.flac", "--qqq"], "there is no option --qqq. See transept transcribe --help."),
        (["summarize", "report.txt", "--max_tokns", "4"], "no option --max_tokns. Did you mean --max-new-tokens?"),
        (
            ["summarize", "report.txt", "--max_tokens", "x"],
            "argument --max-tokens: must be an integer of at least 1, not 'x'",
        ),
        (["generate", "report.txt", "--modle", "m"], "there is no option --modle. Did you mean --model?"),
        (["--versoin"], "there is no option --versoin. Did you mean --version?"),
        (
            ["transcribe", "talk.flac", "--compute_type", "int8", "--quantization", "int8"],
            "--quantization and --compute-type are the same option: give one of them",
        ),
        (["transcribe", "talk.flac", "--silero", "True"], "there is no option --silero. Here that is --vad."),
        (["plugins", "list", "twice"], "transept plugins list: error: unexpected arguments: twice."),
        (["plugins", "list", "--", "twice"], "unexpected arguments:"),
        (["transcribe", "talk.flac", "--patience", "0"], "error: --patience must be a number above 0, not 0.0"),
        (["transcribe", "talk.flac", "--temperature", "-1"], "error: --temperature must be numbers of at least 0"),
        (["transcribe", "talk.flac", "--multilingual", "--language", "de"], "error: --multilingual detects the lang"),
        (["summarize", "report.txt", "--seed", "-1"], "error: --seed must be an integer of at least 0, not -1"),
        (["translate", "report.txt", "--top-p", "2"], "error: --top-p must be a number above 0 and at most 1, not 2.0"),
        (
            ["generate", "report.txt", "--model", "m", "--temperature", "-1"],
            "error: --temperature must be a number of at least 0",
        ),
        (["read", "page.png", "--temperature", "0", "--top-p", "0.5"], "set --temperature above 0 to sample"),
        (["align", "talk.flac", __file__, "--threads", "-1"], "error: --threads must be an integer of at least 0"),
        (
            ["batch", "talk.flac", "--output", "out", "--model", "m", "--patience", "0"],
            "error: --patience must be a number above 0, not 0.0",
        ),
        (
            ["batch", "talk.flac", "--output", "out", "--model", "m", "--to-english", "--target-language", "de"],
            "--to-english and --target-language both name the language to write; leave one out",
        ),
        (
            ["serve", "m", "--port", "99999"],
            "error: --port must be an integer of at least 0 and at most 65535, not 99999",
        ),
        (["serve", "m", "--host", ""], "error: --host is empty: 127.0.0.1 serves this machine alone"),
        (["transcribe", "talk.flac", "--batch_size", "0"], "--batch-size must be an integer of at least 1, not 0"),
        (["transcribe", "talk.flac", "--stream"], "there is no option --stream. Here that is --verbose."),
        (["transcribe", "talk.flac", "--words", "True"], "there is no option --words. Here that is --word-timestamps."),
        (["transcribe", "talk.flac", "-m", "base"], "there is no option -m. Here that is --model."),
        (["transcribe", "talk.flac", "-osrt"], "there is no option -osrt. Here that is --output-format."),
        (["transcribe", "talk.flac", "-of", "talk"], "there is no option -of. Here that is --output-name."),
        (["transcribe", "talk.flac", "-tr"], "there is no option -tr. Here that is --task."),
        (["transcribe", "talk.flac", "-np"], "there is no option -np. Everything but the text goes to standard error"),
        (["transcribe", "-f", __file__], "is a file; name it without an option before it"),
        (
            ["transcribe", "talk.flac", "--suppress_tokens", "a"],
            "must be a list of token ids, such as -1 or 50,60, not 'a'",
        ),
        (["summarize", "report.txt", "-t", "4"], "there is no option -t. Here that is --threads."),
        (["summarize", "report.txt", "-l", "en"], "there is no option -l. See transept summarize --help."),
        (["transcribe", "talk.flac", "--min-speakers", "3", "--max-speakers", "2"], "--max-speakers"),
        (["transcribe", "talk.flac", "--channel", "lef"], 'Did you mean "left"?'),
        (["transcribe", "talk.flac", "--channel", "each", "--diarize"], "leave --diarize out"),
        (["transcribe", "talk.flac", "--vad=yes"], "argument --vad: must be True or False, not 'yes'"),
        (["transcribe", "--word_timestamps", "talk.flac"], "--word-timestamps: must be True or False, not 'talk.flac'"),
        (["transcribe", "talk.flac", "--detect-language", "-f", "srt"], "so --output-format has no effect"),
        (["transcribe", "talk.flac", "--detect-language", "--task", "translate"], "so --task has no effect"),
        (
            ["transcribe", "talk.flac", "--detect-language", "--batched", "--vad-threshold", "0.4"],
            "so --batched has no effect",
        ),
        *(
            (
                ["transcribe", "talk.flac", "--detect-language", *given.split()],
                f"so {given.split()[0]} has no effect; leave",
            )
            for given in (
                *("--temperature 0", "--seed 0", "--beam-size None", "--no-condition-on-previous-text"),
                *("--no-suppress-blank", "--vad-threshold 0.4", "--max-line-width 10", "--batch-size 4"),
                *("--skip-existing", "--output-name a", "--print-confidence", "--word-timestamps", "--output-dir x"),
            )
        ),
        (
            ["transcribe", "talk.flac", "--detect-language", "--channel", "each"],
            "--channel left or --channel right is one",
        ),
        (["transcribe", "talk.flac", "--detect-language", "--language", "de"], "and --language says it; leave one out"),
        (["transcribe", "talk.flac", "--num_beams", "-1"], "--num-beams must be an integer of at least 1, not -1"),
        (
            ["transcribe", "talk.flac", "--vad_parameters", "threshold=2"],
            "--vad-parameters threshold must be a number above 0 and below 1, not 2.0",
        ),
        (
            ["transcribe", "talk.flac", "--temperature", "0,0.5", "--temperature_increment_on_fallback", "0.2"],
            "--temperature holds all temperatures to try; leave --temperature-increment-on-fallback out",
        ),
        (["transcribe", "talk.flac", "--fp16", "maybe"], "argument --fp16: must be True or False, not 'maybe'"),
        (["transcribe", "talk.flac", "--verbose", "maybe"], "argument --verbose: must be True or False, not 'maybe'"),
        (
            ["summarize", "a.txt", "--presence-penalty", "2"],
            "No flag sets it: in Python it is an option of SamplingParams",
        ),
        (["serve", "--model", "base"], "there is no option --model. MODEL is written without an option before it"),
        (["models", "download", "--model", "base"], "NAME is written without an option before it"),
        (["serve", "base", "--kv-cache-dtype", "fp8"], "Set kv_cache_dtype under [engine] in the file of --config"),
        (["serve", "base", "--swap-space", "4"], "Here that is swap_bytes. Set swap_bytes under [engine]"),
        (
            ["transcribe", "talk.flac", "--align_model", "x"],
            "Times of words need no further model; set --word-timestamps",
        ),
        (
            ["serve", "base", "--max-num-seqs", "4"],
            "Set max_num_seqs under [engine] in the file of --config, or TRANSEPT_MAX_NUM_SEQS",
        ),
        (["transcribe", "talk.flac", "--beam_size", "0"], "--beam-size must be an integer of at least 1, not 0"),
        (
            ["transcribe", "talk.flac", "--mode", "sequential", "--vad-threshold", "0.3"],
            "--vad-threshold defines silence; set --vad to leave it out",
        ),
        (
            ["transcribe", "talk.flac", "--vad_threshold", "3", "--vad"],
            "--vad-threshold must be a number above 0 and below 1, not 3.0",
        ),
        (
            ["transcribe", "talk.flac", "--batched", "--vad-neg-threshold", "0.6"],
            "--vad-neg-threshold (0.6) must not be above --vad-threshold (0.5)",
        ),
        (
            ["generate", "a.txt", "--model", "m", "--num-beams", "4", "--temperature", "0", "--top-k", "5"],
            "--temperature 0.0 is greedy, so --top-k 5 has no meaning; set --temperature above 0 to sample",
        ),
        (
            ["transcribe", "talk.flac", "--no-repeat-ngram-size", "-1"],
            "error: --no-repeat-ngram-size must be an integer",
        ),
        (["transcribe", "talk.flac", "--no-speech-threshold", "-1"], "error: --no-speech-threshold must be a number"),
        (
            ["generate", "a.txt", "--model", "m", "--no-repeat-ngram-size", "-1"],
            "error: --no-repeat-ngram-size must be",
        ),
        (["translate", "a.txt", "--threads", "1000000"], "--threads 1000000 is far above this machine's"),
    ],
)
def test_bad_usage_exits_with_2(arguments: list[str], suggestion: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code == 2
    assert suggestion in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "options", "shown"),
    [
        (
            "leave {target_language} out, or try {prefix}",
            {"prefix": ""},
            "leave --target-language out, or try --prefix",
        ),
        (
            "set {suppress_blank=False} or {vad=True}",
            {"vad": 1, "suppress_blank": 1},
            "set --no-suppress-blank or --vad",
        ),
        (
            "{word_timestamps=} and {channel='each'}",
            {"word_timestamps": False, "channel": ""},
            "--word-timestamps False",
        ),
        ("{vad_options.threshold} of vad_options", {"vad_options.threshold": 1}, "--vad-threshold of vad_options"),
        ("{limits.max_audio_seconds=}: split it", {"limits.max_audio_seconds": 5}, "--max-audio-seconds 5: split it"),
        ("lower {patience=0.5} or {max_num_seqs=4}", {"patience": 2, "max_num_seqs": 9}, "0.5 or max_num_seqs=4"),
        ("a {beam_size} of a file, leave prefix=1", {}, "a {beam_size} of a file, leave prefix=1"),
    ],
)
def test_messages_about_options_of_python_name_the_flags(message: str, options: dict[str, Any], shown: str) -> None:
    (commands,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    error = MediaError(message, param="target_language", others=options)
    assert shown in in_flags(error, commands.choices["transcribe"])


def test_a_file_whose_name_begins_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-talk.flac").touch()
    with pytest.raises(SystemExit):
        main(["transcribe", "-talk.flac"])
    assert "write ./-talk.flac for the file of that name" in capsys.readouterr().err


def test_an_output_that_nobody_reads_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "transept", "plugins", "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_an_interruption_ends_the_command_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transept.cli.plugins.reports.discover_quietly", interrupt)
    pool = OffloadPool(1)  # an engine elsewhere in this process: `main` may not end it
    pool.submit(lambda: None).result()
    assert main(["plugins", "list"]) == 130
    assert capsys.readouterr().err == ""


def test_a_variable_without_effect_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRANSEPT_MAX_QUEU", "5")
    monkeypatch.setenv("TRANSEPT_DISABLE_PLUGIN", "bart")
    monkeypatch.setenv("TRANSEPT_CPU_LEVEL", "avx2")
    monkeypatch.setenv("TRANSEPT_NUM_THREADS", "1")
    monkeypatch.setenv("TRANSEPT_CONFIG", "nowhere.toml")
    assert main(["env", "--json"]) == 0
    unknown = "is unknown and has no effect."
    assert capsys.readouterr().err.splitlines() == [
        f"transept: the variable TRANSEPT_DISABLE_PLUGIN {unknown} Did you mean TRANSEPT_DISABLE_PLUGINS?",
        f"transept: the variable TRANSEPT_MAX_QUEU {unknown}",
        "transept: only transept serve reads TRANSEPT_CONFIG and TRANSEPT_NUM_THREADS; other commands take flags",
    ]
    with pytest.raises(SystemExit):
        main(["serve", "--port", "-1", "model"])
    served = capsys.readouterr().err
    assert "Did you mean TRANSEPT_MAX_QUEUE?" in served
    assert "only transept serve" not in served


@pytest.mark.parametrize("arguments", [["--no-vad-filter"], ["--no-vad_filter"], ["--vad_filter", "false"]])
def test_a_flag_that_is_off_may_be_turned_off(arguments: list[str], tmp_path: Path) -> None:
    parsed = _parser(["transcribe"]).parse_args(["transcribe", "talk.flac", *arguments])
    assert parsed.files == ["talk.flac"]
    assert not hasattr(parsed, "vad")
