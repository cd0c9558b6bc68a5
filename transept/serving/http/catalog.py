"""``GET /v1/models``: which models there are, and what each can do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse

router = APIRouter(tags=["models"])


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """All models: OpenAI's list, with each model's kind, state and languages beside it."""
    served = request.app.state.models.models
    return {"object": "list", "data": [model.describe() for model in served.values()]}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Any:
    """One model."""
    if not name:
        return RedirectResponse(request.url.path.rstrip("/"))
    described: dict[str, Any] = request.app.state.models.named(name).describe()
    return described
