"""SubRip (.srt), which has no specification: the variants that programs write are all read."""

from __future__ import annotations

import itertools
import re

from transept.speech.output.subtitles import Cue

CLOCK = r"(?:(\d+):)?(\d{1,3}):(\d{1,2})(?:[,.](\d{1,3}))?"
TIMING = re.compile(rf"^\s*{CLOCK}\s*-->\s*{CLOCK}.*$", re.MULTILINE)  # a position may follow
NUMBERED = re.compile(r"\d+[ \t]*\n\Z")
NUMBER = re.compile(r"\n[ \t]*\d+[ \t]*\n*\Z")  # of the next subtitle
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")  # <i>, <font color=...>, {\an8}


def read_subrip(text: str) -> list[Cue]:
    """Return the subtitles of a file's text with line feeds; blank lines within one are dropped."""
    timings = list(TIMING.finditer(text))
    numbered = bool(timings) and NUMBERED.search(text[: timings[0].start()]) is not None
    cues = []
    for timing, following in itertools.zip_longest(timings, timings[1:]):
        end = len(text) if following is None else following.start()
        body = text[timing.end() : end]
        if numbered and end < len(text):
            body = NUMBER.sub("", body)
        cues.append(Cue(milliseconds(*timing.groups()[:4]), milliseconds(*timing.groups()[4:]), shown_lines(body)))
    return cues


def shown_lines(body: str, markup: re.Pattern[str] = MARKUP) -> str:
    """Return a subtitle's lines without markup, outer blanks and empty lines."""
    lines = (line.strip() for line in markup.sub("", body).split("\n"))
    return "\n".join(line for line in lines if line)


def milliseconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> int:
    """Return the time of a clock's digits."""
    whole = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "0").ljust(3, "0"))
