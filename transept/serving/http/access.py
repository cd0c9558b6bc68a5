"""Steps around the endpoint of every request: id, key, bound on the body, metrics and log line.

Plain ASGI, so that bodies and streams pass through without buffering.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
import uuid
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transept.serving.errors import ApiError, answer_to
from transept.serving.http.request_log import endpoint_of, log_request
from transept.serving.http.rules import check_encoding
from transept.serving.models import ServedModels
from transept.serving.realtime.client_secrets import PREFIX, ClientSecrets
from transept.serving.request_context import REQUEST_ID
from transept.serving.settings import MIB
from transept.serving.uploads import UploadPace

# Paths that need no key: probes, and the page and `/docs`, which ask for it themselves.
OPEN_PATHS = re.compile(r"/(?:health|ready|web/.*|docs(?:/.*)?|openapi\.json)?")
GIVEN_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
IN_SUBPROTOCOL = "openai-insecure-api-key."  # before a key, for browsers, which cannot set headers of a WebSocket
UPGRADED = 101  # status of an accepted WebSocket


def cross_origin(app: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """Let pages of these origins call the application; ``"*"``: any. Without origins it stays unchanged."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(origins),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["Content-Disposition", "X-Request-Id", "Retry-After", "retry-after-ms"],
    )


class Access:
    """ASGI middleware; see the module. secrets: of the endpoint that makes them.

    A request is neither counted nor logged if `forwarded` is set in its scope's state: a replica did both.
    """

    def __init__(self, app: ASGIApp, models: ServedModels, secrets: ClientSecrets | None = None) -> None:
        self.app, self.models, self.settings = app, models, models.settings
        self.keys = tuple(key.encode() for key in self.settings.api_keys)
        self.secrets = secrets or ClientSecrets(self.settings.api_keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        if root_path := self.settings.root_path:
            if scope["path"] == root_path:
                await RedirectResponse(f"{root_path}/")(scope, receive, send)  # the page's addresses are relative
                return
            if not scope["path"].startswith(f"{root_path}/"):  # the proxy took it off
                scope["path"] = root_path + scope["path"]
            scope["root_path"] = root_path
        headers, begin, status = Headers(scope=scope), time.monotonic(), 0
        given = headers.get("x-request-id", "")
        request_id = given if GIVEN_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        in_log = REQUEST_ID.set(request_id)

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start", "websocket.accept"):
                status = message.get("status", UPGRADED)
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif message["type"] == "websocket.close" and not status:
                status = 403  # as the server answers the client
            await send(message)

        is_websocket = scope["type"] == "websocket"
        try:
            self._check_key(scope, headers)
            check_encoding(headers)
            bounded = receive if is_websocket else self._bounded(scope["state"], headers, receive)
            await self.app(scope, bounded, send_with_id)
        except Exception as error:
            if status:
                raise  # the answer has begun
            await answer_to(scope, error).response()(scope, receive, send_with_id)
        finally:
            self._note(scope, status, time.monotonic() - begin)
            REQUEST_ID.reset(in_log)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request that was answered."""
        state = scope["state"]
        if state.get("forwarded"):
            return
        status = state.get("log", {}).get("status", status)  # differs from the one sent if a stream was abandoned
        scope["app"].state.metrics.answered(endpoint_of(scope), status, state.get("num_bytes", 0))
        log_request(scope, self.settings, status, seconds)

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        scheme, _, key = headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        if scope["type"] == "websocket":
            key = key or next(
                (each[len(IN_SUBPROTOCOL) :] for each in scope["subprotocols"] if each.startswith(IN_SUBPROTOCOL)), ""
            )
            if key.startswith(PREFIX) and key not in self.settings.api_keys:
                scope["state"]["session"] = self.secrets.read(key)
                return
        if not self.keys or OPEN_PATHS.fullmatch(path) or scope.get("method") == "OPTIONS":
            return
        given = key.encode()
        if not sum(
            hmac.compare_digest(given, each) for each in self.keys
        ):  # compares all, so that the time does not depend on the key
            what = "is wrong" if given else "is missing"
            raise ApiError(401, f"the API key {what}: send it as Authorization: Bearer KEY", code="invalid_api_key")

    def _bounded(self, state: dict[str, Any], headers: Headers, receive: Receive) -> Receive:
        """Wrap `receive` to raise ApiError: 413 once the body is too large, 408 if it pauses too long, 503 if the
        server ends meanwhile.

        Raises 413 at once if Content-Length is too large. Counts the received bytes in `num_bytes` of the state.
        """
        state["num_bytes"] = 0
        limit, patience = self.settings.max_upload_bytes, self.settings.upload_timeout
        announced = headers.get("content-length", "0")
        if announced.isdecimal() and int(announced) > limit:
            raise _too_large(limit)
        has_ended, pace = False, UploadPace(patience)

        async def bounded() -> Message:
            nonlocal has_ended
            if has_ended:
                return await receive()  # waits until the client disconnects
            begin = time.monotonic()
            timeout = asyncio.timeout(pace.seconds_left)
            self.models.reading.add(timeout)
            try:
                async with timeout:
                    message = await receive()
            except TimeoutError:
                self.models.check_open()
                raise ApiError(
                    408, f"the upload was too slow: {state['num_bytes']} bytes so far. Send it again", code="timeout"
                ) from None
            finally:
                self.models.reading.discard(timeout)
            if message["type"] == "http.request":
                received = len(message.get("body", b""))
                pace.came(received, time.monotonic() - begin)
                state["num_bytes"] += received
                has_ended = not message.get("more_body", False)
            if state["num_bytes"] > limit:
                raise _too_large(limit)
            return message

        return bounded


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"the request is larger than {limit / MIB:g} MiB (--max-upload-mb): send less at a time, or compress a "
        "recording, such as to opus or mp3",
        param="file",
        code="too_large",
    )
