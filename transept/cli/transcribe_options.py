"""The arguments of ``transept transcribe``: a table of options, and what they mean together.

Names are openai-whisper's and faster-whisper's, with dashes; the Parser takes ``--beam_size`` and ``--vad True``, too.
Nothing heavy is imported before `transcription_options`.
"""

from __future__ import annotations

import argparse
import os
import re
from argparse import BooleanOptionalAction
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from transept.errors import ParameterError, suggest

TASKS = ("transcribe", "translate")
CHANNELS = ("mix", "left", "right", "each")
ALL = ("txt", "srt", "vtt", "tsv", "json")  # what openai-whisper calls all
FORMATS = (*ALL, "lrc", "csv", "ass")
SUBTITLES = ("srt", "vtt", "lrc", "ass")
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz; as `load_audio` takes them
LAYOUT = ("highlight_words", "max_line_width", "max_line_count", "max_words_per_line")


def number(kind: type) -> Callable[[str], Any]:
    """A parser of numbers of a kind that takes ``None``, too."""

    def parse(text: str) -> Any:
        return None if text == "None" else kind(text)

    parse.__name__ = kind.__name__  # what argparse calls it in a message
    return parse


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


def task(text: str) -> str:
    """One of `TASKS`."""
    if text not in TASKS:
        raise argparse.ArgumentTypeError(f'there is no task "{text}".{suggest(text, TASKS)}')
    return text


def channel(text: str) -> str:
    """One of `CHANNELS`."""
    if text not in CHANNELS:
        raise argparse.ArgumentTypeError(f'there is no channel "{text}".{suggest(text, CHANNELS)}')
    return text


def mode(text: str) -> str:
    """One of `MODES`."""
    from transept.speech.options import MODES

    if text not in MODES:
        raise argparse.ArgumentTypeError(f'there is no mode "{text}".{suggest(text, MODES)}')
    return text


def encoder_context(text: str) -> str | float | None:
    """``auto``, seconds, or None."""
    from transept.speech import option_values

    try:
        found: str | float | None = option_values.encoder_context(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("encoder_context ")) from None
    return found


def token_ids(text: str) -> tuple[int, ...]:
    """``-1`` or ``50,60``; none for ``None``."""
    try:
        return () if text == "None" else tuple(int(token) for token in text.split(",") if token)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be ids of tokens, such as -1 or 50,60, not {text!r}") from None


class Option(NamedTuple):
    """One option. kind: parser of its value; bool: a flag; BooleanOptionalAction: on, unless --no- is given."""

    name: str  # with underscores, as in Python
    kind: Any
    metavar: str
    help: str


