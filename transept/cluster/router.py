"""Router: the ingress of several models, each of which has its own deployment.

A request names its model in the body. So the router reads bodies, once access is granted, and forwards whole requests
to a replica of the model, which runs the server's application. Answers are streamed back. The router itself answers
requests about all models. It logs and counts the requests that it answers or refuses; replicas do so for all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transept.cluster.merged_metrics import merged_metrics
from transept.cluster.model_server import RETRY_AFTER_SECONDS, IdByServe, ModelServer, log_to_stderr
from transept.serving.errors import ApiError
from transept.serving.http import forms
from transept.serving.http.access import Access, cross_origin
from transept.serving.http.app import build_app
from transept.serving.http.bodies import MAX_JSON_BYTES, MAX_VALUES, num_separators
from transept.serving.http.catalog import limits_of
from transept.serving.http.rules import HttpRules, refuse_query
from transept.serving.http.streams import disconnected
from transept.serving.http.text_tasks import OBJECTS
from transept.serving.http.transcriptions import target_of
from transept.serving.metrics import Metrics
from transept.serving.models import OPENAI_SPEECH, Ability, ServedModels, offers, translates_to
from transept.serving.settings import ServerSettings

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

OWN = "(router)"  # in place of a model, in the metrics of requests that the router answered
FORWARDED = (  # picklable parts of a request's scope
    *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
    *("headers", "client", "server"),
)
SPEECH_PATHS, TRANSLATIONS_PATH, IMAGE_PATH, MODELS_PATH = (
    ("/v1/audio/", "/v1/format"),  # a speech model has the names of languages
    "/v1/audio/translations",
    "/v1/read",
    "/v1/models",
)


class ModelDeployment(ModelServer):
    """A replica of one model behind the router."""

    async def __init__(self, settings: ServerSettings) -> None:  # type: ignore[misc]  # Serve allows it
        super().__init__(settings)
        self._lifespan = self.application.router.lifespan_context(self.application)
        await self._lifespan.__aenter__()

    async def describe(self) -> dict[str, Any]:
        """Return the model as in `/v1/models`, once it is loaded."""
        await self.models.wait_until_loaded()
        (model,) = self.models.models.values()
        return model.describe()

    async def asgi(self, scope: Scope, body: bytes) -> AsyncGenerator[Message, None]:
        """Yield the application's messages for one request. Closing the generator disconnects the client."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        left = asyncio.Event()
        rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if rest:
                return rest.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def run() -> None:
            try:
                await self.application(scope, receive, messages.put)
            finally:
                messages.put_nowait(None)

        task = asyncio.create_task(run())
        try:
            while (message := await messages.get()) is not None:
                yield message
            await task
        finally:
            left.set()
            with contextlib.suppress(Exception):
                await task


