"""Pages of a PDF as images, which PDFium draws when they are decoded. Needs the extra `pdf`.

`transept read` and programs that read PDFs call it. The limits on images apply to a page before it is drawn. No script
in a PDF is run, and no URL in it is opened.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
from contextlib import closing
from functools import cache
from typing import Any, BinaryIO
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError, message_of, require_packages
from transept.multimodal.image import ImageLimits, Pixels, read_source
from transept.multimodal.page_options import DPI, PageOptions

POINTS = 72  # in an inch
PDFIUM = threading.RLock()  # PDFium must not run in two threads, even on different documents


class Document:
    """A document of PDFium, closed when its last page is freed, or when Python exits."""

    def __init__(self, data: bytes) -> None:
        import pypdfium2

        self.pdf = pypdfium2.PdfDocument(data)
        self.pdf.init_forms()  # so that the content of form fields is drawn
        OPENED.add(self)
        close_at_exit()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the document. Its pages cannot be drawn afterwards."""
        with PDFIUM:
            if hasattr(self, "pdf"):
                self.pdf.close()


OPENED: WeakSet[Document] = WeakSet()


@cache
def close_at_exit() -> None:
    """Close open documents when Python exits, before pypdfium2 does so with a warning."""

    def close() -> None:
        for document in list(OPENED):
            document.close()

    atexit.register(close)  # registered after pypdfium2's own, so called before it


class PdfPage:
    """A page, which `load_image` and all calls with images accept as an image.

    file: name of the document in messages, such as ``PDF file "report.pdf"``. number: of the page, from 1.
    """

    def __init__(self, document: Document, file: str, number: int, dpi: float, limits: ImageLimits) -> None:
        self._document = document
        self.file = file
        self.number = number
        self._dpi = dpi
        self._limits = limits

    def __repr__(self) -> str:
        return f"<page {self.number} of {self.file}>"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Return the page as an array, for NumPy; see `pixels`."""
        return self.pixels().astype(dtype or np.uint8, copy=False)

    def pixels(self) -> Pixels:
        """Return the page on white, upright: uint8 RGB [height, width, 3].

        Raises MediaError for a page of more pixels than the limit, before it is drawn, and for one that is damaged.
        """
        name = f"page {self.number} of {self.file}"
        scale = self._dpi / POINTS
        with PDFIUM:
            try:
                page = self._document.pdf[self.number - 1]
                with closing(page):
                    width, height = (math.ceil(side * scale) for side in page.get_size())  # as render rounds them
                    most = self._limits.max_image_pixels
                    if most is not None and height * width > most:
                        raise MediaError(
                            f"{name} has {width} x {height} pixels at {self._dpi:g} per inch, more than the {most} of "
                            "{max_image_pixels}: lower {dpi}, or raise that limit",
                            param="dpi",
                            others=["max_image_pixels"],
                        )
                    with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                        return np.array(bitmap.to_numpy()[:, :, :3])  # a copy: closing frees the bitmap
            except RuntimeError as error:
                raise MediaError(f"{name} cannot be drawn: {message_of(error)}") from None


def pdf_pages(
    file: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
    *,
    dpi: float = DPI,
    limits: ImageLimits | None = None,
) -> list[PdfPage]:
    """Return the pages of a PDF, in order; a page is drawn when it is decoded.

    file: a path; the bytes of a PDF; a file or pipe opened to read bytes, from its position. dpi: pixels per inch, 18
    to 2400. limits: on the PDF's bytes and each page's pixels; None: the defaults of ImageLimits. Raises MediaError for
    a file that is not a PDF, has no pages, is damaged or needs a password, ParameterError for another dpi,
    MissingPackageError without pypdfium2.
    """
    dpi = PageOptions(dpi=dpi).dpi
    require_packages("reading PDFs", {"pypdfium2": "pypdfium2", "PIL": "pillow"}, "pdf")
    limits = limits or ImageLimits()
    name, data = read_source(file, "PDF", "the bytes of a PDF or a file opened to read bytes", limits)
    with PDFIUM:
        try:
            document = Document(data)
            num_pages = len(document.pdf)
        except RuntimeError as error:
            raise MediaError(f"{name} cannot be read: {_reason(data, error)}") from None
    return [PdfPage(document, name, number, dpi, limits) for number in range(1, num_pages + 1)]


def _reason(data: bytes, error: RuntimeError) -> str:
    """Return why PDFium opens no document, and what would work. Without pages, its code is from an earlier call."""
    import pypdfium2.raw

    document = pypdfium2.raw.FPDF_LoadMemDocument64(data, len(data), None)
    if document:
        pypdfium2.raw.FPDF_CloseDocument(document)
        return "it has no pages; pass one that has"
    return f"{message_of(error).rstrip('.')}; pass a whole PDF without a password"
