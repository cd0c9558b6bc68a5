"""Output of ``transept live``: captions that are redrawn on a terminal, lines of final text elsewhere, or JSON."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from typing import Any

from transept.cli.segment_printer import has_colours
from transept.cli.terminal import escape
from transept.speech.live.events import Committed, LiveEvent, Tentative, UtteranceEnded

CLEAR_LINE, DIM, RESET = "\r\x1b[K", "\x1b[2m", "\x1b[0m"


class Lines:
    """Printed final text, a line for each utterance."""

    def __init__(self) -> None:
        self._has_text = False

    def show(self, event: LiveEvent) -> None:
        """Print the event's final words, and end the line after an utterance."""
        if isinstance(event, Committed):
            text = escape(event.text)
            print(text if self._has_text else text.lstrip(), end="", flush=True)
            self._has_text = True
        elif isinstance(event, UtteranceEnded):
            self.end()

    def end(self) -> None:
        """End the line, if there is one."""
        if self._has_text:
            print(flush=True)
        self._has_text = False


class Captions:
    """The last line of the terminal, redrawn as text changes. Full lines of final text stay above it."""

    def __init__(self) -> None:
        self._line = ""  # final text of the last line
        self._tentative = ""
        self._dims = has_colours(sys.stdout)

    def show(self, event: LiveEvent) -> None:
        """Redraw the line."""
        if isinstance(event, Committed):
            self._tentative = ""
            self._line = (self._line + escape(event.text).replace("\n", " ")).lstrip()
            self._break_line()
            self._draw()
        elif isinstance(event, Tentative):
            self._tentative = escape(event.text).replace("\n", " ")
            self._draw()
        elif isinstance(event, UtteranceEnded):
            self.end()

    def end(self) -> None:
        """End the line, if it has text."""
        self._tentative = ""
        if self._line:
            print(f"{CLEAR_LINE}{self._line}", flush=True)
        self._line = ""

    def _break_line(self) -> None:
        width = shutil.get_terminal_size().columns - 1
        while len(self._line) > width:
            at = self._line.rfind(" ", 1, width + 1)
            at = width if at < 1 else at
            print(f"{CLEAR_LINE}{self._line[:at]}")
            self._line = self._line[at:].lstrip()

    def _draw(self) -> None:
        room = max(0, shutil.get_terminal_size().columns - 1 - len(self._line))
        shown = self._tentative if self._line else self._tentative.lstrip()
        tentative = f"{DIM}{shown[:room]}{RESET}" if self._dims else shown[:room]
        print(f"{CLEAR_LINE}{self._line}{tentative}", end="", flush=True)


def event_fields(event: LiveEvent) -> dict[str, Any]:
    """Return an event as plain values: ``{"event": "committed", "words": [...], "lag": 0.8}``."""
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(event).__name__)[1:]
    fields: dict[str, Any] = {"event": name}
    for field in dataclasses.fields(event):
        fields[field.name] = getattr(event, field.name)
    if isinstance(event, Committed):
        fields = {"event": name, "text": event.text, **fields, "words": [dict(vars(word)) for word in event.words]}
    elif isinstance(event, UtteranceEnded):
        fields["segment"] = None if event.segment is None else event.segment.to_dict()
    return fields
