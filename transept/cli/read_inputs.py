"""What ``transept read`` is to read: from the arguments to images, and the pages of PDFs, an image each.

`recordings` finds the files. Of an image nothing is opened here; a PDF is, to count its pages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.documents import STDIN
from transept.cli.recordings import Kind, Missing, Recording, find_files
from transept.cli.terminal import escape_name, print_stderr
from transept.errors import MediaError
from transept.multimodal.page_options import PageOptions
from transept.multimodal.suffixes import IMAGES, PDF

if TYPE_CHECKING:
    from transept.multimodal.pdf import PdfPage

FORMATS = ("txt", "json")
READABLE = Kind(
    suffixes={*IMAGES, PDF},
    results={*(f".{suffix}" for suffix in FORMATS), ".jsonl"},
    what="image or PDF",
    unopened="cannot read it: {reason}",
    fetched=False,
)


@dataclass(frozen=True)
class Input:
    """One image to read, or why it cannot be.

    file: as the user named it or would name it. tree: the folder or the fixed part of the pattern that it was found by.
    """

    file: str
    tree: str | None = None
    page: PdfPage | None = None
    num_pages: int = 1
    error: MediaError | None = None
    is_file: bool = True  # and so has files of results, with its error if it has one

    @property
    def shown(self) -> str:
        """How it is called where people read it."""
        name = escape_name(self.file)
        return name if self.page is None else f"{name}, page {self.page.number}"

    @property
    def recording(self) -> Recording:
        """What its files are named after: of a page with its number, ``report-07.pdf``."""
        named = self.file
        if self.page is not None:
            digits = len(str(self.num_pages))
            named = str(Path(named).with_stem(f"{Path(named).stem}-{self.page.number:0{digits}}"))
        return Recording(named, self.tree, label=self.shown)

    def image(self) -> Any:
        """What `load_image` takes."""
        return self.page or (sys.stdin.buffer if self.file == STDIN else self.file)


def find_inputs(files: Sequence[str], dpi: float | None, *, recursive: bool) -> list[Input]:
    """An input for each file, and for each page of a PDF. dpi: of pages; None: the default of pdf_pages.

    What is not there, or is no PDF, is told at once. Raises ParameterError and MissingPackageError as pdf_pages does,
    and ParameterError for a wrong dpi where there is no PDF, too.
    """
    options = PageOptions() if dpi is None else PageOptions(dpi=dpi)
    return [found for each in find_files(files, READABLE, recursive=recursive) for found in _inputs(each, options)]


def _inputs(found: Recording | Missing, options: PageOptions) -> Iterator[Input]:
    try:
        if isinstance(found, Missing):
            raise MediaError(found.reason)
        if not found.file.lower().endswith(PDF):
            yield Input(found.file, found.tree)
            return
        from transept.multimodal.pdf import pdf_pages

        pages = pdf_pages(found.file, dpi=options.dpi)
    except MediaError as error:
        print_stderr(f"transept: {escape_name(found.file)}: {error}")
        tree, is_file = (found.tree, True) if isinstance(found, Recording) else (None, False)
        yield Input(found.file, tree, error=error, is_file=is_file)
        return
    for page in pages:
        yield Input(found.file, found.tree, page, len(pages))
