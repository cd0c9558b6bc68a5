"""WebVTT (https://www.w3.org/TR/webvtt1/): blocks between blank lines. The blocks with a timing are subtitles."""

from __future__ import annotations

import html
import re

from transept.speech.output.subtitles import Cue
from transept.speech.subtitle_files.subrip import TIMING, milliseconds, shown_lines

BLOCKS = re.compile(r"\n[ \t]*\n+")
COMMENT = re.compile(r"(?:NOTE|STYLE|REGION)(?:\s|\Z)")
TAG = re.compile(r"<[^<>]*>")
VOICE = re.compile(r"<v(?:\.[^\s<>]*)?[ \t]+([^<>]+)>")


def read_web_video_text(text: str) -> list[Cue]:
    """Return the subtitles of a file's text with line feeds.

    speaker: of a voice span; None if the subtitle has several.
    """
    cues = []
    for block in BLOCKS.split(text):
        timing = TIMING.search(block)
        if timing is None or COMMENT.match(block):
            continue
        body = block[timing.end() :]
        voices = list(dict.fromkeys(html.unescape(each.strip()) for each in VOICE.findall(body)))
        cues.append(
            Cue(
                milliseconds(*timing.groups()[:4]),
                milliseconds(*timing.groups()[4:]),
                html.unescape(shown_lines(body, TAG)),
                voices[0] if len(voices) == 1 else None,
            )
        )
    return cues
