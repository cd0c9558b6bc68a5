"""WebVTT (https://www.w3.org/TR/webvtt1/): blocks between blank lines. The blocks with a timing are subtitles."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.subrip import (
    TIMING,
    check_time_lines,
    line_number,
    shown_lines,
    times_of,
    wrong_times,
)

BLOCKS = re.compile(r"\n[ \t]*\n+")
COMMENT = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|\Z)")
ARROW = re.compile(r"^.*-->.*$", re.MULTILINE)
TAG = re.compile(r"<[^<>]*>")
VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]+([^<>]+)>")


def read_web_video_text(text: str) -> list[Cue]:
    """Return the subtitles of a file's text with line feeds.

    speaker: of a voice span; None if the subtitle has several.
    """
    cues = []
    for place, block in _blocks(text):
        if COMMENT.match(block):
            continue
        check_time_lines(text, place, block)
        timing = TIMING.search(block)
        if timing is None and (arrow := ARROW.search(block)):
            raise wrong_times(arrow[0], line_number(text, place + arrow.start()))
        if timing is None:
            continue
        body = block[timing.end() :]
        voices = list(dict.fromkeys(html.unescape(each.strip()) for each in VOICE.findall(body)))
        cues.append(
            Cue(
                *times_of(timing, text, place),
                html.unescape(shown_lines(body, TAG)),
                voices[0] if len(voices) == 1 else None,
            )
        )
    return cues


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Yield the blocks of a text, each after its place."""
    begin = 0
    for gap in BLOCKS.finditer(text):
        yield begin, text[begin : gap.start()]
        begin = gap.end()
    yield begin, text[begin:]