class Router:
    """The ingress. models: handles of the models' deployments by name, in the order of the settings."""

    def __init__(self, settings: ServerSettings, models: Mapping[str, DeploymentHandle[Any]]) -> None:
        log_to_stderr()
        self.settings = settings
        self.handles = dict(models)
        self.names = ServedModels(self.settings)  # used for names only; loads no model
        # The routes name endpoints in the log and the metrics.
        self.state = SimpleNamespace(metrics=Metrics(self.names), routes=build_app(settings).state.routes)
        self._access = Access(self._answer, models=self.names)
        self._described: dict[str, dict[str, Any]] = {}  # model -> description, for requests that name none

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Serve."""
        return IdByServe(cross_origin(HttpRules(self._counted), self.settings.cors))

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # its metrics count refusals
        await self._access(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            message = "live streams need a server of one model: serve it without others, and connect there"
            raise ApiError(501, message, code="unsupported")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        with _refusals():
            response = await self._of_all(path) if scope["method"] == "GET" else None
        if response is not None:
            await refuse_query(Request(scope))
            await response(scope, receive, send)
            return
        body = await _body(receive)
        with _refusals():
            name = await self._model_of(path, scope, body)
        await self._forward(self.handles[name], scope, body, receive, send)

    async def _of_all(self, path: str) -> Response | None:
        """Return the answer about all models; None for other paths."""
        if path == MODELS_PATH:
            described = await asyncio.gather(*(handle.describe.remote() for handle in self.handles.values()))
            return JSONResponse({"object": "list", "data": described, "limits": limits_of(self.settings)})
        if path in ("/ready", "/health"):
            answers = [(await self._collect(handle, path))[1] for handle in self.handles.values()]
            states = [json.loads(answer) for answer in answers]
            found = [state["status"] for state in states]
            status = next((each for each in ("failed", "draining", "loading") if each in found), found[0])
            models = {name: state for each in states for name, state in each.get("models", {}).items()}
            content = {"status": status, **({"models": models} if path == "/ready" else {})}
            return JSONResponse(content, 200 if status in ("ready", "ok") else 503)
        if path == "/metrics":
            texts = {name: (await self._collect(handle, path))[1].decode() for name, handle in self.handles.items()}
            texts[OWN] = self.state.metrics.render_requests().decode()
            return PlainTextResponse(merged_metrics(texts), media_type="text/plain; version=1.0.0; charset=utf-8")
        return None

    async def _model_of(self, path: str, scope: Scope, body: bytes) -> str:
        """Return the model of a request. Raises ApiError: 404 for an unknown name."""
        one = path.removeprefix(f"{MODELS_PATH}/") if path.startswith(f"{MODELS_PATH}/") else ""
        if one and (one in self.handles or not one.endswith("/")):  # a replica redirects a path with a trailing slash
            return self.names.named(one).name
        name, ability = await _named_in(scope, body)
        kind = "speech" if path.startswith(SPEECH_PATHS) else "vision" if path == IMAGE_PATH else "text"
        if name is not None and not (name == OPENAI_SPEECH and kind == "speech" and name not in self.handles):
            return self.names.named(name).name
        found = None
        for each in self.handles if scope["method"] == "POST" else ():
            described = await self._describe(each)
            if described["kind"] == kind and (ability is None or ability(described)):
                return each
            found = found or (each if described["kind"] == kind else None)
        return found or next(iter(self.handles))

    async def _describe(self, name: str) -> dict[str, Any]:
        if name not in self._described:
            self._described[name] = await self.handles[name].describe.remote()
        return self._described[name]

    async def _collect(self, handle: DeploymentHandle[Any], path: str) -> tuple[int, bytes]:
        """Return the status and the body of a GET request to a replica."""
        root = self.settings.root_path
        scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
        scope |= {"method": "GET", "path": root + path, "query_string": b"", "root_path": root, "headers": []}
        if self.settings.api_keys:
            scope["headers"] = [(b"authorization", f"Bearer {self.settings.api_keys[0]}".encode())]
        status, parts = 0, []
        answer: Any = handle.options(stream=True).asgi.remote(scope, b"")
        async for message in answer:
            status = message.get("status", status)
            parts.append(message.get("body", b""))
        return status, b"".join(parts)

    async def _forward(
        self, handle: DeploymentHandle[Any], scope: Scope, body: bytes, receive: Receive, send: Send
    ) -> None:
        """Let a replica answer. Raises ApiError before the answer begins if no replica can."""
        plain = {name: scope[name] for name in FORWARDED if name in scope}
        request_id = scope["state"]["request_id"].encode()
        plain["headers"] = [each for each in scope["headers"] if each[0] != b"x-request-id"]
        plain["headers"].append((b"x-request-id", request_id))
        answer: Any = handle.options(stream=True).asgi.remote(plain, body)
        watch = asyncio.create_task(_when_gone(receive, answer.cancel))
        try:
            with _refusals():
                message = await anext(answer, None)
            scope["state"]["forwarded"] = True  # the replica counts and logs it
            while message is not None:
                await send(message)
                message = await anext(answer, None)
        finally:
            watch.cancel()


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turn Serve's errors for a request that no replica can answer into ApiErrors."""
    from ray.exceptions import RayActorError
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

    try:
        yield
    except BackPressureError:
        raise ApiError(
            429,
            "too many requests wait for this model: try again later",
            code="queue_full",
            retry_after=RETRY_AFTER_SECONDS,
        ) from None
    except (RayActorError, DeploymentUnavailableError) as error:
        raise ApiError(
            503, "the replica of this request has ended: try again", code="unavailable", retry_after=RETRY_AFTER_SECONDS
        ) from error


async def _when_gone(receive: Receive, cancel: Any) -> None:
    """Cancel the request when the client disconnects."""
    await disconnected(receive)
    cancel()


async def _body(receive: Receive) -> bytes:
    """Return the whole body, which `Access` bounds."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return b"".join(parts)


async def _named_in(scope: Scope, body: bytes) -> tuple[str | None, Ability | None]:
    """Return the model that a body names, and the ability that the request needs; None for each that is missing.

    A body that cannot be read names none: a replica then answers with the error.
    """
    task = scope["path"].rpartition("/")[2]
    ability = offers(task) if task in OBJECTS else None
    kind = Request(scope).headers.get("content-type", "").partition(";")[0].strip().lower()
    with contextlib.suppress(Exception):
        if kind == "application/json":
            return await run_in_threadpool(_model_in, body), ability
        messages: AsyncIterator[Message] = _once({"type": "http.request", "body": body, "more_body": False})
        form = await forms.received(Request(scope, messages.__anext__))
        given = {name: value for name, value in form.items() if isinstance(value, str) and value.strip()}
        await form.close()
        task = "translate" if scope["path"].endswith(TRANSLATIONS_PATH) else given.get("task")
        return given.get("model"), translates_to(target_of(task, given.get("target_language")))
    return None, ability


def _model_in(body: bytes) -> str | None:
    """Return the model that a JSON body names. Bodies that a replica refuses by their size are not parsed."""
    if len(body) > MAX_JSON_BYTES or num_separators(body) > MAX_VALUES:
        return None
    name = json.loads(body).get("model")
    return name if isinstance(name, str) and name else None


async def _once(message: Message) -> AsyncIterator[Message]:
    yield message


async def _lifespan(receive: Receive, send: Send) -> None:
    """Answer the lifespan protocol; the router has nothing to start or stop."""
    while (message := await receive())["type"] == "lifespan.startup":
        await send({"type": "lifespan.startup.complete"})
    assert message["type"] == "lifespan.shutdown"
    await send({"type": "lifespan.shutdown.complete"})
