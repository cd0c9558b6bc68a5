"""The flags of ``transept transcribe``, and the checks of their combinations.

Names are openai-whisper's and faster-whisper's, with dashes; the Parser also accepts ``--beam_size`` and
``--vad True``. Imports neither torch nor NumPy.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from transept.cli.flags import add_flags, flag
from transept.core.request.keywords import FOLLOWERS, keywords
from transept.errors import ParameterError, shown, suggest
from transept.options import DeclaredOption, Option, declared, declares_options, take_options
from transept.speech.glossary import glossary_terms
from transept.speech.option_values import LEAST_INCREMENT, rising_temperatures, temperatures
from transept.speech.options import DECODING, SPEECH, TIMES, TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.speaker_options import SPEAKERS
from transept.speech.vad.options import RECORDING, VadOptions
from transept.speech.voices.store import default_file

ALL = ("txt", "srt", "vtt", "tsv", "json")  # openai-whisper's "all"
FORMATS = (*ALL, "lrc", "csv", "ass", "ttml", "html", "docx")
SUBTITLES = ("srt", "vtt", "lrc", "ass", "ttml")
HIGHLIGHTED = ("srt", "vtt", "ass")  # show the spoken word
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz; the bounds of `load_audio`
OWN_VOICES = "default"  # as --voices
LAYOUT = tuple(declared(SubtitleLayout))


@declares_options("the command has no option")
@dataclass(frozen=True)
class CommandOptions:
    """Options of a transcription that only commands have."""

    detect_language: Annotated[
        bool, Option("print the language of each file and its probability, and no text", group=SPEECH)
    ] = False
    keywords_file: Annotated[
        str | None,
        Option(
            "file of keywords, one a line, each optionally followed by a tab and its boost",
            "Blank lines and lines that begin with # are skipped.",
            group=SPEECH,
            metavar="FILE",
        ),
    ] = None
    temperature_increment_on_fallback: Annotated[
        float | None,
        Option(
            "raise the temperature by this, up to 1, if a window's text fails a threshold; None: never",
            "As in openai-whisper's command. In Python, temperature takes all temperatures.",
            group=DECODING,
            metavar="T",
            ge=LEAST_INCREMENT,
        ),
    ] = 0.2
    hotwords_file: Annotated[
        str | None, Option("file of --hotwords, a word or a name in each line", group=SPEECH, metavar="FILE")
    ] = None

    def __post_init__(self) -> None:
        take_options(self)


def formats_of(text: str, known: Sequence[str], every: Sequence[str]) -> tuple[str, ...]:
    """Parse ``srt,vtt``, ``all`` or ``all,lrc`` to the formats, each once. every: the formats of ``all``."""
    names: dict[str, None] = {}
    for name in (each.strip().lower() for each in text.split(",")):
        if name not in (*known, "all"):
            if os.path.isfile(text):  # whisper.cpp's -f
                raise argparse.ArgumentTypeError(f'"{text}" is a file; name it without an option before it')
            raise argparse.ArgumentTypeError(f'there is no format "{name}".{suggest(name, [*known, "all"])}')
        names |= dict.fromkeys(every if name == "all" else [name])
    return tuple(names)


formats = partial(formats_of, known=FORMATS, every=ALL)


def format_of(text: str) -> str:
    """Parse one format."""
    if text.lower() not in FORMATS:
        raise argparse.ArgumentTypeError(f'there is no format "{text}".{suggest(text, FORMATS)}')
    return text.lower()


def sample_rate(text: str) -> int:
    """Parse the rate of raw samples, in Hz."""
    if not (text.isascii() and text.isdigit() and LOWEST_RATE <= int(text) <= HIGHEST_RATE):
        raise argparse.ArgumentTypeError(f"must be a rate of {LOWEST_RATE} to {HIGHEST_RATE} Hz, not {text!r}")
    return int(text)


VAD_PARTS = [
    dataclasses.replace(each, name=f"vad_{name}", option=dataclasses.replace(each.option, help=""))
    for name, each in declared(VadOptions).items()
]


Group: TypeAlias = tuple[str, str | None, list[DeclaredOption]]  # heading of flags, text below it, options


def speech_groups(without: Container[str] = ()) -> list[Group]:
    """Return the groups of a transcription's options. ``--help`` omits the options of silence, `VAD_PARTS`."""
    options = [*declared(TranscriptionOptions).values(), *declared(CommandOptions).values()]
    groups: list[Group] = []
    for title, about in (
        (SPEECH, None),
        (TIMES, None),
        (SPEAKERS, "Each but --channel sets --diarize."),
        (RECORDING, None),
        (DECODING, "Numbers may be None, which turns them off."),
    ):
        found = [each for each in options if each.option.group == title and each.name not in without]
        groups.append((title, about, [*found, *VAD_PARTS] if title == RECORDING else found))
    return groups


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of a transcription and of subtitles. The parsed namespace lacks flags that are not given."""
    speech, times, *others = speech_groups()
    about = "For srt, vtt, ttml, lrc and ass. Each sets --word-timestamps."
    for group in (speech, times, ("subtitles", about, list(declared(SubtitleLayout).values())), *others):
        add_flags(parser, *group)


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exit with a usage error for invalid or contradictory options."""
    if arguments.print_confidence:
        if arguments.json:
            parser.error("--print-confidence prints text; --json has the probabilities of words with --word-timestamps")
        arguments.word_timestamps = True
    check_layout(parser, arguments)
    if subtitle_layout(arguments):
        arguments.word_timestamps = True


