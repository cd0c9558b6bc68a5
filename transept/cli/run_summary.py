"""RunSummary: what became of the recordings of ``transept transcribe``, told at once and summed up at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from transept.cli.manifest import Manifest
from transept.cli.recordings import Recording
from transept.cli.result_files import are_there
from transept.cli.terminal import escape_name, print_stderr

if TYPE_CHECKING:
    from transept.speech.transcript import Transcript

FAILURES_NAMED = 10  # at the end; each was told when it failed


@dataclass
class TranscriptionTask:
    """One recording and the files to write of it. begin: when it was opened, by time.perf_counter."""

    recording: Recording
    paths: list[Path]
    begin: float = 0.0

    def is_done(self) -> bool:
        """Whether all its files are there; each is whole then."""
        return are_there(self.paths)


@dataclass
class RunSummary:
    """What became of the recordings. manifest: that is told, too. seconds_of_audio: of those that were transcribed."""

    manifest: Manifest | None
    seconds_of_audio: float = 0.0
    num_done: int = 0
    num_skipped: int = 0
    failed: list[str] = field(default_factory=list)

    def done(self, task: TranscriptionTask, seconds: float, transcript: Transcript) -> None:
        """Count a recording that is transcribed and written. seconds: of work."""
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
        """A recording is left out, whose files are there; a manifest that knows so is not told again."""
        self.num_skipped += 1
        if self.manifest is not None and task.recording.file not in self.manifest.finished:
            self.manifest.add(task.recording.file, "skipped", outputs=task.paths)

    def fail(self, file: str, reason: str, seconds: float | None = None) -> None:
        """Tell of a failure."""
        self.failed.append(file)
        shown = reason.replace(file, escape_name(file))
        print_stderr(f"transept: {escape_name(file)}: {shown}")
        if self.manifest is not None:
            self.manifest.add(file, "failed", error=reason, seconds=seconds)

    def line(self, total: int) -> str:
        """Of several recordings. total: of all that were to be transcribed."""
        counts = [f"{self.num_done} transcribed"]
        counts += [f"{self.num_skipped} skipped, whose files were there"] if self.num_skipped else []
        if self.failed:
            more = ", ..." if len(self.failed) > FAILURES_NAMED else ""
            named = ", ".join(map(escape_name, self.failed[:FAILURES_NAMED]))
            counts.append(f"{len(self.failed)} failed ({named}{more})")
        return f"{total} recording{'s' if total != 1 else ''}: {', '.join(counts)}"
