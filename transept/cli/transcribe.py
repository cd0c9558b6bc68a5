"""``transept transcribe FILE...``: speech to text, or to English text, on standard output or in files.

`recordings` finds what is to be transcribed, `result_files` names and writes what comes of it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli import language_detection
from transept.cli.commands import COMMANDS
from transept.cli.confidence import terminal_text
from transept.cli.engine_options import add_limit, add_model_options, engine_options
from transept.cli.manifest import Manifest
from transept.cli.parser import in_flags
from transept.cli.recordings import STDIN, Recording, find_recordings
from transept.cli.result_files import FIELDS, remove_unfinished, result_files, write_whole
from transept.cli.run_summary import RunSummary, TranscriptionTask
from transept.cli.segment_printer import SegmentPrinter, beside_progress_bar
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.cli.transcribe_options import (
    add_options,
    check,
    formats,
    sample_rate,
    speech_engine,
    subtitle_layout,
    transcription_options,
)
from transept.core.config import EngineConfig
from transept.errors import ParameterError, TranseptError
from transept.speech.segments import has_speakers

if TYPE_CHECKING:
    from transept.speech.transcript import Transcript, TranscriptionInfo

DEFAULT_MODEL = "base"
MOST_USED = (  # which --help shows; --help-all shows all
    *("--model", "--language", "--task", "--output-format", "--output-dir", "--json", "--verbose"),
    *("--word-timestamps", "--initial-prompt", "--mode", "--diarize", "--recursive", "--skip-existing", "--device"),
    "--quantization",
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept transcribe``."""
    parser = commands.add_parser(
        "transcribe",
        help=COMMANDS["transcribe"],
        usage="transept transcribe [option ...] FILE ...",
        description="Transcribe audio and video files of any length, or translate their speech to English. The text "
        "goes to standard output, or with -f, -o or --beside to files; everything else goes to standard error.",
        epilog="Names of openai-whisper and faster-whisper are taken, too: --word_timestamps True --vad_filter True. "
        "Exit code: 0 all files transcribed, 1 some were not (the others still are), 2 bad usage.",
        allow_abbrev=False,
        most_used=MOST_USED,
    )
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="audio or video file, folder of them, or pattern such as 'talks/**/*.mp3'; - is standard input",
    )
    _add_output(parser)
    _add_input(parser)
    add_options(parser)
    _add_many_files(parser)
    add_model_options(parser, DEFAULT_MODEL)
    parser.set_defaults(run=transcribe, parser=parser)


def _add_input(parser: argparse.ArgumentParser) -> None:
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--recursive", action="store_true", help="look into the folders of a folder, too")
    inputs.add_argument(
        "--pcm",
        type=sample_rate,
        metavar="HZ",
        help="standard input is no file but raw samples at this rate: 16 bits, signed, little-endian, mono",
    )
    inputs.add_argument("--allow-urls", action="store_true", help="take URLs (http, https, ...), too, by way of FFmpeg")
    add_limit(inputs, "max_audio_seconds")


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    output.add_argument(
        "-f",
        "--output-format",
        type=formats,
        metavar="F,F,...",
        help="write files: txt, srt, vtt, tsv, json, all of these (all, the default with -o and --beside), lrc, csv, "
        "ass (karaoke)",
    )
    output.add_argument(
        "-o", "--output-dir", metavar="DIR", help="folder of those files (default with -f: the present one)"
    )
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object for each file, one a line")
    form.add_argument("--verbose", action="store_true", help="print segments with their times as they are found")
    output.add_argument(
        "--print-confidence",
        action="store_true",
        help="print words in colours, from red to green by confidence, or without colours the probability of "
        "unsure ones; sets --word-timestamps",
    )


def _add_many_files(parser: argparse.ArgumentParser) -> None:
    many = parser.add_argument_group(
        "many files",
        "The files of a folder are written to a tree like it. An interrupted command goes on with the same "
        "arguments and --skip-existing: no file is ever there but whole.",
    )
    many.add_argument("--beside", action="store_true", help="write files beside their recordings, not to one folder")
    many.add_argument(
        "--output-name",
        metavar="TEXT",
        help=f"name of the files, without suffix, made of {', '.join(f'{{{name}}}' for name in FIELDS)} "
        "(default: {folder}/{stem})",
    )
    many.add_argument("--skip-existing", action="store_true", help="leave out recordings whose files are all there")
    many.add_argument(
        "--manifest", metavar="FILE", help="add a line of JSON for each recording: file, status, error, seconds, ..."
    )


