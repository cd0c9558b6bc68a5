"""``transept align AUDIO TEXT``: find the time of each word of a known text in a recording."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

from transept.cli.check_subtitles import report
from transept.cli.commands import COMMANDS
from transept.cli.documents import read_text
from transept.cli.engine_options import add_model_options, engine_options
from transept.cli.flags import add_flag, add_flags
from transept.cli.result_files import add_file_options, unwritable, write_transcript
from transept.cli.segment_printer import timed
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.cli.transcribe import DEFAULT_MODEL
from transept.cli.transcribe_options import check_formats, check_layout, formats, subtitle_layout
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


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept align``."""
    parser = commands.add_parser(
        "align",
        help=COMMANDS["align"],
        usage="transept align [option ...] AUDIO TEXT",
        description="Find the time of each word of a known text in a recording. Each line of the text becomes a "
        "segment with times, or each sentence if the text is one line. Segments go to standard output, or with -f or "
        "-o to files.",
        epilog="Exit code: 0 aligned, 1 failed, 2 bad usage.",
        most_used=MOST_USED,
    )
    parser.add_argument("audio", metavar="AUDIO", help="audio or video file")
    parser.add_argument("text", metavar="TEXT", help="text file in UTF-8; - is standard input")
    for name in HEARING:
        add_flag(parser, declared(TranscriptionOptions)[name])
    output = parser.add_argument_group("output")
    add_file_options(output, formats, "write files: srt, json, ass, ...")
    output.add_argument("--json", action="store_true", help="print a JSON object, with the times of each word")
    add_flags(parser, "subtitles", None, declared(SubtitleLayout).values())
    add_model_options(parser, DEFAULT_MODEL)
    parser.set_defaults(run=align, parser=parser)


def align(arguments: argparse.Namespace) -> int:
    """Run ``transept align``."""
    if arguments.output_dir is not None and arguments.output_format is None:
        arguments.output_format = formats("all")
    check_layout(arguments.parser, arguments)
    check_formats(arguments.output_format)
    paths = _paths(arguments)
    try:
        text = read_text(arguments.text)
    except PromptError as error:
        arguments.parser.error(f"{escape_name(arguments.text)}: {error}")
    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **engine_options(arguments))
    options = {name: getattr(arguments, name) for name in HEARING if name in arguments}
    transcript = transcriber.align(arguments.audio, text, progress=None, **options)
    if arguments.json:
        print(escape(json.dumps({"file": arguments.audio, **transcript.to_dict()}, ensure_ascii=False)))
    elif not paths:
        for segment in transcript.segments:
            print(escape(timed(segment, segment.text)), flush=True)
    layout = subtitle_layout(arguments)
    errors = write_transcript(transcript, paths, layout)
    for each in errors:
        print_stderr(f"transept: {escape(each)}")
    if paths and not errors:
        print_stderr(f"wrote {', '.join(map(escape_name, paths))}")
        report(arguments.audio, transcript, SubtitleLayout(**layout))
    return 1 if errors else 0


def _paths(arguments: argparse.Namespace) -> list[Path]:
    """Return the files to write. Exits with a usage error if one of them is the text or the recording."""
    folder, (stem, _) = Path(arguments.output_dir or "."), split_suffix(arguments.audio)
    paths = [folder / f"{stem}.{name}" for name in arguments.output_format or ()]
    given = {os.path.realpath(each) for each in (arguments.audio, arguments.text)}
    for path in paths:
        if os.path.realpath(path) in given:
            name = escape_name(path)
            arguments.parser.error(
                f"{name} would be overwritten with the result; give another folder with -o, or other formats with -f"
            )
    if (why := unwritable(paths)) is not None:
        arguments.parser.error(escape(why))
    return paths
