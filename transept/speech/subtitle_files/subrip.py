"""SubRip (.srt), which has no specification: the variants that programs write are all read."""

from __future__ import annotations

import itertools
import re

from transept.errors import ParameterError, shown
from transept.speech.output.subtitles import Cue

CLOCK = r"(?:(\d+):)?(\d{1,3}):(\d{1,2})(?:[,.](\d{1,3}))?"
TIMING = re.compile(rf"^[ \t]*{CLOCK}[ \t]*-->[ \t]*{CLOCK}(?:[ \t].*)?$", re.MULTILINE)  # a position may follow
TIME_LINES = (  # right or wrong: an arrow beside a time, between two numbers, or after the number of a subtitle
    re.compile(r"^((?=.*\d[:.,]\d).*-->.*)$", re.MULTILINE),
    re.compile(r"^([ \t]*[-\d:.,]*\d[ \t]*-{0,2}>[ \t]*[-\d:.,]*\d[ \t]*)$", re.MULTILINE),
    re.compile(r"(?:\A|\n[ \t]*\n)[ \t]*\d+[ \t]*\n(.*-->.*)$", re.MULTILINE),
)
NUMBERED = re.compile(r"\d+[ \t]*\n\Z")
NUMBER = re.compile(r"\n[ \t]*\d+[ \t]*\n*\Z")  # of the next subtitle
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|\{\\[^{}]*\}")  # <i>, <font color=...>, {\an8}


def read_subrip(text: str) -> list[Cue]:
    """Return the subtitles of a file's text with line feeds; blank lines within one are dropped."""
    check_time_lines(text)
    timings = list(TIMING.finditer(text))
    numbered = bool(timings) and NUMBERED.search(text[: timings[0].start()]) is not None
    cues = []
    for timing, following in itertools.zip_longest(timings, timings[1:]):
        end = len(text) if following is None else following.start()
        body = text[timing.end() : end]
        if numbered and end < len(text):
            body = NUMBER.sub("", body)
        cues.append(Cue(*times_of(timing, text), shown_lines(body)))
    return cues


def check_time_lines(text: str, place: int = 0, part: str | None = None) -> None:
    """Raise ParameterError, which names the line, if a line that should have two times has not.

    part: of the file's text, at a place; None: all of it.
    """
    part = text if part is None else part
    for found in (each for pattern in TIME_LINES for each in pattern.finditer(part)):
        if not TIMING.fullmatch(found[1]):
            raise wrong_times(found[1], line_number(text, place + found.start(1)))


def wrong_times(written: str, line: int) -> ParameterError:
    """Return the error about a line of a file that should have two times."""
    message = (
        f"line {line}: {shown(written.strip())} has no start and end of a subtitle; write them such as "
        "00:00:01,000 --> 00:00:02,500"
    )
    return ParameterError(message, param="text")


def times_of(timing: re.Match[str], text: str, place: int = 0) -> tuple[int, int]:
    """Return the start and the end of a time line. place: of the searched part in the file's text.

    Raises ParameterError, which names the line, for an end before the start.
    """
    times = milliseconds(*timing.groups()[:4]), milliseconds(*timing.groups()[4:])
    check_order(times, timing[0], line_number(text, place + timing.start()))
    return times


def check_order(times: tuple[int, int], written: str, line: int) -> None:
    """Raise ParameterError for an end before the start. written: the text of the times, on a line of the file."""
    if times[1] < times[0]:
        message = f"line {line}: the subtitle ends before it starts, {shown(written.strip())}; correct its times"
        raise ParameterError(message, param="text")


def line_number(text: str, place: int) -> int:
    """Return the number of the line at a place, from 1."""
    return text.count("\n", 0, place) + 1


def shown_lines(body: str, markup: re.Pattern[str] = MARKUP) -> str:
    """Return a subtitle's lines without markup, outer blanks and empty lines."""
    lines = (line.strip() for line in markup.sub("", body).split("\n"))
    return "\n".join(line for line in lines if line)


def milliseconds(hours: str | None, minutes: str, seconds: str, fraction: str | None) -> int:
    """Return the time of a clock's digits."""
    whole = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int((fraction or "0").ljust(3, "0"))
