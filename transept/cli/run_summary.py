"""RunSummary: report the results of ``transept transcribe``: each at once, and their numbers at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from transept.cli.manifest import Manifest
from transept.cli.recordings import Recording
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

    def done(self, task: TranscriptionTask, seconds: float, transcript: Transcript) -> None:
        """Count a transcribed recording. seconds: time that it took."""
        self.num_done += 1
        if transcript.reason is not None:
            print_stderr(f"transept: {escape_name(task.recording.file)}: no text: {transcript.reason}")
        if self.manifest is not None:
            self.manifest.add(
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
            self.manifest.add(task.recording.file, "skipped", outputs=task.paths)

    def fail(self, file: str, reason: str, seconds: float | None = None) -> None:
        """Report a failure. seconds: time that it took."""
        self.failed.append(file)
        shown = reason.replace(file, escape_name(file))
        print_stderr(f"transept: {escape_name(file)}: {shown}")
        if self.manifest is not None:
            self.manifest.add(file, "failed", error=reason, seconds=seconds)

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
