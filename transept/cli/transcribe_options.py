"""The arguments of ``transept transcribe``: its flags, and what they mean together.

Names are openai-whisper's and faster-whisper's, with dashes; the Parser takes ``--beam_size`` and ``--vad True``, too.
Nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from transept.cli.flags import add_flags, flag
from transept.errors import ParameterError, suggest
from transept.options import DeclaredOption, Option, declared, declares_options, take_options
from transept.speech.options import DECODING, SPEECH, TIMES, TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.vad.options import RECORDING, VadOptions

ALL = ("txt", "srt", "vtt", "tsv", "json")  # what openai-whisper calls all
FORMATS = (*ALL, "lrc", "csv", "ass")
SUBTITLES = ("srt", "vtt", "lrc", "ass")
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz; as `load_audio` takes them
LAYOUT = tuple(declared(SubtitleLayout))
FIRST_INCREMENT = 0.2  # of the temperature, as in openai-whisper's command


@declares_options("the command has no option")
@dataclass(frozen=True)
class CommandOptions:
    """Options of a transcription that only commands have."""

    detect_language: Annotated[
        bool, Option("print the language of each file and its probability, and no text", group=SPEECH)
    ] = False

    def __post_init__(self) -> None:
        take_options(self)


def formats(text: str) -> tuple[str, ...]:
    """``srt,vtt``, ``all`` or ``all,lrc``, each format once."""
    names: dict[str, None] = {}
    for name in (each.strip().lower() for each in text.split(",")):
        if name not in (*FORMATS, "all"):
            if os.path.isfile(text):  # whisper.cpp's -f
                raise argparse.ArgumentTypeError(f'"{text}" is a file, which is named without an option before it')
            raise argparse.ArgumentTypeError(f'there is no format "{name}".{suggest(name, [*FORMATS, "all"])}')
        names |= dict.fromkeys(ALL if name == "all" else [name])
    return tuple(names)


def sample_rate(text: str) -> int:
    """Of raw samples, in Hz."""
    if not (text.isascii() and text.isdigit() and LOWEST_RATE <= int(text) <= HIGHEST_RATE):
        raise argparse.ArgumentTypeError(f"must be a rate of {LOWEST_RATE} to {HIGHEST_RATE} Hz, not {text!r}")
    return int(text)


VAD_PARTS = [
    dataclasses.replace(each, name=f"vad_{name}", option=dataclasses.replace(each.option, help=""))
    for name, each in declared(VadOptions).items()
]


def options_of(group: str) -> list[DeclaredOption]:
    """The options of a transcription, of silence and of the command that stand under a heading.

    Those of silence are parts of ``--vad-options``, and no help shows them.
    """
    found = [
        each
        for each in (*declared(TranscriptionOptions).values(), *declared(CommandOptions).values())
        if each.option.group == group
    ]
    return [*found, *VAD_PARTS] if group == RECORDING else found


GROUPS = (
    (SPEECH, None, options_of(SPEECH)),
    (TIMES, None, options_of(TIMES)),
    ("subtitles", "For srt, vtt, lrc and ass. Each sets --word-timestamps.", list(declared(SubtitleLayout).values())),
    (RECORDING, None, options_of(RECORDING)),
    (DECODING, "A number may be None, which means: none of it.", options_of(DECODING)),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare all of `GROUPS`. What is not given is not in the parsed namespace."""
    for group in GROUPS:
        add_flags(parser, *group)


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave with a usage error for options that make no sense, alone or together."""
    if arguments.print_confidence:
        if arguments.json:
            parser.error("--print-confidence prints text; --json has the probabilities of words with --word-timestamps")
        arguments.word_timestamps = True
    check_layout(parser, arguments)
    if subtitle_layout(arguments):
        arguments.word_timestamps = True
    CommandOptions(**{name: given for name, given in vars(arguments).items() if name in declared(CommandOptions)})


def check_layout(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave with a usage error for a layout of subtitles without subtitles, or one that makes no sense."""
    layout = subtitle_layout(arguments)
    if layout and not set(SUBTITLES) & set(arguments.output_format or ()):
        option = flag(next(iter(layout)))
        parser.error(f"{option} lays out subtitles; write some with --output-format srt, vtt, lrc or ass")
    SubtitleLayout(**layout)
    if "max_line_count" in layout and "max_line_width" not in layout:
        parser.error("--max-line-count counts lines of a width; add --max-line-width")
    if "max_line_count" in layout and "max_words_per_line" in layout:
        parser.error("--max-line-count fills subtitles up with words; leave --max-words-per-line out")


def subtitle_layout(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords of Transcript.write that the arguments give."""
    given = {name: getattr(arguments, name, None) for name in LAYOUT}
    return {name: value for name, value in given.items() if value is not None and value is not False}


def transcription_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keywords of Transcriber.transcribe that the arguments give. Raises ParameterError as TranscriptionOptions."""
    given = vars(arguments)
    options = {name: given[name] for name in declared(TranscriptionOptions) if name in given}
    if "temperature" in given or "temperature_increment_on_fallback" in given:
        increment = options.pop("temperature_increment_on_fallback", FIRST_INCREMENT)
        options["temperature"] = TranscriptionOptions(
            temperature=options.get("temperature", 0.0), temperature_increment_on_fallback=increment
        ).temperatures
    if vad := {name.removeprefix("vad_"): given[name] for name in (each.name for each in VAD_PARTS) if name in given}:
        for name in {*vad} & {*options.get("vad_options", ())}:
            message = f"{{vad_options}} and {{vad_options.{name}}} are the same option: give one of them"
            raise ParameterError(message, param="vad_options", others={f"vad_options.{name}": vad[name]})
        options["vad_options"] = {**options.get("vad_options", {}), **vad}
    TranscriptionOptions(**options)  # before a model is loaded
    return options


def speech_engine(arguments: argparse.Namespace, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the engine that ``--batch-size`` stands for. options: those of the transcription."""
    batch_size = getattr(arguments, "batch_size", None)
    return {} if batch_size is None else {"max_num_seqs": num_sequences(batch_size, options)}


def num_sequences(batch_size: int, options: Mapping[str, Any]) -> int:
    """The engine's max_num_seqs for so many windows at a time: none of them is refused, nor are its draws fewer."""
    checked = TranscriptionOptions(**options)
    return max(batch_size * checked.num_beams, checked.best_of or 1)