def check_layout(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exit with a usage error for an invalid layout of subtitles, or for a layout without subtitles."""
    layout_for(parser, arguments, arguments.output_format or ())


def layout_for(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, formats: Sequence[str]
) -> dict[str, Any]:
    """Return the given keywords of Transcript.write, checked as by `check_layout`. formats: of the files."""
    layout = subtitle_layout(arguments)
    if layout and not {*SUBTITLES} & {*formats}:
        option = flag(next(iter(layout)))
        parser.error(f"{option} lays out subtitles; write some with --output-format {', '.join(SUBTITLES)}")
    if "highlight_words" in layout and not {*HIGHLIGHTED} & {*formats}:
        option = flag("highlight_words")
        parser.error(f"{option} needs a format that shows it; write one with --output-format {', '.join(HIGHLIGHTED)}")
    SubtitleLayout(**layout)
    return layout


def check_formats(formats: Sequence[str] | None) -> None:
    """Raise MissingPackageError for a format whose package is not installed, before any work."""
    if "docx" in (formats or ()):
        from transept.speech.output.documents import require_docx

        require_docx()


def subtitle_layout(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given keywords of Transcript.write."""
    given = {name: getattr(arguments, name, None) for name in LAYOUT}
    return {
        name: value for name, value in given.items() if value is not None and value is not False and value != "plain"
    }


def transcription_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given keywords of Transcriber.transcribe. Raises ParameterError as TranscriptionOptions."""
    given = vars(arguments)
    options = {name: given[name] for name in declared(TranscriptionOptions) if name in given}
    command = CommandOptions(**{name: given[name] for name in declared(CommandOptions) if name in given})
    if command.keywords_file is not None:
        others = keywords("keywords", options.get("keywords"))
        options["keywords"] = keywords("keywords", (*others, *_keywords_of(command.keywords_file)))
    if "temperature" in given or "temperature_increment_on_fallback" in given:
        first = options.get("temperature", 0.0)
        increment = command.temperature_increment_on_fallback
        several = isinstance(attempts := temperatures("temperature", first), tuple) and len(attempts) > 1
        if several and "temperature_increment_on_fallback" not in given:
            increment = None  # a list of temperatures is complete
        options["temperature"] = rising_temperatures(first, increment)
    if command.hotwords_file is not None:
        lines = lines_of("hotwords_file", command.hotwords_file)
        listed = ", ".join(line.split("\t")[0].strip() for line in lines)  # without boosts, as in a file of keywords
        options["hotwords"] = ", ".join(filter(None, [options.get("hotwords"), listed])) or None
    if "glossary" in options:
        options["glossary"] = glossary_terms("glossary", Path(options["glossary"]))
    if "voices" in options:
        options["voices"] = voices_file(options["voices"])
    if vad := {name.removeprefix("vad_"): given[name] for name in (each.name for each in VAD_PARTS) if name in given}:
        for name in {*vad} & {*options.get("vad_options", ())}:
            message = f"{{vad_options}} and {{vad_options.{name}}} are the same option: give one of them"
            raise ParameterError(message, param="vad_options", others={f"vad_options.{name}": vad[name]})
        options["vad_options"] = {**options.get("vad_options", {}), **vad}
    TranscriptionOptions(**options)  # raises before the model is loaded
    return options


def voices_file(given: str | None) -> Path | None:
    """Return the path of a file of voices; of the user's own file for ``default``."""
    return None if given is None else default_file() if given == OWN_VOICES else Path(given)


def lines_of(name: str, file: str) -> list[str]:
    """Return the lines of a text file without blank lines and comments. name: the option that names the file.

    Raises ParameterError for a file that cannot be read or has no such lines.
    """
    try:
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not UTF-8 text ({error})"
        raise ParameterError(f"{{{name}}}: cannot read {shown(file)}: {why}", param=name, value=file) from None
    found = [each for each in lines if (line := each.strip()) and not line.startswith("#")]
    if not found:
        raise ParameterError(f"{{{name}}}: {shown(file)} has no terms; write one in each line", param=name, value=file)
    return found


def _keywords_of(file: str) -> list[tuple[str, float | None]]:
    """Return the terms of a file with their boosts, None for a term without one. Raises ParameterError."""
    found: list[tuple[str, float | None]] = []
    for line in lines_of("keywords_file", file):
        term, tab, boost = line.partition("\t")
        try:
            found.append((term, float(boost) if tab else None))
        except ValueError:
            message = f"{{keywords_file}}: the boost {shown(boost)} of {shown(term)} is not a number; write one"
            raise ParameterError(message, param="keywords_file", value=file) from None
    return found


def speech_engine(arguments: argparse.Namespace, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine's max_num_seqs for ``--batch-size`` windows at a time, with all beams or samples of a window.

    options: of the transcription. Empty without ``--batch-size``.
    """
    batch_size, checked = getattr(arguments, "batch_size", None), TranscriptionOptions(**options)
    if batch_size is None:
        return {}
    width = checked.num_beams + (FOLLOWERS if checked.keywords else 0)
    return {"max_num_seqs": max(batch_size * width, checked.best_of or 1)}
