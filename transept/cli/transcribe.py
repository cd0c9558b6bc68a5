"""``transept transcribe FILE...``: speech to text, or to English text, on standard output or in files.

`recordings` finds the inputs, `result_files` names and writes the results.
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
from transept.cli.check_subtitles import report
from transept.cli.commands import COMMANDS
from transept.cli.engine_options import add_limit, add_model_options, engine_options
from transept.cli.manifest import Manifest
from transept.cli.parser import in_flags
from transept.cli.recordings import STDIN, Recording, find_recordings
from transept.cli.result_files import (
    add_file_options,
    add_name_options,
    are_there,
    check_file_options,
    make_folder,
    remove_unfinished,
    result_files,
    write_transcript,
)
from transept.cli.run_summary import RunSummary, TranscriptionTask
from transept.cli.segment_printer import SegmentPrinter, beside_progress_bar, terminal_text
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.cli.transcribe_options import (
    add_options,
    check,
    check_formats,
    formats,
    sample_rate,
    speech_engine,
    subtitle_layout,
    transcription_options,
)
from transept.core.config import EngineConfig
from transept.errors import ParameterError, TranseptError
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.segments import has_speakers

if TYPE_CHECKING:
    from transept.speech.transcript import Transcript, TranscriptionInfo

DEFAULT_MODEL = "base"
MOST_USED = (  # which --help shows; --help-all shows all
    *("--model", "--language", "--task", "--output-format", "--output-dir", "--json", "--verbose"),
    *("--word-timestamps", "--initial-prompt", "--mode", "--quality", "--diarize", "--device"),
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
        epilog="Options of openai-whisper and faster-whisper also work: --word_timestamps True --vad_filter True. "
        "Exit code: 0 all files transcribed, 1 some failed (the others are transcribed), 2 bad usage.",
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
    inputs.add_argument("--recursive", action="store_true", help="also search the folders in a folder")
    inputs.add_argument(
        "--pcm",
        type=sample_rate,
        metavar="HZ",
        help="standard input is raw samples at this rate, not a file: 16 bits, signed, little-endian, mono",
    )
    inputs.add_argument(
        "--allow-urls", action="store_true", help="also accept URLs (http, https, ...), which FFmpeg fetches"
    )
    add_limit(inputs, "max_audio_seconds")


def _add_output(parser: argparse.ArgumentParser) -> None:
    output = parser.add_argument_group("output")
    about = "write files: txt, srt, vtt, tsv, json, all of these (all, the default with -o and --beside), lrc, csv, "
    add_file_options(output, formats, f"{about}ass (karaoke), ttml (IMSC), html, docx")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a JSON object for each file, one a line")
    form.add_argument("--verbose", action="store_true", help="print each segment with its times when found")
    output.add_argument(
        "--print-confidence",
        action="store_true",
        help="colour words from red to green by their probability, or, without colours, print the probability of "
        "unsure ones; sets --word-timestamps",
    )


def _add_many_files(parser: argparse.ArgumentParser) -> None:
    many = parser.add_argument_group(
        "many files",
        "The results of a folder keep its tree. To continue an interrupted command, run it again with "
        "--skip-existing: a file only ever appears complete.",
    )
    many.add_argument("--beside", action="store_true", help="write files beside their recordings, not to one folder")
    add_name_options(many, "recordings")
    many.add_argument(
        "--manifest", metavar="FILE", help="add a line of JSON for each recording: file, status, error, seconds, ..."
    )


def transcribe(arguments: argparse.Namespace) -> int:
    """Run ``transept transcribe``."""
    detects_only = getattr(arguments, "detect_language", False)
    if detects_only:
        language_detection.check(arguments.parser, arguments)
    if (arguments.output_dir is not None or arguments.beside) and arguments.output_format is None:
        arguments.output_format = formats("all")
    check(arguments.parser, arguments)
    check_formats(arguments.output_format)
    _check_files(arguments)
    options = transcription_options(arguments)
    EngineConfig(arguments.model, **engine_options(arguments))  # raises before any file is opened
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
            existing = [are_there(task.paths) for task in tasks]
            for task in itertools.compress(tasks, existing):
                summary.skip(task)
            tasks = [task for task, exists in zip(tasks, existing, strict=True) if not exists]
        tasks = [task for task in tasks if summary.can_write(task)]
        several = len(arguments.files) > 1 or any(each.tree is not None for each in found)
        total = len(found) + len(missing)
        try:
            if tasks:
                _run(arguments, tasks, options, summary, several)
        except KeyboardInterrupt:
            if several:
                again = "" if arguments.output_format is None else "; to continue, run it again with --skip-existing"
                print_stderr(f"interrupted: {summary.line(total)}{again}")
            raise
        if (several or summary.num_skipped) and not detects_only:
            print_stderr(summary.line(total))
    return 1 if summary.failed or summary.manifest_failed else 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Exit with a usage error for contradictory options of files."""
    error = arguments.parser.error
    if arguments.beside and arguments.output_dir is not None:
        error("--beside and -o name two places for the same files; leave one out")
    check_file_options(arguments, "-f, -o or --beside")
    if arguments.manifest == STDIN:
        error("--manifest takes a file to append to, not standard input; write ./- for a file of that name")
    if arguments.pcm is not None and STDIN not in arguments.files:
        error("--pcm applies to standard input; add - to the files")


