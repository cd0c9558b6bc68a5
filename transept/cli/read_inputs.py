"""What ``transept read`` is to read: from the arguments to images, and the pages of PDFs, an image each.

Of an image nothing is opened here; a PDF is, to count its pages.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transept.cli.documents import STDIN
from transept.cli.near_files import near_file
from transept.cli.printable import printable_name, tell
from transept.errors import MediaError

if TYPE_CHECKING:
    from transept.multimodal.pdf import PdfPage

PDF_SUFFIX = ".pdf"


@dataclass(frozen=True)
class Input:
    """One image to read, or why there is none.

    file: as the user named it. named: the same, but of a page with its number, ``report-07.pdf``, after which its files
    are named.
    """

    file: str
    named: str
    page: PdfPage | None = None
    error: MediaError | None = None

    @property
    def shown(self) -> str:
        """How it is called where people read it."""
        name = printable_name(self.file)
        return name if self.page is None else f"{name}, page {self.page.number}"

    def image(self) -> Any:
        """What `load_image` takes."""
        return self.page or (sys.stdin.buffer if self.file == STDIN else self.file)


def find_inputs(files: Sequence[str], dpi: float | None) -> list[Input]:
    """An input for each file, and for each page of a PDF. dpi: of pages; None: the default of pdf_pages.

    What is not there, or is no PDF, is told at once. Raises ParameterError and MissingPackageError as pdf_pages does.
    """
    return [found for file in files for found in _inputs(file, dpi)]


def _inputs(file: str, dpi: float | None) -> Iterator[Input]:
    try:
        _check(file)
        if not file.lower().endswith(PDF_SUFFIX):
            yield Input(file, file)
            return
        from transept.multimodal.pdf import DPI, pdf_pages

        pages = pdf_pages(file, dpi=DPI if dpi is None else dpi)
    except MediaError as error:
        tell(f"transept: {printable_name(file)}: {error}")
        yield Input(file, file, error=error)
        return
    digits = len(str(len(pages)))
    for page in pages:
        yield Input(file, str(Path(file).with_stem(f"{Path(file).stem}-{page.number:0{digits}}")), page)


def _check(file: str) -> None:
    """Raise MediaError where there is no such file, which is told before a model is loaded."""
    if file == STDIN:
        return
    try:
        os.stat(file)
        reason = "it is a folder; name the images in it" if os.path.isdir(file) else None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason += near_file(file) if isinstance(error, FileNotFoundError) else ""
    if reason is not None:
        raise MediaError(f"cannot read it: {reason}")
