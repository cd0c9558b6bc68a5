"""``GET /v1/models``: the models, their abilities, and the server's limits."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse

from transept.core.config import EngineConfig
from transept.multimodal.image import MAX_BYTES, MAX_PIXELS
from transept.serving.settings import ServerSettings

router = APIRouter(tags=["models"])


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """List all models and adapters as OpenAI does, with their kinds, states and languages, and the limits."""
    state = request.app.state
    described = [state.models.named(name).describe() for name in state.models.names]
    return {"object": "list", "data": described, "limits": limits_of(state.settings)}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Any:
    """One model."""
    served = request.app.state.models
    if not name or (name.endswith("/") and name not in served.names):
        return RedirectResponse(quote(request.url.path.rstrip("/")))
    described: dict[str, Any] = served.named(name).describe()
    return described


def limits_of(settings: ServerSettings) -> dict[str, Any]:
    """Limits on one request, and the numbers of requests that may run and wait for each model; None: no limit.

    Bytes of a body and of an image file, seconds of a recording, characters of a text, pixels of an image.
    """
    engine = EngineConfig(settings.models[0].source, **settings.engine_options()).limits
    return {
        "max_upload_bytes": settings.max_upload_bytes,
        "max_audio_seconds": engine.max_audio_seconds,
        "max_text_characters": engine.max_text_characters,
        "max_image_bytes": MAX_BYTES,
        "max_image_pixels": MAX_PIXELS,
        "max_running": settings.max_running,
        "max_queue": settings.max_queue,
        "max_streams": settings.max_streams,
    }
