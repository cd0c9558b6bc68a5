"""``transept transcribe --print-confidence``: each word in a colour from red to green, or marked where it is unsure."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from transept.cli.terminal import escape
from transept.speech.segments import has_speakers

if TYPE_CHECKING:
    from transept.speech.segments import Segment

# Of the 256 colours of terminals, from red to green. Most words are sure, so what is told apart is the cube of the
# probability; both as in whisper.cpp's --print-colors.
COLOURS = (196, 202, 208, 214, 220, 226, 190, 154, 118, 82)
UNSURE = 0.5  # probability under which a word is marked where there are no colours


def has_colours(stream: TextIO) -> bool:
    """Whether a stream shows colours: a terminal, unless NO_COLOR (no-color.org) or TERM=dumb says otherwise."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_text(segments: Sequence[Segment], *, confidence: bool) -> str:
    """What segments say, for standard output; with speakers each on a line. confidence: how sure each word is, too."""
    if has_speakers(segments):
        return "\n".join(_line(segment, confidence=confidence) for segment in segments)
    if confidence:
        return confident_text(segments, colours=has_colours(sys.stdout))
    return escape("".join(segment.text for segment in segments))


def _line(segment: Segment, *, confidence: bool) -> str:
    text = confident_text([segment], colours=has_colours(sys.stdout)) if confidence else escape(segment.text)
    return escape(segment.attribution) + text.strip()


def confident_text(segments: Sequence[Segment], *, colours: bool) -> str:
    """The segments' text, printable: each word in its colour, or followed by its probability where that is low."""
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
