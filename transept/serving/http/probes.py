"""``/health``, ``/ready`` and ``/metrics``, for load balancers and monitoring."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from transept.serving.errors import retry_headers

router = APIRouter(tags=["operations"])


@router.get("/health")
async def health(request: Request) -> JSONResponse:
    """200 while the server works: it answers, and the thread and ranks of every loaded engine are alive."""
    alive = all(engine.is_alive for engine in request.app.state.models.engines())
    return JSONResponse({"status": "ok" if alive else "failed"}, 200 if alive else 503)


@router.get("/ready")
async def ready(request: Request) -> JSONResponse:
    """200 once all models are ready; 503 while they load, if one has failed, and while the server drains."""
    models = request.app.state.models
    status = {"status": models.state, "models": {name: model.state for name, model in models.models.items()}}
    passes = models.state in ("loading", "draining")  # a failed model stays failed
    return JSONResponse(status, 200 if models.state == "ready" else 503, retry_headers(2.0) if passes else {})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus's text format."""
    text, media_type = request.app.state.metrics.render()
    return Response(text, media_type=media_type)
