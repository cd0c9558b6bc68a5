"""``POST /v1/read``: the text in an image, or on a page of a PDF."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import FormData
from starlette.responses import JSONResponse, Response

from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError, suggest
from transept.serving.async_tasks import last
from transept.serving.errors import ApiError, api_error
from transept.serving.http import forms, pdf_uploads
from transept.serving.http.bodies import as_openai_samples
from transept.serving.http.places import Place
from transept.serving.http.streams import attended
from transept.vision.image_text import ImageText

router = APIRouter(tags=["images"])

OWN_FIELDS = ("file", "model", "task")
SAMPLING = (  # fields of SamplingParams that are numbers
    *("num_beams", "max_tokens", "min_tokens", "length_penalty", "no_repeat_ngram_size", "repetition_penalty"),
    *("temperature", "top_k", "top_p", "seed"),
)
FIELDS = (*OWN_FIELDS, *pdf_uploads.FIELDS, *SAMPLING)
FORMS_OF_ANSWERS = ("stream", "response_format")  # of other endpoints
PROPERTIES = {
    "file": {"type": "string", "format": "binary", "description": "PNG, JPEG, WebP, GIF, TIFF, BMP, PPM or PDF"},
    "model": {"type": "string", "description": "default: the first model that reads images"},
    "task": {"type": "string", "description": "one of the model's tasks; default: its first"},
    "page": {"type": "integer", "description": "of a PDF, from 1; default: the first"},
    "dpi": {"type": "number", "description": "pixels an inch at which a PDF's page is drawn; default: 150"},
    **{name: {"type": "number"} for name in SAMPLING},
}
SCHEMA = {"type": "object", "required": ["file"], "properties": PROPERTIES}
BODY = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": SCHEMA}}}}


@router.post("/v1/read", openapi_extra=BODY)
async def read(request: Request) -> Response:
    """Return the text in an image or on a page of a PDF. Missing fields default to the model's settings."""
    async with contextlib.AsyncExitStack() as stack:
        place = Place(request, "vision", stack)
        place.take_early()  # reports a full queue before reading anything
        form = await stack.enter_async_context(forms.read_form(request))
        options = _options(form)
        model, ticket = await place.take(forms.text(form, "model"))
        assert model.vision is not None
        request.state.log = {"model": model.name}
        upload = await stack.enter_async_context(forms.upload(form, "file", "image"))
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


def _options(form: FormData) -> dict[str, Any]:
    """Of VisionReader.job. Raises ApiError for a field that there is not, or that is no number."""
    for name in form:
        if name not in FIELDS:
            whole = " An answer of /v1/read comes whole, as JSON." if name in FORMS_OF_ANSWERS else ""
            meant = whole or suggest(name[:100], FIELDS)
            raise ApiError(400, f"there is no field {name[:100]!r}.{meant}", param=name[:100], code="unknown_field")
    given = forms.options(form, SamplingParams)
    try:
        options = as_openai_samples(given)
    except ParameterError as error:
        raise api_error(error) from error
    task = forms.text(form, "task")
    return {**options, "task": task} if task else options


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