def transcribe(arguments: argparse.Namespace) -> int:
    """``transept transcribe``."""
    detects_only = getattr(arguments, "detect_language", False)
    if detects_only:
        language_detection.check(arguments.parser, arguments)
    if (arguments.output_dir is not None or arguments.beside) and arguments.output_format is None:
        arguments.output_format = formats("all")
    check(arguments.parser, arguments)
    _check_files(arguments)
    options = transcription_options(arguments)
    EngineConfig(arguments.model, **engine_options(arguments))  # raises before anything is read
    with contextlib.ExitStack() as closing:
        found, missing = find_recordings(
            arguments.files, recursive=arguments.recursive, allow_urls=arguments.allow_urls
        )
        tasks = _tasks(arguments, found)
        manifest = None if arguments.manifest is None else closing.enter_context(Manifest(arguments.manifest))
        summary = RunSummary(manifest)
        for each in missing:
            summary.fail(each.file, each.reason)
        if arguments.skip_existing:
            tasks, existing = _split(tasks)
            for task in existing:
                summary.skip(task)
        several = len(arguments.files) > 1 or any(each.tree is not None for each in found)
        total = len(found) + len(missing)
        try:
            if tasks:
                _run(arguments, tasks, options, summary, several)
        except KeyboardInterrupt:
            if several:
                again = "" if arguments.output_format is None else "; the same with --skip-existing goes on from here"
                print_stderr(f"interrupted: {summary.line(total)}{again}")
            raise
        if (several or summary.num_skipped) and not detects_only:
            print_stderr(summary.line(total))
    return 1 if summary.failed else 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Leave with a usage error for options of files that make no sense together."""
    error = arguments.parser.error
    if arguments.beside and arguments.output_dir is not None:
        error("--beside and -o name two places for the same files")
    for name in ("skip_existing", "output_name"):
        if getattr(arguments, name) not in (None, False) and arguments.output_format is None:
            error(f"--{name.replace('_', '-')} is about files; write some with -f, -o or --beside")
    if arguments.manifest == STDIN:
        error("--manifest takes the name of a file, which is added to; ./- is one of that name")
    if arguments.pcm is not None and STDIN not in arguments.files:
        error("--pcm says what comes by standard input; name it, as -")
    if STDIN in arguments.files and sys.stdin is None:
        error("standard input is closed; name a file instead of -")


def _tasks(arguments: argparse.Namespace, found: Sequence[Recording]) -> list[TranscriptionTask]:
    """What is to be done; the folder that files go to is made."""
    if arguments.output_format is None:
        return [TranscriptionTask(recording, []) for recording in found]
    folder = None if arguments.beside else Path(arguments.output_dir or ".")
    paths = result_files(
        found, arguments.output_format, folder=folder, template=arguments.output_name, model=arguments.model
    )
    if arguments.manifest is not None:
        manifest = os.path.realpath(arguments.manifest)
        if any(os.path.realpath(path) == manifest for each in paths for path in each):
            message = "what comes of a recording would take the place of {manifest=}"
            raise ParameterError(message, param="manifest", value=arguments.manifest)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder {folder}: {error.strerror}"
        raise ParameterError(message, param="output_dir", value=arguments.output_dir) from None
    return [TranscriptionTask(recording, each) for recording, each in zip(found, paths, strict=True)]


def _split(tasks: Sequence[TranscriptionTask]) -> tuple[list[TranscriptionTask], list[TranscriptionTask]]:
    """Tasks to do, and those whose files are all there."""
    done = [task.is_done() for task in tasks]
    return [t for t, is_done in zip(tasks, done, strict=True) if not is_done], list(itertools.compress(tasks, done))


def _run(
    arguments: argparse.Namespace,
    tasks: Sequence[TranscriptionTask],
    options: dict[str, Any],
    summary: RunSummary,
    several: bool,
) -> None:
    """Transcribe, write each recording's files as soon as it is done, and print in the order of the recordings."""
    for folder in {path.parent for task in tasks for path in task.paths}:
        remove_unfinished(folder)
    with contextlib.redirect_stdout(sys.stderr):  # what plugins and libraries print must not spoil the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **{**engine_options(arguments), **speech_engine(arguments, options)})
    if getattr(arguments, "detect_language", False):
        named = zip(tasks, _audios(tasks, arguments.pcm), strict=True)
        language_detection.detect_languages(transcriber, arguments, named, summary, several)
        return
    begin = time.perf_counter()
    files = [task.recording.file for task in tasks]
    prints = arguments.json or arguments.output_format is None or arguments.print_confidence
    printer = SegmentPrinter(files, several, arguments.print_confidence) if arguments.verbose else None
    results = transcriber.transcribe_as_completed(
        _audios(tasks, arguments.pcm),
        progress=None,
        on_info=lambda index, info: _tell(files[index], info),
        on_segment=printer,
        **options,
    )
    done: dict[int, Transcript | TranseptError | None] = {}  # whose turn on standard output has not come
    turn = 0
    with contextlib.closing(results):
        for index, result in results:
            task = tasks[index]
            done[index] = result if prints else None
            with beside_progress_bar():
                _keep(arguments, task, result, summary)
                while turn in done:
                    _print(arguments, files[turn], done.pop(turn), several)
                    if printer is not None:
                        printer.next_file()
                    turn += 1
    end = time.perf_counter()
    work, total = end - begin, end - arguments.begin
    speed = f", {summary.seconds_of_audio / work:.1f} times real time" if summary.seconds_of_audio else ""
    print_stderr(f"{summary.seconds_of_audio:.1f} s of audio in {work:.1f} s{speed}; {total:.1f} s in all")


