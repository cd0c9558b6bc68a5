"""Advanced SubStation Alpha (.ass) and its predecessor (.ssa): the dialogue lines of the section ``[Events]``."""

from __future__ import annotations

import re

from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.subrip import CLOCK, milliseconds, shown_lines

FIELDS = ("layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text")
LINE = re.compile(r"^(Format|Dialogue):[ \t]*(.*)$", re.MULTILINE)
OVERRIDE = re.compile(r"(?<!\\)\{[^}]*\}")
ESCAPES = {r"\N": "\n", r"\n": "\n", r"\h": " ", r"\{": "{", r"\}": "}", "\\\u2060": "\\"}
ESCAPE = re.compile(r"\\[Nnh{}\u2060]")
TIME = re.compile(CLOCK)


def read_substation(text: str) -> list[Cue]:
    """Return the subtitles of a file's text with line feeds, without override codes and drawings.

    speaker: the field ``Name``; the text does not repeat it.
    """
    _, _, events = text.partition("[Events]")
    fields, cues = FIELDS, []
    for kind, rest in LINE.findall(events):
        if kind == "Format":
            fields = tuple(each.strip().lower() for each in rest.split(","))
            continue
        line = dict(zip(fields, rest.split(",", len(fields) - 1), strict=False))
        times = [TIME.fullmatch(line.get(name, "").strip()) for name in ("start", "end")]
        if None in times or re.search(r"\\p[1-9]", line.get("text", "")):
            continue
        start, end = (milliseconds(*time.groups()) for time in times if time is not None)
        plain = OVERRIDE.sub("", line.get("text", ""))
        shown = shown_lines(ESCAPE.sub(lambda found: ESCAPES[found[0]], plain), re.compile(r"(?!)"))
        speaker = line.get("name", "").strip() or None
        cues.append(Cue(start, end, shown if speaker is None else shown.removeprefix(f"{speaker}: "), speaker))
    return cues
