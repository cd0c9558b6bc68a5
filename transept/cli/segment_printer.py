"""SegmentPrinter: ``transept transcribe --verbose``, which prints segments with their times as they are found."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transept.cli.confidence import terminal_text
from transept.cli.terminal import escape_name

if TYPE_CHECKING:
    from transept.speech.segments import Segment


class SegmentPrinter:
    """Prints the segments of one file after those of the file before it.

    several: whether files are named. confidence: whether words are shown as sure as they are.
    """

    def __init__(self, files: Sequence[str], several: bool, confidence: bool) -> None:
        self.files, self.several, self.confidence = files, several, confidence
        self.turn = 0  # index of the file that is printed
        self.held: dict[int, list[Segment]] = {}  # of files whose turn has not come
        self.has_begun = False

    def __call__(self, index: int, segment: Segment) -> None:
        """Print a segment of a file, or hold it until it is that file's turn."""
        if index != self.turn:
            self.held.setdefault(index, []).append(segment)
            return
        with beside_progress_bar():
            self._print(segment)

    def next_file(self) -> None:
        """The file whose turn it is, is done."""
        self.turn += 1
        self.has_begun = False
        for segment in self.held.pop(self.turn, []):
            self._print(segment)

    def _print(self, segment: Segment) -> None:
        from transept.speech.output.writers import clock

        if not self.has_begun and self.several:
            print(f"{escape_name(self.files[self.turn])}:")
        self.has_begun = True
        start, end = (clock(round(1000 * seconds)) for seconds in (segment.start, segment.end))
        print(f"[{start} --> {end}] {terminal_text([segment], confidence=self.confidence)}", flush=True)


def beside_progress_bar() -> contextlib.AbstractContextManager[None]:
    """Takes the bar off the terminal while something else is printed."""
    from tqdm import tqdm

    return tqdm.external_write_mode()