def _tell(file: str, info: TranscriptionInfo) -> None:
    """Say on stderr what is known of a recording before its first segment."""
    length = f"{info.duration:.1f} s of audio"
    if info.duration_after_vad < info.duration:
        length += f", {info.duration_after_vad:.1f} s without its silence"
    sure = "" if info.language_probability is None else f", detected with probability {info.language_probability:.2f}"
    with beside_progress_bar():
        print_stderr(f"{escape_name(file)}: {length}; language {info.language}{sure}")


def _audios(tasks: Sequence[TranscriptionTask], pcm_rate: int | None) -> Iterator[Any]:
    """What `load_audio` takes: it reads standard input itself, and no further than its limit."""
    for task in tasks:
        task.begin = time.perf_counter()
        yield task.recording.audio(pcm_rate)


def _keep(
    arguments: argparse.Namespace, task: TranscriptionTask, result: Transcript | TranseptError, summary: RunSummary
) -> None:
    """Write what came of a recording to its files, and count it."""
    file, layout = task.recording.file, subtitle_layout(arguments)
    seconds = time.perf_counter() - task.begin
    if isinstance(result, TranseptError):
        summary.fail(file, in_flags(result, arguments.parser), seconds)
        return
    summary.seconds_of_audio += result.duration
    for path in task.paths:
        try:
            write_whole(path, lambda place: result.write(place, **layout))
        except OSError as error:
            summary.fail(file, f"cannot write {path}: {error.strerror}", seconds)
            return
    summary.done(task, seconds, result)
    if task.paths:
        written = ", ".join(map(escape_name, task.paths))
        print_stderr(f"{escape_name(file)}: wrote {written}")


def _print(arguments: argparse.Namespace, file: str, result: Transcript | TranseptError | None, several: bool) -> None:
    """Print a transcript as the arguments ask."""
    if result is None or isinstance(result, TranseptError):
        return
    if arguments.json:
        print(escape(json.dumps({"file": file, **result.to_dict()}, ensure_ascii=False)), flush=True)
    elif (arguments.output_format is None or arguments.print_confidence) and not arguments.verbose:
        by_segment, text = has_speakers(result.segments), escape(result.text)
        if by_segment or arguments.print_confidence:
            text = terminal_text(result.segments, confidence=arguments.print_confidence).strip()
        name = escape_name(file) + (":\n" if by_segment else ": ") if several else ""
        print(name + text, flush=True)
