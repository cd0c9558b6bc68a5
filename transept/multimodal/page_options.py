"""PageOptions: which page of a PDF is an image, and how fine `transept.multimodal.pdf` draws it. No NumPy here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from transept.options import MAX_INTEGER, Option, declares_options, take_options

DPI = 150  # a page of A4 has 1240 x 1754 pixels
LOWEST_DPI = 18  # of which nothing can be read
HIGHEST_DPI = 2400


@declares_options("pages of a PDF have no option")
@dataclass(frozen=True)
class PageOptions:
    """How a page of a PDF becomes an image.

    Raises ParameterError for an unknown option and a value out of range.
    """

    page: Annotated[int, Option("number of a PDF's page, from 1", metavar="N", ge=1, le=MAX_INTEGER)] = 1
    dpi: Annotated[
        float,
        Option(
            "pixels per inch of a PDF's pages",
            metavar="X",
            wanted=f"a number from {LOWEST_DPI} to {HIGHEST_DPI}",
            ge=LOWEST_DPI,
            le=HIGHEST_DPI,
        ),
    ] = DPI

    def __post_init__(self) -> None:
        take_options(self)
