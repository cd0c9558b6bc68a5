"""Transcripts as a web page and as a document of Word."""

import io
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from transept import MissingPackageError, ParameterError, Transcript

TRANSCRIPT = Transcript.from_dict(
    {
        "language": "en",
        "segments": [
            {"start": 0.0, "end": 2.0, "text": " Is <b>1 & 2</b>", "speaker": 'Anna "A"'},
            {"start": 2.0, "end": 3.0, "text": " three?", "speaker": 'Anna "A"'},
            {"start": 3700.5, "end": 3701.0, "text": " Yes.\x00", "speaker": "Ben"},
            {"start": 3710.0, "end": 3711.0, "text": " Maybe.", "speaker": "Ben"},
        ],
    }
)
EXPECTED = [
    '0:00 Anna "A": Is <b>1 & 2</b> three?',
    "1:01:40 Ben: Yes.",
    "1:01:50 Maybe.",
]


class Paragraphs(HTMLParser):
    """Collects the text of the paragraphs, and the attributes of their times and of the page."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.found: list[tuple[str, str | None]] = []
        self.within = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [(f"{tag}.{name}", value) for name, value in attributes]
        if tag == "p":
            self.texts.append("")
        self.within = self.within or tag == "p"

    def handle_endtag(self, tag: str) -> None:
        self.within = self.within and tag != "p"
        if tag == "time":
            self.texts[-1] += " "

    def handle_data(self, data: str) -> None:
        if self.within:
            self.texts[-1] += data


def test_a_page_has_paragraphs_with_times_and_speakers() -> None:
    page = Paragraphs()
    page.feed(TRANSCRIPT.to_str("html"))
    assert page.texts == EXPECTED
    assert ("html.lang", "en") in page.found
    assert ("time.datetime", "PT3700.500S") in page.found
    strange = Transcript.from_dict({"segments": [], "language": '"><script>'})
    assert "<script" not in strange.to_str("html")


def test_a_document_has_the_same_paragraphs(tmp_path: Path) -> None:
    docx = pytest.importorskip("docx")
    file = tmp_path / "talk.docx"
    TRANSCRIPT.write(file)
    assert [each.text for each in docx.Document(file).paragraphs] == EXPECTED
    written = io.BytesIO()
    TRANSCRIPT.write(written, "docx")
    assert len(docx.Document(io.BytesIO(written.getvalue())).paragraphs) == 3
    with pytest.raises(ParameterError, match="docx is not text: open the file for bytes"):
        TRANSCRIPT.write(io.StringIO(), "docx")


def test_documents_are_no_text_and_need_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="format docx is not text; write it to a file"):
        TRANSCRIPT.to_str("docx")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "docx", raising=False)
    with pytest.raises(MissingPackageError, match=r'needs python-docx; install .* "transept\[docx\]"'):
        TRANSCRIPT.write(tmp_path / "talk.docx")
    assert not (tmp_path / "talk.docx").exists()