def _tasks(arguments: argparse.Namespace, found: Sequence[Recording]) -> list[TranscriptionTask]:
    """Return the recordings with the files to write for each, and make the folder of the files."""
    if arguments.output_format is None:
        return [TranscriptionTask(recording, []) for recording in found]
    folder = None if arguments.beside else Path(arguments.output_dir or ".")
    paths = result_files(
        found, arguments.output_format, folder=folder, template=arguments.output_name, model=arguments.model
    )
    if arguments.manifest is not None:
        manifest = os.path.realpath(arguments.manifest)
        if any(os.path.realpath(path) == manifest for each in paths for path in each):
            message = "a result would overwrite {manifest=}; give the manifest another name"
            raise ParameterError(message, param="manifest", value=arguments.manifest)
    make_folder(folder, arguments.output_dir)
    return [TranscriptionTask(recording, each) for recording, each in zip(found, paths, strict=True)]


def _run(
    arguments: argparse.Namespace,
    tasks: Sequence[TranscriptionTask],
    options: dict[str, Any],
    summary: RunSummary,
    several: bool,
) -> None:
    """Transcribe. Write a recording's files at once, and print the texts in the order of the recordings."""
    for folder in {path.parent for task in tasks for path in task.paths}:
        remove_unfinished(folder)
    with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
        from transept.speech.transcriber import Transcriber

        transcriber = Transcriber(arguments.model, **{**engine_options(arguments), **speech_engine(arguments, options)})
    if getattr(arguments, "detect_language", False):
        named = zip(tasks, audios(tasks, arguments.pcm), strict=True)
        language_detection.detect_languages(transcriber, arguments, named, summary, several)
        return
    begin = time.perf_counter()
    files = [task.recording.file for task in tasks]
    prints = arguments.json or arguments.output_format is None or arguments.print_confidence
    printer = SegmentPrinter(files, several, arguments.print_confidence) if arguments.verbose else None
    results = transcriber.transcribe_as_completed(
        audios(tasks, arguments.pcm),
        progress=None,
        on_info=lambda index, info: _report(files[index], info),
        on_segment=printer,
        **options,
    )
    done: dict[int, Transcript | TranseptError | None] = {}  # not printed yet
    turn = 0
    with contextlib.closing(results):
        for index, result in results:
            task = tasks[index]
            done[index] = result if prints else None
            with beside_progress_bar():
                keep_result(arguments, task, result, summary)
                while turn in done:
                    _print(arguments, files[turn], done.pop(turn), several)
                    if printer is not None:
                        printer.next_file()
                    turn += 1
    end = time.perf_counter()
    work, total = end - begin, end - arguments.begin
    speed = f", {summary.seconds_of_audio / work:.1f} times real time" if summary.seconds_of_audio else ""
    print_stderr(f"{summary.seconds_of_audio:.1f} s of audio in {work:.1f} s{speed}; {total:.1f} s in all")


def _report(file: str, info: TranscriptionInfo) -> None:
    """Print a recording's length and language on stderr, before its first segment."""
    length = f"{info.duration:.1f} s of audio"
    if info.duration_after_vad < info.duration:
        length += f", {info.duration_after_vad:.1f} s without silence"
    sure = "" if info.language_probability is None else f", detected with probability {info.language_probability:.2f}"
    with beside_progress_bar():
        print_stderr(f"{escape_name(file)}: {length}; language {info.language}{sure}")


def audios(tasks: Sequence[TranscriptionTask], pcm_rate: int | None) -> Iterator[Any]:
    """Yield the recordings as `load_audio` takes them; it reads standard input only up to its limit."""
    for task in tasks:
        task.begin = time.perf_counter()
        yield task.recording.audio(pcm_rate)


def keep_result(
    arguments: argparse.Namespace, task: TranscriptionTask, result: Transcript | TranseptError, summary: RunSummary
) -> None:
    """Write a recording's files, and count it."""
    file, layout = task.recording.file, subtitle_layout(arguments)
    seconds = time.perf_counter() - task.begin
    if isinstance(result, TranseptError):
        summary.fail(file, in_flags(result, arguments.parser), seconds)
        return
    summary.seconds_of_audio += result.duration
    if errors := write_transcript(result, task.paths, layout):
        summary.fail(file, ". ".join(errors), seconds)
        return
    summary.done(task, seconds, result)
    if task.paths:
        written = ", ".join(map(escape_name, task.paths))
        print_stderr(f"{escape_name(file)}: wrote {written}")
        report(file, result, SubtitleLayout(**layout))


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
