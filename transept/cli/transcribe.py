"""``transept transcribe FILE...``: speech to text, or to English text."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time

from transept.errors import TranseptError

DEFAULT_MODEL = "openai/whisper-base"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept transcribe``."""
    about = "transcribe audio and video files, or translate their speech to English"
    parser = commands.add_parser(
        "transcribe",
        help=about,
        description=f"{about.capitalize()}. The text goes to standard output, everything else to standard error.",
        epilog="Exit code: 0 all files transcribed, 1 some were not (the others still are), 2 bad usage.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="audio or video file of any length")
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="checkpoint directory, package:NAME/folder, or hub name (default: %(default)s)",
    )
    parser.add_argument("--language", metavar="CODE", help="language spoken, such as en or de (default: detected)")
    parser.add_argument(
        "--task",
        choices=("transcribe", "translate"),
        default="transcribe",
        help="write what is said, or its translation to English (default: %(default)s)",
    )
    parser.add_argument("--plugin", help="plugin to run the model with, where several could")
    parser.add_argument("--json", action="store_true", help="print a JSON object a file, one a line")
    parser.set_defaults(run=transcribe)


def transcribe(arguments: argparse.Namespace) -> int:
    """``transept transcribe``."""
    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, plugin=arguments.plugin)
    begin = time.perf_counter()
    results = transcriber.transcribe_many(arguments.files, language=arguments.language, task=arguments.task)
    seconds_of_audio, failures = 0.0, 0
    for file, result in zip(arguments.files, results, strict=True):
        if isinstance(result, TranseptError):
            failures += 1
            print(f"transept: {file}: {result}", file=sys.stderr, flush=True)
            continue
        seconds_of_audio += result.duration
        if arguments.json:
            print(json.dumps({"file": file, **result.to_dict()}, ensure_ascii=False), flush=True)
        else:
            print(f"{file}: {result.text}" if len(arguments.files) > 1 else result.text, flush=True)
    work = time.perf_counter() - begin
    speed = f", {seconds_of_audio / work:.1f} times real time" if seconds_of_audio else ""
    print(f"{seconds_of_audio:.1f} s of audio in {work:.1f} s{speed}", file=sys.stderr)
    return 1 if failures else 0
