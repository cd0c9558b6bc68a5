"""The terminal's form of a transcript: segments with their times, and words coloured or marked by their probability.

For ``transept transcribe --verbose`` and ``--print-confidence``, and for ``transept align``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from transept.cli.terminal import escape, escape_name
from transept.speech.segments import has_speakers

if TYPE_CHECKING:
    from transept.speech.segments import Segment

# Terminal colours (of 256), from red to green. The cube of the probability chooses one, since most words have a
# high probability. Both as in whisper.cpp's --print-colors.
COLOURS = (196, 202, 208, 214, 220, 226, 190, 154, 118, 82)
UNSURE = 0.5  # probability below which a word is marked on a terminal without colours


class SegmentPrinter:
    """Print segments during transcription. A file's segments follow the previous file's segments.

    several: True to print file names. confidence: see `terminal_text`.
    """

    def __init__(self, files: Sequence[str], several: bool, confidence: bool) -> None:
        self.files, self.several, self.confidence = files, several, confidence
        self.turn = 0  # index of the file that is printed
        self.held: dict[int, list[Segment]] = {}  # segments of later files
        self.has_begun = False

    def __call__(self, index: int, segment: Segment) -> None:
        """Print a segment of a file, or hold it until it is that file's turn."""
        if index != self.turn:
            self.held.setdefault(index, []).append(segment)
            return
        with beside_progress_bar():
            self._print(segment)

    def next_file(self) -> None:
        """Continue with the next file, and print its segments so far."""
        self.turn += 1
        self.has_begun = False
        for segment in self.held.pop(self.turn, []):
            self._print(segment)

    def _print(self, segment: Segment) -> None:
        if not self.has_begun and self.several:
            print(f"{escape_name(self.files[self.turn])}:")
        self.has_begun = True
        print(timed(segment, terminal_text([segment], confidence=self.confidence)), flush=True)


def timed(segment: Segment, text: str) -> str:
    """Return a text after the times of its segment: ``[00:00.000 --> 00:02.000] text``."""
    from transept.speech.output.writers import clock

    start, end = (clock(round(1000 * seconds)) for seconds in (segment.start, segment.end))
    return f"[{start} --> {end}] {text}"


def beside_progress_bar() -> contextlib.AbstractContextManager[None]:
    """Clear the progress bar while something else is printed."""
    from tqdm import tqdm

    return tqdm.external_write_mode()


def has_colours(stream: TextIO) -> bool:
    """Return True for a terminal, unless NO_COLOR (no-color.org) or TERM=dumb is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_text(segments: Sequence[Segment], *, confidence: bool) -> str:
    """Return the segments' text, escaped. With speakers, each segment is a line.

    confidence: show words by their probability.
    """
    colours = has_colours(sys.stdout)

    def text_of(segment: Segment) -> str:
        return confident_text([segment], colours=colours) if confidence else escape(segment.text)

    if has_speakers(segments):
        return "\n".join(escape(each.attribution) + text_of(each).strip() for each in segments)
    return "".join(map(text_of, segments))


def confident_text(segments: Sequence[Segment], *, colours: bool) -> str:
    """Return the segments' words, escaped: in colours, or with the probability after each unsure word."""
    parts = []
    for segment in segments:
        for word in segment.words or ():
            text = escape(word.word)
            if colours:
                colour = COLOURS[min(int(word.probability**3 * len(COLOURS)), len(COLOURS) - 1)]
                text = f"\x1b[38;5;{colour}m{text}\x1b[0m"
            elif word.probability < UNSURE:
                text += f" [{word.probability:.0%}]"
            parts.append(text)
    return "".join(parts)
