"""``POST /v1/read``: the text in an image, or on a page of a PDF."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError
from transept.multimodal.page_options import PageOptions
from transept.options import Option, declared
from transept.serving.async_tasks import last
from transept.serving.errors import api_error
from transept.serving.http import forms, pdf_uploads
from transept.serving.http.answers import answers
from transept.serving.http.bodies import as_openai_samples
from transept.serving.http.fields import FORM, Body
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended
from transept.vision.image_text import ImageText
from transept.vision.options import ReadingOptions

router = APIRouter(tags=["images"])

SAMPLING = (  # fields of SamplingParams that are numbers
    *("num_beams", "max_tokens", "min_tokens", "length_penalty", "no_repeat_ngram_size", "repetition_penalty"),
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
    """What was read. score: from 0 to 1. page, num_pages: of a PDF."""

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
    refused=dict.fromkeys(("stream", "response_format"), "an answer of /v1/read comes whole, as JSON"),
)


@router.post("/v1/read", openapi_extra=BODY.documented(), responses=answers(ReadText))
async def read(
    request: Request,
    place: Annotated[Place, Depends(place_of("vision"))],
    form: Annotated[forms.Form, Depends(forms.form_of(BODY))],
) -> Response:
    """Return the text in an image or on a page of a PDF. Missing fields default to the model's settings."""
    sampling = form.part(SamplingParams)
    try:
        options = {**form.part(ReadingOptions), **as_openai_samples(sampling)}
    except ParameterError as error:
        raise api_error(error) from error
    model, ticket = await place.take(form.made(OwnFields).model)
    assert model.vision is not None
    request.state.log = {"model": model.name}
    upload = await place.stack.enter_async_context(forms.upload(form, "image"))
    image = await pdf_uploads.uploaded_image(form, upload)
    try:
        job = model.vision.job(image.data, **options)
    except ParameterError as error:
        raise api_error(error) from error
    answer = {
        "id": f"image-text-{request.state.request_id}",
        "object": "image_text",
        "created": int(time.time()),
        "model": model.name,
        **image.about,
    }
    return await attended(request, _whole(answer, ticket.run(job), image.upload))


async def _whole(answer: dict[str, Any], events: AsyncGenerator[Any, None], upload: forms.Upload) -> Response:
    """The answer, once the image is read. Raises ApiError for what the job raises."""
    try:
        result: ImageText = await last(events)
    except Exception as error:
        told = api_error(error, "file")
        if told.status >= 500 and told.status != 503:
            raise  # to be logged with its traceback
        told.message = upload.in_message(told.message)
        raise told from error
    found = result.to_dict()
    del found["error"]  # which has been raised
    return JSONResponse({**answer, **found})
