"""``transept transcribe FILE...``: speech to text, or to English text, on standard output or in files."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.engine_options import MODEL, add_engine_options, engine_options
from transept.cli.printable import printable, printable_name
from transept.cli.transcribe_options import add_options, check, formats, subtitle_layout, transcription_options
from transept.errors import TranseptError

if TYPE_CHECKING:
    from transept.speech.segments import Segment
    from transept.speech.transcript import Transcript

DEFAULT_MODEL = "openai/whisper-base"
STDIN = "-"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept transcribe``."""
    about = "transcribe audio and video files, or translate their speech to English"
    parser = commands.add_parser(
        "transcribe",
        help=about,
        usage="transept transcribe [option ...] FILE ...",
        description="Transcribe audio and video files of any length, or translate their speech to English. The text "
        "goes to standard output, or with -f or -o to files; everything else goes to standard error.",
        epilog="Options may be written with underscores, too; what is a flag above then takes True or False, as in "
        "openai-whisper: --word_timestamps True. Exit code: 0 all files transcribed, 1 some were not (the others still "
        "are), 2 bad usage.",
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="audio or video file; - is standard input")
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help=f"{MODEL} (default: %(default)s)",
    )
    add_engine_options(parser)
    parser.add_argument(
        "--max-audio-seconds", type=float, metavar="S", help="refuse longer recordings (default: 24 hours)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f",
        "--output-format",
        type=formats,
        metavar="F,F,...",
        help="write files: txt, srt, vtt, tsv, json, or all (default with -o: all)",
    )
    output.add_argument(
        "-o", "--output-dir", metavar="DIR", help="folder of those files (default with -f: the present one)"
    )
    output.add_argument("--output_format", type=formats, dest="output_format", help=argparse.SUPPRESS)
    output.add_argument("--output_dir", dest="output_dir", help=argparse.SUPPRESS)
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object for each file, one a line")
    form.add_argument("--verbose", action="store_true", help="print segments with their times as they are found")
    add_options(parser)
    parser.set_defaults(run=transcribe, parser=parser)


def transcribe(arguments: argparse.Namespace) -> int:
    """``transept transcribe``."""
    if arguments.output_dir is not None and arguments.output_format is None:
        arguments.output_format = formats("all")
    check(arguments.parser, arguments)
    options = transcription_options(arguments)
    outputs = _output_files(arguments)
    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **engine_options(arguments))
    begin = time.perf_counter()
    seconds_of_audio, num_failed = 0.0, 0
    printer = _SegmentPrinter(arguments.files) if arguments.verbose else None
    results = transcriber.transcribe_as_completed(
        _audios(arguments.files), progress=None, on_segment=printer, **options
    )
    done: dict[int, Transcript | TranseptError] = {}  # whose turn on standard output has not come
    turn = 0
    with contextlib.closing(results):
        for index, result in results:
            file = arguments.files[index]
            done[index] = result
            with _beside_progress_bar():
                error = result if isinstance(result, TranseptError) else _write(arguments, file, outputs[index], result)
                if error is not None:
                    num_failed += 1
                    reason = str(error).replace(file, printable_name(file))
                    print(printable(f"transept: {printable_name(file)}: {reason}"), file=sys.stderr, flush=True)
                while turn in done:
                    _print(arguments, arguments.files[turn], done.pop(turn))
                    if printer is not None:
                        printer.next_file()
                    turn += 1
            if not isinstance(result, TranseptError):
                seconds_of_audio += result.duration
    end = time.perf_counter()
    work, total = end - begin, end - arguments.begin
    speed = f", {seconds_of_audio / work:.1f} times real time" if seconds_of_audio else ""
    print(f"{seconds_of_audio:.1f} s of audio in {work:.1f} s{speed}; {total:.1f} s in all", file=sys.stderr)
    return 1 if num_failed else 0


def _audios(files: Sequence[str]) -> Iterator[Any]:
    """What `load_audio` takes: it reads standard input itself, and no further than its limit."""
    for file in files:
        if file != STDIN:
            yield file
            continue
        # Unbuffered: Python, when it is interrupted, ends only once no thread reads the buffered one.
        standard_input: Any = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)  # noqa: SIM115
        standard_input.name = "<stdin>"
        yield standard_input


def _output_files(arguments: argparse.Namespace) -> list[list[Path]]:
    """The files to write for each input, their folder made. A usage error where two inputs would share one."""
    if arguments.output_format is None:
        return [[] for _ in arguments.files]
    folder = Path(arguments.output_dir or ".")
    stems = ["stdin" if file == STDIN else Path(file).stem for file in arguments.files]
    for index, stem in enumerate(stems):
        if stem in stems[:index]:
            arguments.parser.error(
                f"{arguments.files[stems.index(stem)]} and {arguments.files[index]} would both be written to "
                f"{folder / stem}.{arguments.output_format[0]}; transcribe them one by one, with -o for each"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        arguments.parser.error(f"cannot make the folder {folder}: {error.strerror}")
    return [[folder / f"{stem}.{name}" for name in arguments.output_format] for stem in stems]


def _print(arguments: argparse.Namespace, file: str, result: Transcript | TranseptError) -> None:
    """Print a transcript as the arguments ask."""
    if isinstance(result, TranseptError):
        return
    if arguments.json:
        print(printable(json.dumps({"file": file, **result.to_dict()}, ensure_ascii=False)), flush=True)
    elif arguments.output_format is None and not arguments.verbose:
        several = len(arguments.files) > 1
        print(printable(f"{printable_name(file)}: {result.text}" if several else result.text), flush=True)


def _write(arguments: argparse.Namespace, file: str, paths: Sequence[Path], transcript: Transcript) -> str | None:
    """Write a transcript's files. Returns what went wrong."""
    for path in paths:
        try:
            transcript.write(path, **subtitle_layout(arguments))
        except OSError as error:
            return f"cannot write {path}: {error.strerror}"
    if paths:
        print(f"{printable_name(file)}: wrote {', '.join(map(printable_name, paths))}", file=sys.stderr, flush=True)
    return None


class _SegmentPrinter:
    """Prints segments as they are found, those of one file after those of the file before it."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files = files
        self.turn = 0  # index of the file that is printed
        self.held: dict[int, list[Segment]] = {}  # of files whose turn has not come
        self.has_begun = False

    def __call__(self, index: int, segment: Segment) -> None:
        if index != self.turn:
            self.held.setdefault(index, []).append(segment)
            return
        with _beside_progress_bar():
            self._print(segment)

    def next_file(self) -> None:
        """The file whose turn it is, is done."""
        self.turn += 1
        self.has_begun = False
        for segment in self.held.pop(self.turn, []):
            self._print(segment)

    def _print(self, segment: Segment) -> None:
        from transept.speech.output.writers import clock

        if not self.has_begun and len(self.files) > 1:
            print(f"{printable_name(self.files[self.turn])}:")
        self.has_begun = True
        start, end = (clock(round(1000 * seconds)) for seconds in (segment.start, segment.end))
        print(printable(f"[{start} --> {end}] {segment.text}"), flush=True)


def _beside_progress_bar() -> contextlib.AbstractContextManager[None]:
    """Takes the bar off the terminal while something else is printed."""
    from tqdm import tqdm

    return tqdm.external_write_mode()
