"""The application: all endpoints and middleware, and a lifespan that loads and drains the models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from transept.errors import nearest
from transept.serving.errors import ApiError, answer_to, client_gone
from transept.serving.http import (
    api_docs,
    catalog,
    client_secrets,
    completions,
    embeddings,
    image_texts,
    lora_adapters,
    probes,
    realtime,
    text_tasks,
    transcript_files,
    transcriptions,
)
from transept.serving.http.access import Access, cross_origin
from transept.serving.http.answers import ERRORS
from transept.serving.http.rules import HttpRules, refuse_query
from transept.serving.metrics import Metrics
from transept.serving.models import ServedModels
from transept.serving.realtime.client_secrets import ClientSecrets
from transept.serving.settings import ServerSettings

KEY = HTTPBearer(auto_error=False, description="A key of the server, if it has one.")  # for `/docs`; `access` checks it
WEB = Path(__file__).parents[1] / "web"
PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; worker-src 'self' blob:; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def build_app(settings: ServerSettings) -> FastAPI:
    """Return the ASGI application of `transept serve`. Its models load at startup; it drains at shutdown.

    app.state: settings (ServerSettings), models (ServedModels), metrics (Metrics), secrets (ClientSecrets), routes
    (all, for `endpoint_of`).
    """
    app = FastAPI(
        title="Transept",
        description="Speech, text and images to text, by encoder/decoder transformers. OpenAI's API where it has one.",
        lifespan=_lifespan,
        docs_url=None,  # `api_docs` serves the page, without files from other servers
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.models = ServedModels(settings)
    app.state.metrics = Metrics(app.state.models)
    app.state.secrets = ClientSecrets(settings.api_keys)
    routers = [
        module.router
        for module in (
            *(transcriptions, transcript_files, completions, embeddings, text_tasks, image_texts),
            *(client_secrets, catalog, probes),
        )
    ]
    if settings.load_adapters:
        routers.append(lora_adapters.router)
    for router in routers:
        app.include_router(router, dependencies=[Depends(refuse_query), Depends(KEY)], responses=ERRORS)
    app.include_router(realtime.router)
    app.include_router(api_docs.router)
    app.add_exception_handler(ApiError, _answer)
    app.add_exception_handler(RequestValidationError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(ClientDisconnect, _answer)
    app.add_middleware(Access, models=app.state.models, secrets=app.state.secrets)
    app.add_middleware(HttpRules)
    app.add_middleware(cross_origin, origins=settings.cors)
    app.mount("/web", _Page(directory=WEB), name="web")
    app.add_route("/", _page, include_in_schema=False)
    page = [route for route in app.routes if isinstance(route, Route | Mount)]
    app.state.routes = [
        route for router in (*routers, realtime.router, api_docs.router) for route in router.routes
    ] + page
    return app


class _Page(StaticFiles):
    """The page's files, with the page's headers."""

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(PAGE_HEADERS)
        return response


async def _page(request: Request) -> Response:
    return FileResponse(WEB / "index.html", headers=PAGE_HEADERS)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.models.start_loading()
    yield
    await app.state.models.drain(app.state.settings.shutdown_timeout)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    """Return the answer to an endpoint's exception, in OpenAI's format."""
    if isinstance(error, RequestValidationError):
        error = _of_validation(error)
    elif isinstance(error, HTTPException):  # of routing, or a body that cannot be parsed
        headers = {"Allow": _allowed(error)} if error.status_code == 405 else None
        detail = {404: _no_path(request), 405: "this path takes other methods; see Allow"}
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_body")
        error = ApiError(
            error.status_code, detail.get(error.status_code, str(error.detail)), code=code, headers=headers
        )
    elif isinstance(error, ClientDisconnect):
        error = client_gone()
    return answer_to(request.scope, error).response()


def _no_path(request: Request) -> str:
    """Return the message about an unknown path, with the nearest one of the API."""
    root, path = request.scope.get("root_path", ""), request.scope["path"]
    near = nearest(path.removeprefix(root), {route.path for route in request.app.state.routes if "{" not in route.path})
    return f"there is no {path}.{f' Did you mean {root}{near}?' if near else ''} {root}/docs lists all paths."


def _allowed(error: HTTPException) -> str:
    """Return the methods that a path allows. Static files, which declare none, are read-only."""
    methods = {each.strip() for each in (error.headers or {}).get("Allow", "GET").split(",")}
    return ", ".join(sorted(methods | {"HEAD"} if "GET" in methods else methods))


def _of_validation(error: RequestValidationError) -> ApiError:
    """Return pydantic's first error, with its field."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:]) or None
    message = f"{field}: {first['msg']}" if field else first["msg"]
    return ApiError(400, message, param=field, code="invalid_value")
