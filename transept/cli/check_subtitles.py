"""``transept check-subtitles FILE...``: report the subtitle rules that files break."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from transept.cli.commands import COMMANDS
from transept.cli.flags import add_flag
from transept.cli.run_summary import counted
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.cli.transcribe_options import subtitle_layout
from transept.errors import ParameterError
from transept.options import declared
from transept.speech.options import TranscriptionOptions
from transept.speech.output.broken_rules import UNITS, asked_rules, broken_rules, summary
from transept.speech.output.function_words import language_of
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import clock
from transept.speech.subtitle_files.reading import read_subtitle_file

if TYPE_CHECKING:
    from transept.speech.transcript import Transcript


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept check-subtitles``."""
    parser = commands.add_parser(
        "check-subtitles",
        help=COMMANDS["check-subtitles"],
        usage="transept check-subtitles [option ...] FILE ...",
        description="Report each rule of a style that a subtitle breaks, with its number and time. An option "
        "sets one rule to another number; without a style, only the given rules are checked. Each style also reports "
        "lines that end within a number or a name, or between an article and its noun.",
        epilog="Exit code: 0 no rule broken, 1 some broken or a file that cannot be read, 2 bad usage.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="subtitles: srt, vtt, ttml (xml, dfxp, itt), ass or ssa"
    )
    options = declared(SubtitleLayout)
    for name in ("style", *UNITS):
        add_flag(parser, options[name])
    add_flag(parser, declared(TranscriptionOptions)["language"])
    parser.add_argument("--summary", action="store_true", help="print only one line for each file")
    parser.set_defaults(run=check_subtitles, parser=parser)


def check_subtitles(arguments: argparse.Namespace) -> int:
    """Run ``transept check-subtitles``."""
    layout = SubtitleLayout(**subtitle_layout(arguments))
    if not layout.needs_words:
        arguments.parser.error(
            "give the rules to check: --style netflix, bbc or youtube, or single rules such as --min-gap 0.1"
        )
    spoken = declared(TranscriptionOptions)["language"].taken(getattr(arguments, "language", None))
    code = 0
    for file in arguments.files:
        try:
            cues = read_subtitle_file(file)
        except OSError as error:
            print_stderr(f"transept: cannot read {escape_name(file)}: {error.strerror or error}")
            code = 1
            continue
        except ParameterError as error:
            print_stderr(f"transept: {escape(str(error))}")
            code = 1
            continue
        language = language_of((cue.text for cue in cues), spoken or "")
        broken = asked_rules(broken_rules(cues, layout.rules(language)), layout)
        for each in () if arguments.summary else broken:
            at = clock(round(each.start * 1000), hours=True)
            print(escape(f"{file}: {each.number}, {at}: {each.rule}: {each}"))
        found = f"rules broken: {summary(broken)}" if broken else "no rule broken"
        print(escape(f"{file}: {counted(len(cues), 'subtitle')}, {found}"), flush=True)
        code = 1 if broken else code
    return code


def report(name: str, transcript: Transcript, layout: SubtitleLayout) -> None:
    """Print on stderr how many subtitles break each rule, unless none does. name: the file's name."""
    if layout.styled and (broken := transcript.broken_rules(**vars(layout))):
        print_stderr(f"{escape_name(name)}: no layout keeps all rules; subtitles that break each: {summary(broken)}")
