"""``transept convert IN OUT``: read a transcript or subtitles, edit them, and write another file. Loads no model."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

from transept.cli.check_subtitles import report
from transept.cli.commands import COMMANDS
from transept.cli.flags import add_flag, add_flags
from transept.cli.result_files import unwritable, write_transcript
from transept.cli.run_summary import counted
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.cli.transcribe_options import FORMATS, check_formats, format_of, layout_for
from transept.errors import ParameterError, PromptError
from transept.multimodal.missing_files import why_unopened
from transept.options import Option, declared, declares_options, take_options
from transept.speech.fields import MAX_SECONDS
from transept.speech.glossary import glossary_terms
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.redaction import redacted_kinds
from transept.speech.speaker_options import listed_names

if TYPE_CHECKING:
    from transept.speech.output.writers import TextFormat
    from transept.speech.transcript import Transcript

STDIN = STDOUT = "-"
MOST_USED = (
    *("--output-format", "--shift", "--speaker-names", "--glossary", "--redact", "--style", "--max-line-width"),
    "--max-line-count",
)
EDITS = ("glossary", "redact")  # options of a transcription that also apply to a finished transcript


def speaker_names(name: str, given: Any) -> tuple[tuple[str, str] | str, ...]:
    """Return names in the order of speech, or pairs of an old and a new name from ``A=Anna,B=Ben`` or a mapping."""
    if isinstance(given, Mapping):
        return tuple(given.items())
    if not isinstance(given, str):
        return tuple(given or ())
    if "=" not in given:
        return listed_names(name, given)
    pairs = tuple(tuple(map(str.strip, each.split("=", 1))) for each in given.split(","))
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        message = f"{{{name}}} must be old and new names, such as SPEAKER_00=Anna,SPEAKER_01=Ben, not {{{name}!}}"
        raise ParameterError(message, param=name, value=given)
    return tuple((old, new) for old, new in pairs)


@declares_options("an edit has no option")
@dataclass(frozen=True)
class EditOptions:
    """Edits of a transcript."""

    shift: Annotated[
        float,
        Option(
            "move all times by S seconds, earlier if negative",
            metavar="S",
            default="0",
            ge=-MAX_SECONDS,
            le=MAX_SECONDS,
        ),
    ] = 0.0
    speaker_names: Annotated[
        tuple[tuple[str, str] | str, ...],
        Option(
            "new names of speakers: SPEAKER_00=Anna,SPEAKER_01=Ben, or Anna,Ben in the order in which they first speak",
            metavar="A=B,...",
            default="",
            parse=speaker_names,
        ),
    ] = ()

    def __post_init__(self) -> None:
        take_options(self)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept convert``."""
    parser = commands.add_parser(
        "convert",
        help=COMMANDS["convert"],
        usage="transept convert [option ...] IN OUT",
        description="Read a transcript or subtitles, edit them, and write another file. Reads srt, vtt, ttml, ass and "
        "json: Transept's, openai-whisper's, faster-whisper's, WhisperX's, whisper.cpp's and OpenAI's.",
        epilog="Exit code: 0 written, 1 failed, 2 bad usage.",
        allow_abbrev=False,
        most_used=MOST_USED,
    )
    parser.add_argument("file", metavar="IN", help="file of a transcript or of subtitles; - is standard input")
    parser.add_argument("output", metavar="OUT", help="file to write; its suffix is the format; - is standard output")
    about = f"format of OUT: {', '.join(FORMATS)}"
    parser.add_argument("-f", "--output-format", type=format_of, metavar="FORMAT", help=about)
    parser.add_argument(
        "--input-format", dest="format", metavar="FORMAT", help="format of IN, if its suffix does not name it"
    )
    edits = parser.add_argument_group("edits")
    for each in declared(EditOptions).values():
        add_flag(edits, each)
    for name in EDITS:
        add_flag(edits, declared(TranscriptionOptions)[name])
    about = "If words have no times, the words of a subtitle share its time in proportion to their lengths."
    add_flags(parser, "subtitles", about, declared(SubtitleLayout).values())
    parser.set_defaults(run=convert, parser=parser)


