"""Read transcript files into the dict that `Transcript.from_dict` takes; `Transcript.read` calls it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from transept.errors import ParameterError, shown, suggest
from transept.speech.dialects import transcript_dict, with_blanks
from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files import reading as subtitles
from transept.speech.word_breaks import whole_text

READ_FORMATS = ("json", *subtitles.READERS)
SUFFIXES = {".json": "json", **subtitles.SUFFIXES}
NAME = re.compile(r"(?=[^\W\d])(?=(?:[^\s:]+[ \t]*){1,3}:)([^:\n]{1,40}?)[ \t]*:[ \t\n]+(?=\S)")  # of up to three words
SPEAKERS_IN_TEXT = "speakers_in_text"  # field of a dict whose speakers were read from the text of subtitles
BEGINNINGS = {  # of files whose names are not known, in this order
    "vtt": re.compile(r"WEBVTT"),
    "ttml": re.compile(r"\s*<"),
    "ass": re.compile(r"\s*\[Script Info\]"),
    "json": re.compile(r"\s*[\[{]"),
    "srt": re.compile(""),
}
MAX_BYTES = 256 << 20  # of a file


def read_transcript(file: str | Path | BinaryIO, format: str | None = None) -> dict[str, Any]:
    """Return the dict of a file, or of an open one, such as standard input, whose beginning shows its format.

    Raises ParameterError if it is not a transcript, OSError if it cannot be opened.
    """
    if format is not None and format not in READ_FORMATS:
        message = f"there is no {{format}} {format!r} to read.{suggest(str(format), READ_FORMATS)}"
        raise ParameterError(message, param="format", value=format)
    if not isinstance(file, str | os.PathLike):
        if not hasattr(file, "read"):
            raise ParameterError(f"cannot read {shown(file)}: give a path", param="file", value=file)
        return _of_bytes(file.read(MAX_BYTES + 1), format, name_of(file))
    path = Path(file)
    path.stat()  # report a missing file before an unknown suffix
    name = SUFFIXES.get(path.suffix.lower()) if format is None else format
    if name is None:
        message = (
            f'cannot read "{path}": transcripts are read from {", ".join(SUFFIXES)}; other names need a {{format}}'
        )
        raise ParameterError(message, param="file", value=file, others=["format"])
    with path.open("rb") as opened:
        return _of_bytes(opened.read(MAX_BYTES + 1), name, f'"{path}"')


def name_of(file: Any) -> str:
    """Return what errors call a file, given as a path or open."""
    if isinstance(file, str | os.PathLike):
        return f'"{file}"'
    is_standard_input = sys.stdin is not None and file in (sys.stdin, getattr(sys.stdin, "buffer", None))
    return "standard input" if is_standard_input else "the open file"


def _of_bytes(data: bytes, format: str | None, file: str) -> dict[str, Any]:
    """Return the dict of a file's content. format: None: as its beginning shows. file: what errors call it."""
    try:
        if len(data) > MAX_BYTES:
            raise ParameterError(f"it has more than {MAX_BYTES >> 20} MB; split it", param="file")
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        name = format or next(name for name, begins in BEGINNINGS.items() if begins.match(text))
        return _of_json(text) if name == "json" else _of_cues(subtitles.read_subtitles(text, name))
    except UnicodeDecodeError as error:
        message = (
            f"cannot read {file}: line {subtitles.line_of(error)} is not text in UTF-8; convert it, such as with iconv"
        )
        raise ParameterError(message, param="file", value=file) from None
    except ParameterError as error:
        raise error.at(f"cannot read {file}", param="file") from None


def _of_json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = " Give the whole file of a transcript."
        if text.lstrip().startswith("{") and "Extra data" in str(error):
            lines = " If each line is a transcript, write one of them to a file."
        raise ParameterError(f"it is not JSON ({error}).{lines}", param="file") from None
    return transcript_dict(value)


def _of_cues(cues: Sequence[Cue]) -> dict[str, Any]:
    """Return the dict of subtitles, in order of their starts. Their texts keep the ends of lines.

    If all subtitles begin with ``Name:``, or half of them do and a name repeats, the names are speakers. The dict then
    has SPEAKERS_IN_TEXT.
    """
    cues = sorted(cues, key=lambda cue: cue.start)
    names = [found[1] for cue in cues if (found := NAME.match(cue.text))]
    repeats = len({*names}) < len(names)
    in_text = bool(names) and not any(cue.speaker for cue in cues) and 2 * len(names) >= (1 + (not repeats)) * len(cues)
    if in_text:
        cues = [_attributed(cue) for cue in cues]
    segments: list[Any] = [
        {
            "start": cue.start / 1000,
            "end": cue.end / 1000,
            "text": "\n".join(" ".join(line.split()) for line in cue.text.split("\n")),
            "speaker": cue.speaker,
        }
        for cue in cues
    ]
    segments = with_blanks(segments)
    return {"segments": segments, "text": whole_text(each["text"] for each in segments), SPEAKERS_IN_TEXT: in_text}


def _attributed(cue: Cue) -> Cue:
    named = NAME.match(cue.text)
    return cue if named is None else Cue(cue.start, cue.end, cue.text[named.end() :], named[1])
