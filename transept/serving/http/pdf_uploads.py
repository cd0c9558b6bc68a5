"""One page of an uploaded PDF as the image of `POST /v1/read`. The reader's job renders it, not this module."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from transept.errors import MediaError, MissingPackageError, ParameterError
from transept.multimodal.page_options import PageOptions
from transept.multimodal.pdf import pdf_pages
from transept.serving.errors import ApiError, api_error
from transept.serving.http import forms

PDF_MARK = b"%PDF-"
MARK_WITHIN = 1024  # bytes of a file in which PDF readers look for the %PDF mark


@dataclass(frozen=True)
class UploadedImage:
    """An image to read. upload: its name in messages. data: as VisionReader takes it. about: fields for the answer."""

    upload: forms.Upload
    data: Any
    about: dict[str, int]


async def uploaded_image(form: forms.Form, upload: forms.Upload) -> UploadedImage:
    """Return an uploaded image, or one page of an uploaded PDF, with `page` and `num_pages` for the answer.

    Raises ApiError for a PDF that cannot be read, for a page that it does not have, and for either field with an image.
    """
    given, options = form.part(PageOptions), form.made(PageOptions)
    if not await run_in_threadpool(_is_pdf, upload.data):
        if given:
            name = next(iter(given))
            raise ApiError(
                400, f"{name} is for PDFs, and this is not one; leave it out", param=name, code="unsupported"
            )
        return UploadedImage(upload, upload.data, {})
    upload = dataclasses.replace(upload, what="PDF")
    try:
        pages = await run_in_threadpool(partial(pdf_pages, upload.data, dpi=options.dpi))
    except MissingPackageError as error:
        raise ApiError(400, str(error), param="file", code="unsupported") from error
    except (MediaError, ParameterError) as error:
        told = api_error(error, "file")
        told.message = upload.in_message(told.message)
        raise told from error
    if not 1 <= options.page <= len(pages):
        message = f"page must be from 1 to {len(pages)}, the pages of this PDF, not {options.page}"
        raise ApiError(400, message, param="page", code="invalid_value")
    return UploadedImage(upload, pages[options.page - 1], {"page": options.page, "num_pages": len(pages)})


def _is_pdf(data: bytes | str) -> bool:
    """True if a file begins like a PDF. data: its bytes or path."""
    if isinstance(data, bytes):
        return PDF_MARK in data[:MARK_WITHIN]
    with open(data, "rb") as file:
        return PDF_MARK in file.read(MARK_WITHIN)
