"""``POST /v1/read``: the text in an image, or on a page of a PDF."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.core.request.sampling_params import SamplingParams
from transept.errors import MediaError, MissingPackageError, ParameterError, TranseptError
from transept.multimodal.page_options import PageOptions
from transept.multimodal.pdf import pdf_pages
from transept.options import Option, declared
from transept.serving.async_tasks import last
from transept.serving.errors import ApiError
from transept.serving.http import forms
from transept.serving.http.answers import answers
from transept.serving.http.bodies import as_openai_samples
from transept.serving.http.fields import FORM, Body, Given
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended
from transept.vision.image_text import ImageText
from transept.vision.options import ReadingOptions

router = APIRouter(tags=["images"])

PDF_MARK = b"%PDF-"
MARK_WITHIN = 1024  # bytes of a file in which PDF readers look for the %PDF mark

SAMPLING = (  # fields of SamplingParams that are numbers
    *(
        "num_beams",
        "max_tokens",
        "max_time",
        "min_tokens",
        "length_penalty",
        "no_repeat_ngram_size",
        "repetition_penalty",
    ),
    *("temperature", "top_k", "top_p", "seed"),
)


@dataclass(frozen=True)
class Image:
    """The field of the upload."""

    file: Annotated[bytes, Option("PNG, JPEG, WebP, GIF, TIFF, BMP, PPM or PDF")]


@dataclass(frozen=True)
class OwnFields:
    """The model."""

    model: Annotated[str, Option("a name of `/v1/models`", "Default: the first that reads images.")] = ""


class ReadText(TypedDict):
    """The text of an image. score: from 0 to 1. page, num_pages: only of a PDF."""

    id: str
    object: Literal["image_text"]
    created: int
    model: str
    page: NotRequired[int]
    num_pages: NotRequired[int]
    text: str
    score: float
    num_tokens: int
    cumulative_logprob: float
    finish_reason: str


BODY = Body(
    *(FORM, Image, OwnFields, ReadingOptions, PageOptions, SamplingParams),
    without=set(declared(SamplingParams)) - {*SAMPLING},
    refused=dict.fromkeys(("stream", "response_format"), "/v1/read answers once, with JSON"),
)


@router.post("/v1/read", openapi_extra=BODY.documented(), responses=answers(ReadText))
async def read(
    request: Request,
    place: Annotated[Place, Depends(place_of("vision"))],
    form: Annotated[Given, Depends(forms.form_of(BODY))],
) -> Response:
    """Return the text in an image or on a page of a PDF. Missing fields default to the model's settings."""
    fields = form.made(OwnFields)
    for kind in (ReadingOptions, PageOptions):
        form.made(kind)  # also raises while models load
    try:
        sampling = as_openai_samples(form.part(SamplingParams))
        SamplingParams(**sampling)
    except ParameterError as error:
        raise form.error(error) from error
    upload = await place.stack.enter_async_context(forms.upload(form, "image"))
    model, ticket = await place.take(fields.model)
    assert model.vision is not None
    request.state.log = {"model": model.name}
    upload, image, about = await _image(form, upload)
    try:
        job = model.vision.job(image, **form.part(ReadingOptions), **sampling)
    except TranseptError as error:
        raise form.error(error) from error
    answer = {
        "id": f"image-text-{request.state.request_id}",
        "object": "image_text",
        "created": int(time.time()),
        "model": model.name,
        **about,
    }
    return await attended(request, _whole(form, answer, ticket.run(job), upload))


async def _whole(
    form: Given, answer: dict[str, Any], events: AsyncGenerator[Any, None], upload: forms.Upload
) -> Response:
    """Return the answer once the image is read. Raises ApiError."""
    try:
        result: ImageText = await last(events)
    except Exception as error:
        told = form.error(error, "file")
        if told.status >= 500 and told.status != 503:
            raise  # to be logged with its traceback
        told.message = upload.in_message(told.message)
        raise told from error
    found = result.to_dict()
    del found["error"]  # it was raised
    return JSONResponse({**answer, **found})


async def _image(form: Given, upload: forms.Upload) -> tuple[forms.Upload, Any, dict[str, int]]:
    """Return the upload, its image, or one page of its PDF, and for a PDF the answer's `page` and `num_pages`.

    The reader's job renders the page. Raises ApiError for a PDF that cannot be read, for a page that it does not have,
    and for fields of PDFs with an image.
    """
    given, options = form.part(PageOptions), form.made(PageOptions)
    if not await run_in_threadpool(_is_pdf, upload.data):
        if given:
            name = next(iter(given))
            message = f"{name} is for PDFs, and the upload is not one: leave it out"
            raise ApiError(400, message, param=name, code="unsupported")
        return upload, upload.data, {}
    upload = dataclasses.replace(upload, what="PDF")
    try:
        pages = await run_in_threadpool(partial(pdf_pages, upload.data, dpi=options.dpi))
    except MissingPackageError as error:
        raise ApiError(400, str(error), param="file", code="unsupported") from error
    except (MediaError, ParameterError) as error:
        answer = form.error(error, "file")
        answer.message = upload.in_message(answer.message)
        raise answer from error
    if not 1 <= options.page <= len(pages):
        message = f"page must be from 1 to {len(pages)}, the pages of this PDF, not {options.page}"
        raise ApiError(400, message, param="page", code="invalid_value")
    return upload, pages[options.page - 1], {"page": options.page, "num_pages": len(pages)}


def _is_pdf(data: bytes | str) -> bool:
    """True if a file begins like a PDF. data: its bytes or path."""
    if isinstance(data, bytes):
        return PDF_MARK in data[:MARK_WITHIN]
    with open(data, "rb") as file:
        return PDF_MARK in file.read(MARK_WITHIN)
