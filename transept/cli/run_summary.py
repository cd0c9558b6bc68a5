"""RunSummary: report the results of ``transept transcribe``: each at once, and their numbers at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transept.cli.manifest import Manifest, ManifestError
from transept.cli.recordings import Recording
from transept.cli.result_files import unwritable
from transept.cli.terminal import escape_name, print_stderr

if TYPE_CHECKING:
    from transept.speech.transcript import Transcript

FAILURES_NAMED = 10  # in the last line; each failure was reported at once


@dataclass
class TranscriptionTask:
    """One recording, and the files to write its transcript to. begin: when it was opened, by time.perf_counter."""

    recording: Recording
    paths: list[Path]
    begin: float = 0.0


@dataclass
class RunSummary:
    """The results so far. manifest: also gets them, if any. seconds_of_audio: length of the transcribed recordings."""

    manifest: Manifest | None
    seconds_of_audio: float = 0.0
    num_done: int = 0
    num_skipped: int = 0
    failed: list[str] = field(default_factory=list)
    manifest_failed: bool = False  # its file could not be written; it gets no further lines

    def done(self, task: TranscriptionTask, seconds: float, transcript: Transcript) -> None:
        """Count a transcribed recording. seconds: time that it took."""
        self.num_done += 1
        if transcript.reason is not None:
            print_stderr(f"transept: {escape_name(task.recording.file)}: no text: {transcript.reason}")
        self._note(
            task.recording.file,
            "done",
            seconds=seconds,
            audio_seconds=transcript.duration,
            outputs=task.paths,
            warnings=transcript.warnings,
            reason=transcript.reason,
        )

    def skip(self, task: TranscriptionTask) -> None:
        """Count a recording whose files exist. It gets a line in the manifest, unless it already has one."""
        self.num_skipped += 1
        if self.manifest is not None and task.recording.file not in self.manifest.finished:
            self._note(task.recording.file, "skipped", outputs=task.paths)

    def fail(self, file: str, reason: str, seconds: float | None = None) -> None:
        """Report a failure. seconds: time that it took."""
        self.failed.append(file)
        shown = reason.replace(file, escape_name(file))
        print_stderr(f"transept: {escape_name(file)}: {shown}")
        self._note(file, "failed", error=reason, seconds=seconds)

    def can_write(self, task: TranscriptionTask) -> bool:
        """Return True if the files of a recording can be written; otherwise report a failure."""
        if (why := unwritable(task.paths)) is not None:
            self.fail(task.recording.file, why)
        return why is None

    def _note(self, file: str, status: Literal["done", "failed", "skipped"], **values: Any) -> None:
        """Add a line to the manifest. If that fails, report it, and go on without a manifest."""
        if self.manifest is None or self.manifest_failed:
            return
        try:
            self.manifest.add(file, status, **values)
        except ManifestError as error:
            self.manifest_failed = True
            print_stderr(f"transept: {error}; it has no line for {escape_name(file)} and later recordings")

    def line(self, total: int) -> str:
        """Return the last line, for several recordings. total: number of recordings to transcribe."""
        counts = [f"{self.num_done} transcribed"]
        counts += [f"{self.num_skipped} skipped, whose files exist"] if self.num_skipped else []
        counts += [failures(self.failed)] if self.failed else []
        return f"{counted(total, 'recording')}: {', '.join(counts)}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``2 rows``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def failures(files: Sequence[str]) -> str:
    """Return the number and the names of failed files; of many, the first FAILURES_NAMED names."""
    named = [*map(escape_name, files[:FAILURES_NAMED]), *(["..."] if len(files) > FAILURES_NAMED else [])]
    return f"{len(files)} failed ({', '.join(named)})"
