"""Formats of transcript files, under openai-whisper's names and our own.

``Transcript.write``, the command line and the server call it. Each format is a function from segments to a file's text.
Text, tables and JSON are byte for byte openai-whisper's, except for control characters; its subtitles are in
`transept.compat.whisper`.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from transept.errors import ParameterError, shown, suggest
from transept.speech.output.advanced_substation import karaoke
from transept.speech.output.documents import web_page, word_document
from transept.speech.output.subtitles import Cue, SubtitleLayout, make_cues
from transept.speech.output.timed_text import timed_text
from transept.speech.segments import Segment, has_speakers

LINE_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # control characters, and other ends of a line
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")  # the same without tabs and line feeds
TIME_TAG = re.compile(r"[\[<](\d+:\d+(?:[.:]\d+)?)[\]>]")  # of lyrics


def write_transcript(
    file: str | Path | IO[Any],
    name: str | None,
    segments: Sequence[Segment],
    language: str,
    layout: SubtitleLayout,
) -> None:
    """Write a transcript to a path, or to an open file of text or of bytes (UTF-8), which stays open.

    name: of the format; None: by the suffix of the path or of the open file's name. layout: of subtitles; other formats
    ignore it.
    Raises ParameterError for an unknown format, for a layout without word times, and for another type of file; OSError
    if the file cannot be written.
    """
    if not isinstance(file, str | os.PathLike) and not hasattr(file, "write"):
        raise ParameterError(f"cannot write to {shown(file)}: give a path, or an open file", param="file", value=file)
    name = _format_of(file) if name is None else name
    if name in BINARY:
        _write_bytes(file, name, transcript_bytes(name, segments, language, layout))
        return
    text = format_transcript(name, segments, language, layout)
    if isinstance(file, str | os.PathLike):
        Path(file).write_text(text, encoding="utf-8", newline="\n")
        return
    try:
        file.write("")  # a file of bytes refuses text
    except TypeError:
        file.write(text.encode())
    else:
        file.write(text)


def _write_bytes(file: str | Path | IO[Any], name: str, data: bytes) -> None:
    if isinstance(file, str | os.PathLike):
        Path(file).write_bytes(data)
        return
    try:
        file.write(data)
    except TypeError:  # a file of text refuses bytes
        message = f"{name} is not text: open the file for bytes, with open(name, 'wb')"
        raise ParameterError(message, param="file", value=file) from None


def transcript_bytes(name: str, segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> bytes:
    """Return a transcript as the bytes of a file, in any format. Raises as `write_transcript`."""
    if name in BINARY:
        return BINARY[name]([_printable(each, in_row=False) for each in segments], language)
    return format_transcript(name, segments, language, layout).encode()


def format_transcript(name: str, segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    """Return a transcript as the text of a file. The arguments and the errors are those of `write_transcript`."""
    if name in BINARY:
        raise ParameterError(f"{{format}} {name} is not text; write it to a file", param="format", value=name)
    if name not in FORMATS:
        known = (*FORMATS, *BINARY)
        raise ParameterError(f"there is no {{format}} {name!r}.{suggest(str(name), known)}", param="format", value=name)
    if name != "json":  # which escapes them
        segments = [_printable(each, in_row=name in ROWS) for each in segments]
    return FORMATS[name](segments, language, layout)


def _printable(segment: Segment, in_row: bool) -> Segment:
    """Return a segment with a blank in place of each control character, which could break a file or change a terminal.

    in_row: True if the text must be on one line; otherwise it keeps tabs and line feeds.
    """
    words, speaker = segment.words, segment.speaker
    return dataclasses.replace(
        segment,
        text=(LINE_CONTROLS if in_row else CONTROLS).sub(" ", segment.text.replace("\r\n", "\n").replace("\r", "\n")),
        words=words and [dataclasses.replace(word, word=LINE_CONTROLS.sub(" ", word.word)) for word in words],
        speaker=speaker and LINE_CONTROLS.sub(" ", speaker),
    )


def _format_of(file: str | Path | IO[Any]) -> str:
    """Return the format of a file's suffix. Raises ParameterError for a file without a known suffix."""
    is_open = hasattr(file, "write")
    path = getattr(file, "name", None) if is_open else file
    if not isinstance(path, str | os.PathLike):
        raise ParameterError(
            f"an open {type(file).__name__} has no name with a suffix for the format; give one, such as "
            "{format='srt'}",
            param="format",
        )
    suffix = Path(path).suffix
    name = suffix.lower().removeprefix(".")
    if name not in (known := (*FORMATS, *BINARY)):
        given = f"there is no format {suffix!r}" if suffix else "it has no suffix for the format"
        raise ParameterError(f'cannot write "{path}": {given}.{suggest(name, known)}', param="file", value=file)
    return name


