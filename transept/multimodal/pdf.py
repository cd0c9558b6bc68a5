"""Pages of a PDF as images, drawn by PDFium when each of them is decoded. Needs the extra `pdf`.

`transept read` calls it, and whoever reads PDFs in Python. A page is bounded before it is drawn, as an image is before
it is decoded; nothing in a PDF is run, and no URL in it is opened.
"""

from __future__ import annotations

import math
import os
import threading
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError, ParameterError, message_of, require_packages
from transept.multimodal.image import ImageLimits, Pixels

DPI = 150  # a page of A4 has 1240 x 1754 pixels
HIGHEST_DPI = 2400
POINTS = 72  # an inch

PDFIUM = threading.RLock()  # which must not run in two threads, whatever the documents are


class Document:
    """A document of PDFium's, closed where none of its pages is left, and then in nobody's way."""

    def __init__(self, data: bytes) -> None:
        import pypdfium2

        self.pdf = pypdfium2.PdfDocument(data)
        self.pdf.init_forms()  # so that what fields hold is drawn

    def __del__(self) -> None:
        with PDFIUM:
            if hasattr(self, "pdf"):
                self.pdf.close()


class PdfPage:
    """One page, which `load_image` and all that take images accept as one.

    file: of the document. number: of the page, from 1.
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
        """What NumPy asks for an array; see `pixels`."""
        return self.pixels().astype(dtype or np.uint8, copy=False)

    def pixels(self) -> Pixels:
        """The page as it is to be looked at, on white: uint8 RGB [height, width, 3].

        Raises MediaError for a page of more pixels than the limit, before it is drawn, and for one that is damaged.
        """
        name = f'page {self.number} of "{self.file}"'
        scale = self._dpi / POINTS
        with PDFIUM:
            try:
                page = self._document.pdf[self.number - 1]
                with closing(page):
                    width, height = (math.ceil(side * scale) for side in page.get_size())  # as render rounds them
                    self._check_pixels(height, width, name)
                    with closing(page.render(scale=scale, rev_byteorder=True)) as bitmap:
                        return np.array(bitmap.to_numpy()[:, :, :3])  # its own, for closing frees the bitmap's
            except RuntimeError as error:
                raise MediaError(f"{name} cannot be drawn: {message_of(error)}") from None

    def _check_pixels(self, height: int, width: int, name: str) -> None:
        most = self._limits.max_image_pixels
        if most is not None and height * width > most:
            raise MediaError(
                f"{name} has {width} x {height} pixels at {self._dpi:g} an inch, more than the {most} of "
                "max_image_pixels: lower dpi, or raise that limit"
            )


def pdf_pages(file: str | os.PathLike[str], *, dpi: float = DPI, limits: ImageLimits | None = None) -> list[PdfPage]:
    """The pages of a PDF file, in their order, none of which is drawn yet.

    dpi: pixels an inch, 150 by default. limits: on the file's bytes and each page's pixels; None: the defaults of
    ImageLimits. Raises MediaError for what is no PDF, is damaged or needs a password, ParameterError for a dpi that is
    no number above 0, MissingPackageError without pypdfium2.
    """
    if not (isinstance(dpi, int | float) and not isinstance(dpi, bool) and 0 < dpi <= HIGHEST_DPI):
        raise ParameterError(f"dpi must be a number above 0 and at most {HIGHEST_DPI}, not {dpi!r}")
    require_packages("reading PDFs", {"pypdfium2": "pypdfium2", "PIL": "pillow"}, "pdf")
    limits, name = limits or ImageLimits(), f'PDF file "{os.fspath(file)}"'
    try:
        with open(file, "rb") as opened:
            limits.check_bytes(os.fstat(opened.fileno()).st_size, name)
            data = opened.read()
    except OSError as error:
        raise MediaError(f"{name} cannot be opened: {error.strerror or error}; pass the path of a local file") from None
    with PDFIUM:
        try:
            document = Document(data)
            num_pages = len(document.pdf)
        except RuntimeError as error:
            raise MediaError(
                f"{name} cannot be read: {message_of(error)}; pass a whole PDF without a password"
            ) from None
    return [PdfPage(document, os.fspath(file), number, dpi, limits) for number in range(1, num_pages + 1)]