SPEECH = (
    Option("task", task, "TASK", "transcribe what is said (default), or translate it to English"),
    Option("language", str, "NAME", "language spoken, as code or name: de, de-AT, German (default: auto, detected)"),
    Option("target_language", str, "NAME", "language to write, if another than is spoken; Whisper has English"),
    Option("detect_language", bool, "", "print the language of each file and its probability, and no text"),
    Option("multilingual", bool, "", "detect the language of every window anew, and cut it where that changes"),
    Option("language_detection_segments", int, "N", "windows to detect the language from at most (default: 1)"),
    Option("language_detection_threshold", float, "P", "probability at which to look no further (default: 0.5)"),
    Option("initial_prompt", str, "TEXT", "what the recording is taken to follow: names, spelling, style"),
    Option("carry_initial_prompt", bool, "", "put it before every window, not only the first"),
    Option("hotwords", str, "TEXT", "words to look out for in every window"),
    Option("prefix", str, "TEXT", "how the text of the first window begins"),
    Option(
        "condition_on_previous_text",
        BooleanOptionalAction,
        "",
        "tell each window what was said before (default), or with --no- do not: steadier, where texts get stuck",
    ),
)
RECORDING = (
    Option("diarize", bool, "", "tell speakers apart, by an installed plugin that does"),
    Option(
        "channel",
        channel,
        "WHICH",
        "left, right, or each: all by themselves, as speakers of one transcript (default: mix, of all)",
    ),
    Option("audio_track", str, "N", "audio track of a video: its number, from 0, or its language, such as eng"),
    Option(
        "mode",
        mode,
        "MODE",
        "auto (default): leave out long silence, decode missed speech again; sequential: openai-whisper's algorithm; "
        "batched: windows side by side, the fastest",
    ),
    Option("batched", bool, "", "the same as --mode batched"),
    Option("vad", bool, "", "leave out silence first in sequential mode (the other modes always do)"),
    Option("vad_threshold", float, "P", "probability from which sound is speech (default: 0.5)"),
    Option("vad_neg_threshold", float, "P", "probability under which speech ends (default: 0.15 less)"),
    Option("vad_min_speech_duration_ms", float, "MS", "drop shorter speech (default: 0)"),
    Option("vad_max_speech_duration_s", float, "S", "cut longer speech (default: never; batched: the window)"),
    Option("vad_min_silence_duration_ms", float, "MS", "keep shorter pauses (default: 2000; batched: 64)"),
    Option("vad_speech_pad_ms", float, "MS", "silence to keep on both sides of speech (default: 400)"),
    Option("chunk_length", float, "S", "seconds of a window at most (default: what the model hears, 30 for Whisper)"),
    Option(
        "encoder_context",
        encoder_context,
        "S",
        "encode S seconds of silence after a window's sound, not the whole window; auto: as `transept calibrate` found",
    ),
    Option("batch_size", int, "N", "windows to decode at a time at most, those of all files counted (default: 64)"),
    Option("clip_timestamps", str, "S,S,...", "only these stretches: start,end,start,end,... in seconds"),
)
TIMES = (
    Option("word_timestamps", bool, "", "find the time and the probability of every word"),
    Option("prepend_punctuations", str, "MARKS", "marks that belong to the word behind them"),
    Option("append_punctuations", str, "MARKS", "marks that belong to the word before them"),
    Option(
        "hallucination_silence_threshold",
        float,
        "S",
        "skip silence longer than this around words that look made up; sets --word-timestamps",
    ),
    Option("without_timestamps", bool, "", "do not ask the model for times: a window is one segment"),
    Option("max_initial_timestamp", float, "S", "a window's first segment begins by then; None: anywhere (default: 1)"),
)
DECODING = (
    Option("temperature", float, "T", "0 takes the most likely token, more draws (default: 0)"),
    Option(
        "temperature_increment_on_fallback",
        float,
        "T",
        "try again so much higher, up to 1, when a window's text fails a threshold; None: never (default: 0.2)",
    ),
    Option("best_of", int, "N", "draws at a temperature above 0, of which the most likely is taken (default: 5)"),
    Option("beam_size", int, "N", "width of a beam search at temperature 0 (default: none)"),
    Option(
        "patience",
        float,
        "X",
        "a beam search goes on for so many times its width in results (default: 1); without --beam-size of 5 beams",
    ),
    Option("length_penalty", float, "A", "rank results by length as Google does (default: the mean log probability)"),
    Option("repetition_penalty", float, "X", "above 1 makes tokens that have come less likely"),
    Option("no_repeat_ngram_size", int, "N", "let no run of so many tokens come twice in a window"),
    Option(
        "compression_ratio_threshold", float, "X", "text that compresses better failed: too repetitive (default: 2.4)"
    ),
    Option("logprob_threshold", float, "X", "text with a lower mean log probability failed (default: -1)"),
    Option("no_speech_threshold", float, "P", "skip a failed window that is silence so surely (default: 0.6)"),
    Option("prompt_reset_on_temperature", float, "T", "tell nothing of a text that took more (default: 0.5)"),
    Option(
        "suppress_blank",
        BooleanOptionalAction,
        "",
        "no window begins with a blank or its end (default), or with --no- it may",
    ),
    Option(
        "suppress_tokens",
        token_ids,
        "ID,ID,...",
        "ids that never come; -1: all that is not spoken (default); None: none",
    ),
    Option(
        "suppress_numerals", bool, "", "write numbers as words: no token with a digit, a per cent sign or a currency"
    ),
    Option("suppress_regex", str, "RE", "no token whose whole text, with the blank before it, matches"),
    Option("max_new_tokens", int, "N", "tokens of a window at most"),
    Option("token_logprobs", bool, "", "keep the log probability of every token, for --json and .json files"),
    Option("seed", int, "N", "of the draws (default: 0)"),
    Option("fp16", BooleanOptionalAction, "", "compute in float16, or with --no- in float32; a CPU takes float32"),
)
SUBTITLE_LAYOUT = (
    Option("highlight_words", bool, "", "underline each word as it is said"),
    Option("max_line_width", int, "N", "characters of a line at most"),
    Option("max_line_count", int, "N", "lines of a subtitle at most; needs --max-line-width"),
    Option("max_words_per_line", int, "N", "words of a subtitle at most; not with --max-line-count"),
)
GROUPS = (
    ("speech and language", None, SPEECH),
    ("times", None, TIMES),
    ("subtitles", "For srt, vtt, lrc and ass. Each sets --word-timestamps.", SUBTITLE_LAYOUT),
    ("the way through the recording", None, RECORDING),
    ("decoding", "A number may be None, which means: none of it.", DECODING),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare all of `GROUPS`. What is not given is not in the parsed namespace."""
    for group in GROUPS:
        add_group(parser, *group)


def add_group(parser: argparse.ArgumentParser, title: str, about: str | None, options: Sequence[Option]) -> None:
    """Declare the options of one group."""
    group = parser.add_argument_group(title, about)
    for option in options:
        _add_option(group, option)


def _add_option(group: argparse._ArgumentGroup, option: Option) -> None:
    flag = "--" + option.name.replace("_", "-")
    kind = number(option.kind) if option.kind in (int, float) else option.kind
    rest: dict[str, Any] = {"dest": option.name, "default": argparse.SUPPRESS}
    if kind is bool:
        group.add_argument(flag, action="store_true", help=option.help, **rest)
    elif kind is BooleanOptionalAction:
        group.add_argument(flag, action=BooleanOptionalAction, help=option.help, **rest)
    else:
        group.add_argument(flag, type=kind, metavar=option.metavar, help=option.help, **rest)


def check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave with a usage error for options that make no sense, alone or together."""
    if arguments.print_confidence:
        if arguments.json:
            parser.error("--print-confidence prints text; --json has the probabilities of words with --word-timestamps")
        arguments.word_timestamps = True
    check_layout(parser, arguments)
    if subtitle_layout(arguments):
        arguments.word_timestamps = True
    for name in vars(arguments):
        if (
            name.startswith("vad_")
            and getattr(arguments, "mode", None) == "sequential"
            and not getattr(arguments, "vad", False)
        ):
            parser.error(f"--{name.replace('_', '-')} defines silence; add --vad to leave silence out")
    if (batch_size := getattr(arguments, "batch_size", None)) is not None and batch_size < 1:
        parser.error(f"--batch-size must be at least 1, not {batch_size}")


def check_layout(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Leave with a usage error for a layout of subtitles without subtitles, or one that makes no sense."""
    layout = subtitle_layout(arguments)
    for name in layout:
        option = "--" + name.replace("_", "-")
        if not set(SUBTITLES) & set(arguments.output_format or ()):
            parser.error(f"{option} lays out subtitles; write some with --output-format srt, vtt, lrc or ass")
        if layout[name] < 1:
            parser.error(f"{option} must be at least 1")
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
    from transept.speech.options import TranscriptionOptions
    from transept.speech.vad.spans import VadOptions

    given = vars(arguments)
    options = {name: given[name] for name in TranscriptionOptions.names() if name in given}
    if "temperature" in given or "temperature_increment_on_fallback" in given:
        first = given.get("temperature") or 0.0
        increment = options.pop("temperature_increment_on_fallback", 0.2)
        options["temperature"] = TranscriptionOptions(
            temperature=first, temperature_increment_on_fallback=increment
        ).temperatures
    vad = {name.removeprefix("vad_"): value for name, value in given.items() if name.startswith("vad_")}
    if vad:
        try:
            options["vad_options"] = VadOptions(**vad)
        except ParameterError as error:
            raise ParameterError(re.sub(rf"\b({'|'.join(VadOptions.names())})\b", r"vad_\1", str(error))) from error
    TranscriptionOptions(**options)  # before a model is loaded
    return options


def speech_engine(arguments: argparse.Namespace, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the engine that ``--fp16`` and ``--batch-size`` stand for. Imports torch.

    options: those of the transcription. As in openai-whisper, a CPU computes in float32, whatever --fp16 says.
    """
    import torch

    found: dict[str, Any] = {}
    fp16, device = getattr(arguments, "fp16", None), arguments.device
    if fp16 is not None:
        on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        flag, dtype = ("--fp16", "float16") if fp16 else ("--no-fp16", "float32")
        if arguments.dtype not in ("auto", dtype):
            raise ParameterError(
                f"{flag} means --dtype {dtype}, and contradicts --dtype {arguments.dtype}: leave one of them out"
            )
        if arguments.dtype == "auto":
            found["dtype"] = "auto" if fp16 and not on_gpu else dtype
    if (batch_size := getattr(arguments, "batch_size", None)) is not None:
        found["max_num_seqs"] = num_sequences(batch_size, options)
    return found


def num_sequences(batch_size: int, options: Mapping[str, Any]) -> int:
    """The engine's max_num_seqs for so many windows at a time: none of them is refused, nor are its draws fewer."""
    from transept.speech.options import TranscriptionOptions

    checked = TranscriptionOptions(**options)
    return max(batch_size * checked.num_beams, checked.best_of or 1)
