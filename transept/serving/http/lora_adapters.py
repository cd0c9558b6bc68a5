"""``POST /v1/load_lora_adapter`` and ``/v1/unload_lora_adapter``, as in vLLM. The setting load_adapters serves them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response

from transept.errors import TranseptError
from transept.options import Option, take_options
from transept.serving.errors import ApiError
from transept.serving.http import bodies
from transept.serving.http.fields import JSON, Body, Given
from transept.serving.http.places import Place, place_of
from transept.serving.models import ServedModel, ServedModels

router = APIRouter(tags=["models"])

MAX_BYTES = 64 << 10  # of a body


@dataclass(frozen=True, kw_only=True)
class Unloading:
    """The fields that name an adapter."""

    lora_name: Annotated[str, Option("name of the adapter, which requests give as model")]
    model: Annotated[str | None, Option("model that it belongs to; may be left out if the server has one")] = None

    def __post_init__(self) -> None:
        take_options(self)


@dataclass(frozen=True, kw_only=True)
class Loading(Unloading):
    """The fields of an adapter to load."""

    lora_path: Annotated[str, Option("folder of the adapter on the server's machine")]


LOADING, UNLOADING = Body(JSON, Loading), Body(JSON, Unloading)
AnyPlace = Annotated[Place, Depends(place_of(None))]


@router.post("/v1/load_lora_adapter", openapi_extra=LOADING.documented(), response_class=PlainTextResponse)
async def load(
    request: Request, place: AnyPlace, body: Annotated[Given, Depends(bodies.json_of(LOADING, MAX_BYTES))]
) -> Response:
    """Load an adapter, whose name is then a model's name."""
    fields = body.made(Loading)
    for name, value in (("lora_name", fields.lora_name), ("lora_path", fields.lora_path)):
        if not value.strip():
            raise ApiError(400, f"{name} is empty. Send a text", param=name, code="invalid_value")
    if fields.lora_name in place.models.names:
        message = f'"{fields.lora_name}" is the name of a model already: choose another one'
        raise ApiError(400, message, param="lora_name", code="invalid_value")
    model = _model(place.models, fields.model)
    assert model.engine is not None
    try:
        await run_in_threadpool(partial(model.engine.engine.load_adapter, fields.lora_name, fields.lora_path))
    except TranseptError as error:
        raise ApiError(400, str(error), param="lora_path", code="invalid_adapter") from None
    return PlainTextResponse(f"Success: LoRA adapter '{fields.lora_name}' added successfully.")


@router.post("/v1/unload_lora_adapter", openapi_extra=UNLOADING.documented(), response_class=PlainTextResponse)
async def unload(
    request: Request, place: AnyPlace, body: Annotated[Given, Depends(bodies.json_of(UNLOADING, MAX_BYTES))]
) -> Response:
    """Unload an adapter. Requests that use it go on."""
    fields = body.made(Unloading)
    model = _model(place.models, fields.model or place.models.named(fields.lora_name).parent)
    assert model.engine is not None
    try:
        model.engine.engine.unload_adapter(fields.lora_name)
    except TranseptError as error:
        raise ApiError(404, str(error), param="lora_name", code="model_not_found") from None
    return PlainTextResponse(f"Success: LoRA adapter '{fields.lora_name}' removed successfully.")


def _model(models: ServedModels, name: str | None) -> ServedModel:
    """Return the model with a name, or the only one. Raises ApiError: 503 while it is loading."""
    if name is None and len(models.models) > 1:
        message = f"this server has several models: give model, one of {', '.join(models.models)}"
        raise ApiError(400, message, param="model", code="missing")
    model = models.models.get(next(iter(models.models)) if name is None else name)
    if model is None:
        raise ApiError(404, f'there is no model "{name}"', param="model", code="model_not_found")
    if model.engine is None:
        raise ApiError(503, f'"{model.name}" is loading: try again later', code="loading", retry_after=2.0)
    return model
