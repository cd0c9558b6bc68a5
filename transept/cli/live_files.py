"""LiveFile: a file that grows with a live transcription, so that it is complete up to the last utterance."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import TracebackType
from typing import TextIO

from transept.cli.captions import event_fields
from transept.cli.terminal import escape_name, print_stderr
from transept.errors import ParameterError
from transept.speech.live.events import LiveEvent, Tentative, UtteranceEnded
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import format_transcript

FORMATS = ("txt", "srt", "vtt", "jsonl")
LAYOUT = SubtitleLayout(max_line_width=42, max_line_count=2)  # since an utterance may be long
HEAD = {"vtt": "WEBVTT\n\n"}


class LiveFile:
    """A file for a ``with`` block, of the format of its suffix. An existing file is replaced.

    Raises ParameterError if it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.format = path, path.suffix[1:]
        self._num_cues = 0
        self._file: TextIO | None = None

    def __enter__(self) -> LiveFile:
        try:
            self._file = self.path.open("w", encoding="utf-8", newline="\n")
            self._write(HEAD.get(self.format, ""))
        except OSError as error:
            message = f"{{output}}: cannot write {self.path}: {error.strerror}"
            raise ParameterError(message, param="output", value=str(self.path.with_suffix(""))) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None
        with contextlib.suppress(OSError):  # unwritten text of a full disk; `add` reported it
            self._file.close()

    def add(self, event: LiveEvent) -> bool:
        """Write an event: of ``jsonl`` all but tentative text, of other formats the utterances.

        Returns False if the file cannot be written, such as on a full disk, and prints the error to standard error.
        """
        try:
            self._add(event)
        except OSError as error:
            print_stderr(f"transept: cannot write {escape_name(self.path)}: {error.strerror}; it has no later text")
            return False
        return True

    def _add(self, event: LiveEvent) -> None:
        if self.format == "jsonl":
            if not isinstance(event, Tentative):
                self._write(json.dumps(event_fields(event), ensure_ascii=False) + "\n")
        elif isinstance(event, UtteranceEnded) and event.segment is not None:
            text = format_transcript(self.format, [event.segment], event.segment.language or "en", LAYOUT)
            text = text.removeprefix(HEAD.get(self.format, ""))
            self._write(self._renumbered(text) if self.format == "srt" else text)

    def _renumbered(self, text: str) -> str:
        """Return SubRip cues, numbered from the last cue of the file on."""
        found = ""
        for cue in text.rstrip("\n").split("\n\n"):
            self._num_cues += 1
            found += f"{self._num_cues}\n" + cue.partition("\n")[2] + "\n\n"
        return found

    def _write(self, text: str) -> None:
        assert self._file is not None
        self._file.write(text)
        self._file.flush()
