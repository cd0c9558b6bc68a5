"""The inputs of ``transept read``: images, and the pages of PDFs.

`recordings` finds the files. This module opens PDFs, to count their pages, but no image.
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
    """One image to read, or the reason why it cannot be read.

    file: the path, relative if the argument is. tree: the folder, or the fixed part of the pattern, that contained it.
    """

    file: str
    tree: str | None = None
    page: PdfPage | None = None
    num_pages: int = 1
    error: MediaError | None = None
    is_file: bool = True  # False: no results are written

    @property
    def shown(self) -> str:
        """Its name in messages."""
        name = escape_name(self.file)
        return name if self.page is None else f"{name}, page {self.page.number}"

    @property
    def recording(self) -> Recording:
        """The name for its result files. For a page, it contains the page number: ``report-07.pdf``."""
        named = self.file
        if self.page is not None:
            digits = len(str(self.num_pages))
            named = str(Path(named).with_stem(f"{Path(named).stem}-{self.page.number:0{digits}}"))
        return Recording(named, self.tree, label=self.shown)

    def image(self) -> Any:
        """Return the argument of `load_image`."""
        return self.page or (sys.stdin.buffer if self.file == STDIN else self.file)


def find_inputs(files: Sequence[str], dpi: float | None, *, recursive: bool) -> list[Input]:
    """Return an input for each image, and for each page of a PDF. dpi: of pages; None: the default of pdf_pages.

    Reports missing files and invalid PDFs at once. Raises what pdf_pages raises, and ParameterError for a wrong dpi
    even without a PDF.
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