def convert(arguments: argparse.Namespace) -> int:
    """Run ``transept convert``."""
    to = output_format(arguments)
    check_formats([to])
    layout = layout_for(arguments.parser, arguments, [to])
    edits = edits_of(arguments)  # raises before any file is opened
    transcript = edits.of(read_transcript(arguments.file, arguments.format))
    if layout:
        transcript = transcript.with_estimated_words()
    return written(transcript, to, arguments.output, layout)


def written(transcript: Transcript, format: str, output: str, layout: Mapping[str, Any]) -> int:
    """Write a transcript to a file, or to standard output. Returns the exit code."""
    if output == STDOUT:
        print(escape(transcript.to_str(cast("TextFormat", format), **layout)), end="")
        return 0
    if errors := write_transcript(transcript, [Path(output)], layout, format):
        print_stderr(f"transept: {escape(errors[0])}")
        return 1
    print_stderr(f"wrote {escape_name(output)}")
    report(output, transcript, SubtitleLayout(**layout))
    return 0


def read_transcript(file: str, format: str | None = None) -> Transcript:
    """Return a file's transcript; ``-`` is standard input, whose beginning shows its format.

    Raises PromptError if it cannot be read, and ParameterError for a format that cannot be read or is missing.
    """
    from transept.speech.transcript import Transcript

    try:
        return Transcript.read(_opened_input() if file == STDIN else file, format)
    except OSError as error:
        raise PromptError(f'cannot read "{file}": {why_unopened(file, error)}') from None
    except ParameterError as error:
        if error.param == "format" or "format" in error.others:
            raise
        raise PromptError(str(error)) from None


def _opened_input() -> BinaryIO:
    if sys.stdin is None:
        raise PromptError("standard input is closed; name a file")
    return sys.stdin.buffer


@dataclass(frozen=True)
class Edits:
    """The checked edits of a command."""

    options: EditOptions
    glossary: tuple[tuple[str, str], ...]
    redact: tuple[str, ...]

    def of(self, transcript: Transcript) -> Transcript:
        """Return the edited transcript. Raises ParameterError for a speaker that it does not have."""
        if self.options.shift:
            before = len(transcript.segments)
            transcript = transcript.shifted(self.options.shift)
            if left_out := before - len(transcript.segments):
                print_stderr(f"left out {counted(left_out, 'subtitle')} before 0")
        if self.options.speaker_names:
            names = self.options.speaker_names
            in_order = [each for each in names if isinstance(each, str)]
            transcript = transcript.renamed(in_order or dict(each for each in names if not isinstance(each, str)))
        if self.glossary:
            transcript = transcript.corrected(dict(self.glossary))
        return transcript.redacted(self.redact) if self.redact else transcript


def edits_of(arguments: argparse.Namespace) -> Edits:
    """Return the edits of a command's arguments. Raises ParameterError for a bad one."""
    given = vars(arguments)
    options = EditOptions(
        **{each.name: given[each.name] for each in declared(EditOptions).values() if each.name in given}
    )
    terms = glossary_terms("glossary", Path(given["glossary"]) if "glossary" in given else None)
    return Edits(options, terms, redacted_kinds("redact", given.get("redact")))


def output_format(arguments: argparse.Namespace) -> str:
    """Return the format to write. Exits with a usage error without one, and if OUT cannot be written."""
    suffix = arguments.output_format or Path(arguments.output).suffix.lower().removeprefix(".")
    if suffix == "docx" and arguments.output == STDOUT:
        arguments.parser.error("docx is not text; name a file to write instead of -")
    if suffix not in FORMATS:
        where = "standard output" if arguments.output == STDOUT else escape_name(arguments.output)
        arguments.parser.error(f"{where} has no suffix that names a format; give one with -f: {', '.join(FORMATS)}")
    if arguments.output != STDOUT and (why := unwritable([Path(arguments.output)])) is not None:
        arguments.parser.error(escape(why))
    return str(suffix)
