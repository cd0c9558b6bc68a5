"""Read subtitle files: SubRip, WebVTT, TTML and Advanced SubStation Alpha.

``transept check-subtitles`` calls it. Readers are tolerant of the files that programs write in practice, and return the
text without markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transept.errors import ParameterError, suggest
from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.subrip import read_subrip
from transept.speech.subtitle_files.substation import read_substation
from transept.speech.subtitle_files.ttml import read_ttml
from transept.speech.subtitle_files.web_video_text import read_web_video_text

READERS: dict[str, Callable[[str], list[Cue]]] = {
    "srt": read_subrip,
    "vtt": read_web_video_text,
    "ttml": read_ttml,
    "ass": read_substation,
}
UNDERLINED = "<u>"  # in files with highlight_words
EMPTY = {  # of each format, a file without subtitles
    "srt": re.compile(r"\s*\Z"),
    "vtt": re.compile(r"WEBVTT\b"),
    "ttml": re.compile(r"(?=.*<(?:\w+:)?tt\b)(?!.*<(?:\w+:)?p\b)|\s*\Z", re.DOTALL),
    "ass": re.compile(r"(?=.*\[Events\])(?!.*\nDialogue:)|\s*\Z", re.DOTALL),
}
SUFFIXES = {".ssa": "ass", ".xml": "ttml", ".dfxp": "ttml", ".itt": "ttml"} | {f".{name}": name for name in READERS}


def read_subtitles(text: str, format: str) -> list[Cue]:
    """Return the subtitles of a file's text, in the order of the file. format: srt, vtt, ttml or ass.

    Raises ParameterError for another format, for a text that is not of the format, and for a subtitle without times.
    """
    if format not in READERS:
        message = f"no subtitles are read from the {{format}} {format!r}.{suggest(str(format), READERS)}"
        raise ParameterError(message, param="format", value=format)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        return []
    cues = READERS[format](text)
    if UNDERLINED in text:
        cues = _joined_copies(cues)
    if not cues and not EMPTY[format].match(text):
        message = f"the text has no subtitles in the format {format}; give its actual {{format}}"
        raise ParameterError(message, param="format", value=format)
    return cues


def _joined_copies(cues: list[Cue]) -> list[Cue]:
    """Join adjacent copies of a subtitle, each of which underlines another word."""
    found: list[Cue] = []
    for cue in cues:
        if found and (cue.start, cue.text, cue.speaker) == (found[-1].end, found[-1].text, found[-1].speaker):
            found[-1] = replace(found[-1], end=cue.end)
        else:
            found.append(cue)
    return found


def line_of(error: UnicodeDecodeError) -> int:
    """Return the number of the line with the byte that is not text."""
    return 1 + error.object.count(b"\n", 0, error.start)


def read_subtitle_file(path: str | Path) -> list[Cue]:
    """Return the subtitles of a file in UTF-8, or in UTF-16 with a byte order mark. Its suffix names the format.

    Raises ParameterError for another suffix or encoding, and as `read_subtitles`; OSError if it cannot be read.
    """
    path = Path(path)
    name = SUFFIXES.get(path.suffix.lower())
    if name is None:
        given = f"has the suffix {path.suffix!r}" if path.suffix else "has no suffix"
        raise ParameterError(f'"{path}" {given}; subtitles are read from {", ".join(SUFFIXES)}', param="file")
    content = path.read_bytes()
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeDecodeError as error:
        message = f'cannot read "{path}": line {line_of(error)} is not text in UTF-8; convert it, such as with iconv'
        raise ParameterError(message, param="file") from None
    try:
        return read_subtitles(text, name)
    except ParameterError as error:
        raise ParameterError(f'cannot read "{path}": {error}', param="file", value=str(path)) from None
