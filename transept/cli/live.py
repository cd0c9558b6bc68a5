"""``transept live``: transcribe speech while it is spoken, from a microphone or standard input."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from transept.cli.captions import Captions, Lines, event_fields
from transept.cli.commands import COMMANDS
from transept.cli.engine_options import add_model_options, engine_options
from transept.cli.flags import add_flags
from transept.cli.live_files import FORMATS, LiveFile
from transept.cli.recordings import STDIN
from transept.cli.terminal import escape
from transept.cli.transcribe import DEFAULT_MODEL
from transept.cli.transcribe_options import formats_of, sample_rate
from transept.core.config import EngineConfig
from transept.options import declared
from transept.speech.live_options import NOT_OF_LIVE, LiveOptions
from transept.speech.options import DECODING, SPEECH, TranscriptionOptions

if TYPE_CHECKING:
    from transept.speech.live.stream import LiveStream

MOST_USED = (
    *("--model", "--language", "--pcm", "--microphone", "--output-format", "--output", "--json", "--policy"),
    *("--initial-prompt", "--quantization", "--threads"),
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept live``."""
    parser = commands.add_parser(
        "live",
        help=COMMANDS["live"],
        usage="transept live [option ...] [-]",
        description="Transcribe speech while it is spoken: a microphone, or standard input. On a terminal, text that "
        "may still change is dim. Otherwise only final text is printed, a line for each utterance.",
        epilog="Ctrl-C ends the audio, and its last words follow; a second one ends at once. Exit code: 0 the audio "
        "ended, 1 failed, 2 bad usage, 130 after a second Ctrl-C.",
        most_used=MOST_USED,
    )
    parser.add_argument(
        "source",
        nargs="?",
        type=_standard_input,
        metavar="-",
        help="standard input, in any format that FFmpeg reads; without it, the microphone",
    )
    inputs = parser.add_argument_group("input")
    about = "standard input is raw samples at this rate: 16 bits, signed, little-endian, mono"
    inputs.add_argument("--pcm", type=sample_rate, metavar="HZ", help=about)
    inputs.add_argument("--microphone", metavar="NAME", help="name or number of the microphone (default: the system's)")
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f",
        "--output-format",
        type=lambda text: formats_of(text, FORMATS, FORMATS),
        metavar="F,F,...",
        help="also write files, utterance by utterance: txt, srt, vtt, jsonl, all of these",
    )
    output.add_argument("-o", "--output", metavar="NAME", help="name of those files, without suffix (default: live)")
    output.add_argument("--json", action="store_true", help="print every event as a JSON object, one a line")
    options = [each for name, each in declared(TranscriptionOptions).items() if name not in NOT_OF_LIVE]
    for title in (SPEECH, DECODING):
        add_flags(parser, title, None, [each for each in options if each.option.group == title])
    add_flags(parser, "live", None, declared(LiveOptions).values())
    add_model_options(parser, DEFAULT_MODEL)
    parser.set_defaults(run=live, parser=parser)


def live(arguments: argparse.Namespace) -> int:
    """Run ``transept live``."""
    _check(arguments)
    given = vars(arguments)
    own = {name: given[name] for name in declared(LiveOptions) if name in given}
    options = {name: given[name] for name in declared(TranscriptionOptions) if name in given}
    LiveOptions(**own)  # bad options are reported before the model is loaded
    TranscriptionOptions(**options)
    EngineConfig(arguments.model, **engine_options(arguments))
    with contextlib.ExitStack() as closing:
        rate, chunks = _source(arguments, closing)
        stem = arguments.output or "live"
        files = [closing.enter_context(LiveFile(Path(f"{stem}.{name}"))) for name in arguments.output_format or ()]
        with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
            from transept.speech.live.stream import transcribed
            from transept.speech.transcriber import Transcriber

            transcriber = Transcriber(arguments.model, **engine_options(arguments))
        display = Captions() if sys.stdout.isatty() else Lines()
        stream = closing.enter_context(transcriber.live_stream(rate, **options, **own))
        events = closing.enter_context(contextlib.closing(transcribed(stream, chunks)))
        closing.enter_context(_ended_by_signal(stream))
        try:
            for event in events:
                if arguments.json:
                    print(escape(json.dumps(event_fields(event), ensure_ascii=False)), flush=True)
                else:
                    display.show(event)
                files = [file for file in files if file.add(event)]
        finally:
            if not arguments.json:
                display.end()
    return 0 if len(files) == len(arguments.output_format or ()) else 1


@contextlib.contextmanager
def _ended_by_signal(stream: LiveStream) -> Iterator[None]:
    """For a ``with`` block in which Ctrl-C or SIGTERM ends the audio. The second one has its usual effect."""
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    usual = {number: effect for number, effect in usual.items() if signal.getsignal(number) == effect}

    def restore() -> None:
        for number, effect in usual.items():
            signal.signal(number, effect)

    def end(_number: int, _frame: FrameType | None) -> None:
        restore()
        threading.Thread(target=stream.close, daemon=True).start()  # here its lock may be held

    for number in usual:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()


def _standard_input(text: str) -> str:
    if text != STDIN:
        raise argparse.ArgumentTypeError(
            f"live listens to the microphone or -, not to {text!r}; transcribe takes files"
        )
    return text


def _check(arguments: argparse.Namespace) -> None:
    """Exit with a usage error for contradictory options."""
    error = arguments.parser.error
    if arguments.pcm is not None and arguments.source is None:
        error("--pcm applies to standard input; add -")
    if arguments.microphone is not None and arguments.source is not None:
        error("--microphone and - are two sources; leave one out")
    if arguments.output is not None and arguments.output_format is None:
        error("--output names files; write some with -f txt, srt, vtt or jsonl")
    if arguments.source is not None and sys.stdin is None:
        error("standard input is closed; leave - out to transcribe the microphone")


def _source(arguments: argparse.Namespace, closing: contextlib.ExitStack) -> tuple[float, Iterator[Any]]:
    """Return the rate of the audio, in Hz, and its chunks."""
    from transept.multimodal import live_sources

    if arguments.source is None:
        return closing.enter_context(live_sources.microphone(arguments.microphone))
    standard_input = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115  unbuffered
    if arguments.pcm is not None:
        return float(arguments.pcm), live_sources.raw_chunks(standard_input)
    return live_sources.decoded_chunks(standard_input, "standard input")
