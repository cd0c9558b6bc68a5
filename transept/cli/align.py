"""``transept align AUDIO TEXT``: when each word of a text that is known was said in a recording."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from transept.cli.commands import COMMANDS
from transept.cli.documents import read_text
from transept.cli.engine_options import add_model_options, engine_options
from transept.cli.flags import add_flag, add_flags
from transept.cli.result_files import write_whole
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.cli.transcribe import DEFAULT_MODEL
from transept.cli.transcribe_options import check_layout, formats, subtitle_layout
from transept.errors import PromptError
from transept.multimodal.suffixes import split_suffix
from transept.options import declared
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout

HEARING = ("language", "batched")  # options of a transcription
MOST_USED = (
    *("--model", "--language", "--batched", "--output-format", "--output-dir", "--json", "--highlight-words"),
    *("--max-line-width", "--max-words-per-line", "--device", "--quantization", "--threads", "--offline"),
)

if TYPE_CHECKING:
    from transept.speech.transcript import Transcript


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept align``."""
    parser = commands.add_parser(
        "align",
        help=COMMANDS["align"],
        usage="transept align [option ...] AUDIO TEXT",
        description="Find when each word of a known text is said in a recording. Its lines, or of a text of one line "
        "its sentences, become segments with times, on standard output, or with -f or -o in files.",
        epilog="Exit code: 0 aligned, 1 not, 2 bad usage.",
        allow_abbrev=False,
        most_used=MOST_USED,
    )
    parser.add_argument("audio", metavar="AUDIO", help="audio or video file")
    parser.add_argument("text", metavar="TEXT", help="text file in UTF-8; - is standard input")
    for name in HEARING:
        add_flag(parser, declared(TranscriptionOptions)[name])
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f", "--output-format", type=formats, metavar="F,F,...", help="write files: srt, json, ass, ..."
    )
    output.add_argument("-o", "--output-dir", metavar="DIR", help="folder of those files (default: the present one)")
    output.add_argument("--json", action="store_true", help="print a JSON object, in which each word has its times")
    add_flags(parser, "subtitles", None, declared(SubtitleLayout).values())
    add_model_options(parser, DEFAULT_MODEL)
    parser.set_defaults(run=align, parser=parser)


def align(arguments: argparse.Namespace) -> int:
    """``transept align``."""
    if arguments.output_dir is not None and arguments.output_format is None:
        arguments.output_format = formats("all")
    check_layout(arguments.parser, arguments)
    paths = _paths(arguments)
    try:
        text = read_text(arguments.text)
    except (OSError, UnicodeDecodeError, PromptError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        arguments.parser.error(f"cannot read {escape_name(arguments.text)}: {reason}")
    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **engine_options(arguments))
    options = {name: getattr(arguments, name) for name in HEARING if name in arguments}
    transcript = transcriber.align(arguments.audio, text, progress=None, **options)
    if arguments.json:
        print(escape(json.dumps({"file": arguments.audio, **transcript.to_dict()}, ensure_ascii=False)))
    if paths:
        return _write(arguments, transcript, paths)
    if not arguments.json:
        _print(transcript)
    return 0


def _paths(arguments: argparse.Namespace) -> list[Path]:
    """The files to write. Leaves with a usage error where one is the text or the recording."""
    folder, (stem, _) = Path(arguments.output_dir or "."), split_suffix(arguments.audio)
    paths = [folder / f"{stem}.{name}" for name in arguments.output_format or ()]
    given = {os.path.realpath(each) for each in (arguments.audio, arguments.text)}
    for path in paths:
        if os.path.realpath(path) in given:
            name = escape_name(path)
            arguments.parser.error(
                f"{name} would be overwritten with what comes of it; give another folder with -o, or formats with -f"
            )
    return paths


def _write(arguments: argparse.Namespace, transcript: Transcript, paths: list[Path]) -> int:
    """Write the files, each whole or not at all. Returns the exit code."""
    layout = subtitle_layout(arguments)
    for path in paths:
        try:
            write_whole(path, lambda place: transcript.write(place, **layout))
        except OSError as error:
            print_stderr(f"transept: cannot write {escape_name(path)}: {error.strerror or error}")
            return 1
        print_stderr(f"wrote {escape_name(path)}")
    return 0


def _print(transcript: Transcript) -> None:
    from transept.speech.output.writers import clock

    for segment in transcript.segments:
        start, end = (clock(round(1000 * seconds)) for seconds in (segment.start, segment.end))
        print(escape(f"[{start} --> {end}] {segment.text}"), flush=True)