def _plain_text(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    return "".join(f"{segment.attribution}{segment.text.strip()}\n" for segment in segments)


def _subrip(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    def without_arrows(text: str) -> str:  # the arrow between two times must stay the only one
        return text.replace("-->", "->")

    return subrip(
        dataclasses.replace(cue, text=without_arrows(cue.text), speaker=cue.speaker and without_arrows(cue.speaker))
        for cue in make_cues(segments, layout, language)
    )


def subrip(cues: Iterable[Cue]) -> str:
    """Return a SubRip file's text."""
    return "".join(
        f"{number}\n{clock(cue.start, hours=True, point=',')} --> {clock(cue.end, hours=True, point=',')}\n"
        f"{cue.attributed}\n\n"
        for number, cue in enumerate(cues, 1)
    )


def _web_video_text(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    # A voice span is not shown in the line.
    return web_video_text(make_cues(segments, layout, language, named=False, escape=partial(html.escape, quote=False)))


def web_video_text(cues: Iterable[Cue]) -> str:
    """Return a WebVTT file's text. The cues' texts are markup with escaped words."""
    text = "WEBVTT\n\n"
    for cue in cues:
        # A voice span lasts to the end of its cue.
        voice = "" if cue.speaker is None else f"<v {html.escape(cue.speaker, quote=False)}>"
        text += f"{clock(cue.start)} --> {clock(cue.end)}\n{voice}{cue.text}\n\n"
    return text


def _table(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    rows = _rows(segments)
    return "".join("\t".join(field.replace("\t", " ") for field in row) + "\n" for row in rows)


def _comma_separated(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows(_rows(segments))
    return written.getvalue()


def _rows(segments: Sequence[Segment]) -> Iterator[tuple[str, ...]]:
    """Yield a table's head and rows, with times in milliseconds, and with speakers if there are any.

    The fields and their order are whisper.cpp's.
    """
    with_speakers = has_speakers(segments)
    yield ("start", "end", "speaker", "text") if with_speakers else ("start", "end", "text")
    for segment in segments:
        times = (str(round(1000 * segment.start)), str(round(1000 * segment.end)))
        speaker = (segment.speaker or "",) if with_speakers else ()
        yield (*times, *speaker, segment.text.strip())


def _lyrics(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    lines = []
    for cue in make_cues(segments, dataclasses.replace(layout, highlight_words=False), language):
        seconds, hundredths = divmod(round(cue.start / 10), 100)
        text = TIME_TAG.sub(r"(\1)", " ".join(cue.attributed.split()))  # one line, with one time
        lines.append(f"[{seconds // 60:02d}:{seconds % 60:02d}.{hundredths:02d}]{text}\n")
    return "".join(lines)


def _json(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    listed = []
    for segment in segments:
        fields = segment.to_dict()
        if segment.words is not None:
            fields["words"] = [{"word": each.word, **vars(each)} for each in segment.words]
        listed.append(fields)
    text = "".join(segment.text for segment in segments)  # with the blank before its first word
    return json.dumps({"text": text, "segments": listed, "language": language})


TextFormat: TypeAlias = Literal["txt", "vtt", "srt", "tsv", "json", "lrc", "csv", "ass", "ttml", "html"]
FileFormat: TypeAlias = TextFormat | Literal["docx"]
FORMATS: dict[str, Callable[[Sequence[Segment], str, SubtitleLayout], str]] = {  # of TextFormat
    "txt": _plain_text,
    "vtt": _web_video_text,
    "srt": _subrip,
    "tsv": _table,
    "json": _json,
    "lrc": _lyrics,
    "csv": _comma_separated,
    "ass": lambda segments, language, layout: karaoke(segments, layout, language),
    "ttml": lambda segments, language, layout: timed_text(segments, layout, language),
    "html": web_page,
}
BINARY: dict[str, Callable[[Sequence[Segment], str], bytes]] = {"docx": word_document}
MEDIA_TYPES = {
    "txt": "text/plain",
    "vtt": "text/vtt",
    "srt": "application/x-subrip",
    "tsv": "text/tab-separated-values",
    "json": "application/json",
    "lrc": "text/plain",
    "csv": "text/csv",
    "ass": "text/x-ssa",
    "ttml": "application/ttml+xml",
    "html": "text/html",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}
ROWS = ("tsv", "csv")  # the formats with a line for each segment
SUBTITLES = ("srt", "vtt", "lrc", "ass", "ttml")  # the formats that look at the layout


def clock(milliseconds: int, *, hours: bool = False, point: str = ".") -> str:
    """Format a time as ``[HH:]MM:SS.mmm``. hours: True: also hours of 0."""
    seconds, milliseconds = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    full_hours, minutes = divmod(minutes, 60)
    head = f"{full_hours:02d}:" if hours or full_hours else ""
    return f"{head}{minutes:02d}:{seconds:02d}{point}{milliseconds:03d}"
