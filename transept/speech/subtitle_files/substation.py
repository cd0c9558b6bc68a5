"""Advanced SubStation Alpha (.ass) and its predecessor (.ssa): the dialogue lines of the section ``[Events]``."""

from __future__ import annotations

import re

from transept.errors import ParameterError, shown
from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.subrip import CLOCK, check_order, line_number, milliseconds, shown_lines

FIELDS = ("layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text")
LINE = re.compile(r"^(Format|Dialogue):[ \t]*(.*)$", re.MULTILINE)
OVERRIDE = re.compile(r"(?<!\\)\{[^}]*\}")
ESCAPES = {r"\N": "\n", r"\n": "\n", r"\h": " ", r"\{": "{", r"\}": "}", "\\\u2060": "\\"}
ESCAPE = re.compile(r"\\[Nnh{}\u2060]")
TIME = re.compile(CLOCK)


def read_substation(text: str) -> list[Cue]:
    """Return the subtitles of a file's text with line feeds, without override codes and drawings.

    speaker: the field ``Name``; the text does not repeat it.
    Raises ParameterError, which names the line, for a dialogue without a start and an end.
    """
    head, _, events = text.partition("[Events]")
    fields: tuple[str, ...] = FIELDS
    cues = []
    for found in LINE.finditer(events):
        kind, rest = found.groups()
        if kind == "Format":
            fields = tuple(each.strip().lower() for each in rest.split(","))
            continue
        line = dict(zip(fields, rest.split(",", len(fields) - 1), strict=False))
        if re.search(r"\\p[1-9]", line.get("text", "")):
            continue
        number = line_number(text, len(head) + len("[Events]") + found.start())
        start, end = (_time(line.get(name, ""), name, number) for name in ("start", "end"))
        check_order((start, end), found[0], number)
        plain = OVERRIDE.sub("", line.get("text", ""))
        shown = shown_lines(ESCAPE.sub(lambda found: ESCAPES[found[0]], plain), re.compile(r"(?!)"))
        speaker = line.get("name", "").strip() or None
        cues.append(Cue(start, end, shown if speaker is None else shown.removeprefix(f"{speaker}: "), speaker))
    return cues


def _time(text: str, name: str, line: int) -> int:
    """Return a time in milliseconds. name: of its field."""
    time = TIME.fullmatch(text.strip())
    if time is None:
        message = f"line {line}: the {name} {shown(text.strip())} is not a time; write it such as 0:00:01.00"
        raise ParameterError(message, param="text")
    return milliseconds(*time.groups())
