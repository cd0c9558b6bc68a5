"""``transept watch FOLDER``: transcribe recordings as they appear in a folder, until it is interrupted.

The folder is listed once a second, which works on every file system, also over a network. `FolderWatch` decides which
recordings are complete and have no results yet; it keeps no state on disk, so the command resumes after a restart.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

from transept.cli.commands import COMMANDS
from transept.cli.engine_options import add_limit, add_model_options, engine_options
from transept.cli.flags import add_flag
from transept.cli.recordings import Missing, find_recordings
from transept.cli.result_files import add_file_options, add_name_option, make_folder, remove_unfinished, result_files
from transept.cli.run_summary import RunSummary, TranscriptionTask, counted
from transept.cli.terminal import escape_name, print_stderr
from transept.cli.transcribe import DEFAULT_MODEL, audios, keep_result
from transept.cli.transcribe_options import (
    add_options,
    check,
    check_formats,
    formats,
    speech_engine,
    transcription_options,
)
from transept.core.config import EngineConfig
from transept.errors import EngineClosedError, ParameterError, RequestFailedError, TranseptError
from transept.options import Option, declared, declares_options, take_options
from transept.speech.speaker_options import OF_SEVERAL

if TYPE_CHECKING:
    from transept.speech.transcriber import Transcriber

EVERY = 1.0  # seconds between two listings of the folder
MOST_USED = (
    *("--output-format", "--output-dir", "--recursive", "--settle", "--model", "--language", "--task", "--diarize"),
    *("--glossary", "--redact", "--device", "--quantization", "--threads"),
)


@declares_options("watch has no option")
@dataclass(frozen=True)
class WatchOptions:
    """The option that decides when a recording is complete."""

    settle: Annotated[
        float, Option("a file is complete once its size has not changed for S seconds", metavar="S", ge=0)
    ] = 5.0

    def __post_init__(self) -> None:
        take_options(self)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept watch``."""
    parser = commands.add_parser(
        "watch",
        help=COMMANDS["watch"],
        usage="transept watch [option ...] FOLDER",
        description="Transcribe the recordings of a folder, and those that appear in it, until Ctrl+C. A recording is "
        "skipped if its results are newer, also after a restart. One that fails is reported, and tried again once it "
        "changes.",
        epilog="Exit code: 0 after Ctrl+C or SIGTERM, 1 if the engine failed, 2 bad usage.",
        allow_abbrev=False,
        most_used=MOST_USED,
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of audio and video files")
    output = parser.add_argument_group("output")
    about = "write files: txt, srt (default), vtt, tsv, json, all of these (all), lrc, csv, ass, ttml, html, docx"
    add_file_options(output, formats, about, "folder of those files (default: beside each recording)")
    add_name_option(output)
    inputs = parser.add_argument_group("input")
    inputs.add_argument("--recursive", action="store_true", help="also watch its subfolders")
    add_flag(inputs, declared(WatchOptions)["settle"], default=WatchOptions.settle)
    add_limit(inputs, "max_audio_seconds")
    add_options(parser)
    add_model_options(parser, DEFAULT_MODEL)
    parser.set_defaults(run=watch, parser=parser, json=False, print_confidence=False)


def watch(arguments: argparse.Namespace) -> int:
    """Run ``transept watch``."""
    arguments.output_format = arguments.output_format or ("srt",)
    check(arguments.parser, arguments)
    check_formats(arguments.output_format)
    WatchOptions(arguments.settle)
    options = transcription_options(arguments)
    if not os.path.isdir(arguments.folder):
        arguments.parser.error(f"{escape_name(arguments.folder)} is not a folder")
    folder = None if arguments.output_dir is None else Path(arguments.output_dir)
    make_folder(folder, arguments.output_dir)
    EngineConfig(arguments.model, **engine_options(arguments))  # raises before the model is loaded
    watched = FolderWatch(arguments, folder)
    summary, num_begun = RunSummary(None), 0
    with _interrupted_by_sigterm():
        try:
            with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' and libraries' prints out of the output
                from transept.speech.transcriber import Transcriber

                engine = {**engine_options(arguments), **speech_engine(arguments, options)}
                transcriber = Transcriber(arguments.model, **engine)
            transcriber.job(b"", **of_one(options)).close()  # raises for options that the model does not support
            print_stderr(f"watching {escape_name(arguments.folder)}; Ctrl+C ends")
            while True:
                tasks = watched.ready(monotonic())
                if tasks:
                    num_begun += len(tasks)
                    _transcribe(arguments, transcriber, tasks, options, summary)
                else:
                    sleep(EVERY)
        except KeyboardInterrupt:
            print_stderr(last_line(summary, num_begun))
            return 0


def of_one(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one recording. Voices that are added are left out, because their file may be missing."""
    own = {name: value for name, value in options.items() if name not in OF_SEVERAL}
    if options.get("add_voices"):
        own.pop("voices", None)
        own["diarize"] = True
    return own


def last_line(summary: RunSummary, num_begun: int) -> str:
    """Return the line after an interruption. num_begun: number of recordings whose transcription began."""
    failed = f", {len(summary.failed)} failed" if summary.failed else ""
    num_left = num_begun - summary.num_done - len(summary.failed)
    left = f", {num_left} unfinished: the next run begins them again" if num_left > 0 else ""
    return f"ended: {counted(summary.num_done, 'recording')} transcribed{failed}{left}"


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGTERM, which service managers and containers send."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class FolderWatch:
    """Finds the recordings to transcribe. folder: for the results; None: beside each recording."""

    arguments: argparse.Namespace
    folder: Path | None
    seen: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)  # file -> its state, and since when
    done: dict[str, tuple[int, int]] = field(default_factory=dict)  # file -> its state when it was transcribed
    reported: set[str] = field(default_factory=set)  # problems that were reported

    def ready(self, now: float) -> list[TranscriptionTask]:
        """Return the recordings that are complete and have no results, each with its result files. now: seconds.

        A recording is returned again only if it changes.
        """
        found, missing = find_recordings([self.arguments.folder], recursive=self.arguments.recursive, allow_urls=False)
        self._report(missing)
        states = {each.file: state for each in found if (state := _state(each.file)) is not None}
        found = [each for each in found if each.file in states]
        self.seen = {
            file: self.seen[file] if file in self.seen and self.seen[file][0] == state else (state, now)
            for file, state in states.items()
        }
        try:
            paths = result_files(
                found,
                self.arguments.output_format,
                folder=self.folder,
                template=self.arguments.output_name,
                model=self.arguments.model,
            )
        except ParameterError as error:
            self._report([Missing(self.arguments.folder, str(error))])
            return []
        tasks = []
        for recording, own in zip(found, paths, strict=True):
            state, since = self.seen[recording.file]
            settled = now - since >= self.arguments.settle
            if settled and self.done.get(recording.file) != state:
                is_new = recording.file not in self.done
                self.done[recording.file] = state
                if not (is_new and _are_newer(own, state)):
                    tasks.append(TranscriptionTask(recording, own))
        return tasks

    def _report(self, missing: Sequence[Missing]) -> None:
        """Report each problem once. A folder without recordings is not a problem."""
        for each in missing:
            told = f"{each.file}: {each.reason}"
            if told not in self.reported and "this folder has no" not in each.reason:
                print_stderr(f"transept: {escape_name(each.file)}: {each.reason}")
                self.reported.add(told)


def _state(file: str) -> tuple[int, int] | None:
    """Return the size and the time of a file's last change; None if it is empty or gone."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if found.st_size else None


def _are_newer(paths: Sequence[Path], state: tuple[int, int]) -> bool:
    """Return True if all results exist and are not older than their recording."""
    return all(path.is_file() and path.stat().st_mtime_ns >= state[1] for path in paths)


def _transcribe(
    arguments: argparse.Namespace,
    transcriber: Transcriber,
    tasks: Sequence[TranscriptionTask],
    options: dict[str, Any],
    summary: RunSummary,
) -> None:
    """Transcribe recordings together, and write their results. Raises EngineClosedError if the engine has ended."""
    for folder in {path.parent for task in tasks for path in task.paths}:
        remove_unfinished(folder)
    tasks = [task for task in tasks if summary.can_write(task)]
    finished: set[int] = set()
    try:
        with contextlib.closing(transcriber.transcribe_as_completed(audios(tasks, None), **options)) as results:
            for index, result in results:
                finished.add(index)
                _keep(arguments, tasks[index], result, summary)
    except (TranseptError, KeyboardInterrupt):
        raise
    except Exception as error:  # of a library, for one of the files
        rest = [task for index, task in enumerate(tasks) if index not in finished]
        if len(rest) == 1:
            _keep(arguments, rest[0], RequestFailedError.of(error), summary)
            return
        for task in rest:
            _transcribe(arguments, transcriber, [task], options, summary)


def _keep(arguments: argparse.Namespace, task: TranscriptionTask, result: Any, summary: RunSummary) -> None:
    if isinstance(result, EngineClosedError):
        raise result
    keep_result(arguments, task, result, summary)
