"""Pages of a PDF as images, drawn by PDFium when each of them is decoded. Needs the extra `pdf`.

`transept read` calls it, and whoever reads PDFs in Python. A page is bounded before it is drawn, as an image is before
it is decoded; nothing in a PDF is run, and no URL in it is opened.
"""

from __future__ import annotations

import atexit
import io
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
from transept.multimodal.image import ImageLimits, Pixels, read_file
from transept.multimodal.page_options import DPI, PageOptions

POINTS = 72  # an inch

PDFIUM = threading.RLock()  # which must not run in two threads, whatever the documents are


class Document:
    """A document of PDFium's, closed where none of its pages is left, or where Python ends."""

    def __init__(self, data: bytes) -> None:
        import pypdfium2

        self.pdf = pypdfium2.PdfDocument(data)
        self.pdf.init_forms()  # so that what fields hold is drawn
        OPENED.add(self)
        close_at_exit()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Its pages cannot be drawn from then on."""
        with PDFIUM:
            if hasattr(self, "pdf"):
                self.pdf.close()


OPENED: WeakSet[Document] = WeakSet()


@cache
def close_at_exit() -> None:
    """Have what is still open closed where Python ends, before pypdfium2 does it and tells the user."""

    def close() -> None:
        for document in list(OPENED):
            document.close()

    atexit.register(close)  # after pypdfium2's own, and so called before it


class PdfPage:
    """One page, which `load_image` and all that take images accept as one.

    file: of the document, as messages name it, ``PDF file "report.pdf"``. number: of the page, from 1.
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
        name = f"page {self.number} of {self.file}"
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
                "{max_image_pixels}: lower {dpi}, or raise that limit",
                param="dpi",
                others=["max_image_pixels"],
            )


def pdf_pages(
    file: str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO,
    *,
    dpi: float = DPI,
    limits: ImageLimits | None = None,
) -> list[PdfPage]:
    """The pages of a PDF, in their order, none of which is drawn yet.

    file: a path; the bytes of a PDF; a file or pipe opened to read bytes, from where it stands. dpi: pixels an inch, 18
    to 2400. limits: on the PDF's bytes and each page's pixels; None: the defaults of ImageLimits. Raises MediaError for
    what is no PDF, has no pages, is damaged or needs a password, ParameterError for another dpi, MissingPackageError
    without pypdfium2.
    """
    dpi = PageOptions(dpi=dpi).dpi
    require_packages("reading PDFs", {"pypdfium2": "pypdfium2", "PIL": "pillow"}, "pdf")
    limits = limits or ImageLimits()
    name, data = _name_and_bytes(file, limits)
    with PDFIUM:
        try:
            document = Document(data)
            num_pages = len(document.pdf)
        except RuntimeError as error:
            raise MediaError(f"{name} cannot be read: {_reason(data, error)}") from None
    return [PdfPage(document, name, number, dpi, limits) for number in range(1, num_pages + 1)]


def _name_and_bytes(file: Any, limits: ImageLimits) -> tuple[str, bytes]:
    """How messages name a PDF that is given as to `pdf_pages`, and what is in it."""
    if isinstance(file, bytes | bytearray | memoryview):
        try:
            data = memoryview(file)
            name = f"PDF data of {data.nbytes} bytes"
            limits.check_bytes(data.nbytes, name)
            return name, bytes(data)
        except ValueError as error:  # released
            if isinstance(error, MediaError):
                raise
            raise MediaError(f"PDF data in a {type(file).__name__} cannot be read: {error}; pass bytes") from None
    if isinstance(file, io.TextIOBase):
        raise MediaError('a PDF came as a file opened to read text; open it with "rb"')
    if hasattr(file, "read"):
        own = getattr(file, "name", None)
        name = f'the PDF from "{own}"' if isinstance(own, str) else f"the PDF from an open {type(file).__name__}"
        return name, read_file(file, name, limits)
    if not isinstance(file, str | os.PathLike):
        raise MediaError(
            f"a PDF of type {type(file).__name__} cannot be read: pass a path, the bytes of a PDF or a file opened to "
            "read bytes"
        )
    try:
        name = f'PDF file "{os.fspath(file)}"'
        with open(file, "rb") as opened:
            limits.check_bytes(os.fstat(opened.fileno()).st_size, name)
            return name, read_file(opened, name, limits)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        if isinstance(error, MediaError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise MediaError(f"{name} cannot be opened: {reason}; pass the path of a local file") from None


def _reason(data: bytes, error: RuntimeError) -> str:
    """Why PDFium gives no document, and what would work. Where there are no pages, its code is an earlier call's."""
    import pypdfium2.raw

    document = pypdfium2.raw.FPDF_LoadMemDocument64(data, len(data), None)
    if document:
        pypdfium2.raw.FPDF_CloseDocument(document)
        return "it has no pages; pass one that has"
    return f"{message_of(error).rstrip('.')}; pass a whole PDF without a password"
