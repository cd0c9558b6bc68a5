"""Transcripts to read: a web page, and a document of Microsoft Word and LibreOffice, in paragraphs with speakers.

`transept.speech.output.writers` calls both functions.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from typing import Any

from transept.errors import require_packages
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.paragraphs import Paragraph, paragraphs
from transept.speech.segments import Segment

PAGE = """<!doctype html>
<html{language}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Transcript</title>
<style>
body {{ font: 1.05rem/1.6 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }}
time {{ color: GrayText; font-size: 0.85em; font-variant-numeric: tabular-nums; margin-inline-end: 0.5em; }}
:root {{ color-scheme: light dark; }}
</style>
</head>
<body>
<main>
{body}</main>
</body>
</html>
"""
LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")  # a code that may be a page's lang


def web_page(segments: Sequence[Segment], language: str, layout: SubtitleLayout) -> str:
    """Return a page of HTML with the time and the speaker of each paragraph."""
    lang = f' lang="{language}"' if LANGUAGE.fullmatch(language) else ""
    body = "".join(_html_paragraph(each, name) for each, name in _named(segments))
    return PAGE.format(language=lang, body=body)


def _html_paragraph(paragraph: Paragraph, name: str) -> str:
    speaker = f"<b>{html.escape(name)}:</b> " if name else ""
    time = f'<time datetime="PT{paragraph.start:.3f}S">{shown_time(paragraph.start)}</time>'
    return f'<p dir="auto">{time}{speaker}{html.escape(paragraph.text, quote=False)}</p>\n'


def require_docx() -> None:
    """Raise MissingPackageError without python-docx."""
    require_packages("writing docx", {"docx": "python-docx"}, "docx")


def word_document(segments: Sequence[Segment], language: str) -> bytes:
    """Return a .docx file with the time and the speaker of each paragraph. Raises MissingPackageError."""
    require_docx()
    from docx import Document

    document: Any = Document()
    document.core_properties.title = "Transcript"
    document.core_properties.author = ""
    document.core_properties.language = language
    for each, name in _named(segments):
        paragraph = document.add_paragraph()
        paragraph.add_run(f"{shown_time(each.start)} ").italic = True
        if name:
            paragraph.add_run(f"{name}: ").bold = True
        paragraph.add_run(each.text)
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def _named(segments: Sequence[Segment]) -> list[tuple[Paragraph, str]]:
    """Return the paragraphs, each with its speaker's name if the paragraph before has another speaker."""
    found: list[tuple[Paragraph, str]] = []
    for each in paragraphs(segments):
        same = found and found[-1][0].speaker == each.speaker
        found.append((each, "" if same else each.speaker or ""))
    return found


def shown_time(seconds: float) -> str:
    """Return a time to read: ``0:05``, ``1:02:03``."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
