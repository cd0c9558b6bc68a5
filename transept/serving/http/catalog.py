"""``GET /v1/models``: which models there are, and what each can do."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from transept.serving.errors import ApiError

router = APIRouter(tags=["models"])


@router.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """All models: OpenAI's list, with each model's kind, state and languages beside it."""
    served = request.app.state.models.models
    return {"object": "list", "data": [model.describe() for model in served.values()]}


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> dict[str, Any]:
    """One model."""
    served = request.app.state.models.models
    if name not in served:
        raise ApiError(
            404, f'there is no model "{name}" here. Models: {", ".join(served)}', param="model", code="model_not_found"
        )
    described: dict[str, Any] = served[name].describe()
    return described
