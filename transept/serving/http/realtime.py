"""``WS /v1/realtime``: OpenAI's Realtime protocol for transcription. `realtime.session` has the session itself.

Here are its connection and its limits: origins, places, idle and long streams, shutdown. A stream that the server ends
gets an `error` event with the reason, and then one of these codes:

    1001  the server shuts down, or the stream has lasted --max-stream-seconds: connect again
    1008  the client sent nothing for --stream-idle-seconds, or the URL is wrong
    1011  the model has failed
    1013  all places are taken, or models are loading: try again later
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, WebSocket
from starlette.websockets import WebSocketDisconnect

from transept.serving.errors import ApiError, answer_to
from transept.serving.live_streams import LiveStreams
from transept.serving.realtime.events import error_event
from transept.serving.realtime.session import RealtimeSession
from transept.serving.realtime.session_options import TranscriptionSession
from transept.serving.settings import ServerSettings

router = APIRouter(include_in_schema=False)

PATH = "/v1/realtime"
SUBPROTOCOL = "realtime"  # OpenAI's; a browser that offers it requires it in the answer
GOING_AWAY, VIOLATION, BROKEN, LATER = 1001, 1008, 1011, 1013  # RFC 6455, section 7.4.1, and IANA's registry
FINISH_SECONDS = 20.0  # for the last text of a stream that the server ends
CODES = {429: LATER, 503: LATER, 400: VIOLATION, 404: VIOLATION}


@router.get(PATH)
async def upgrade(request: Request) -> None:
    """Refuse plain HTTP."""
    raise ApiError(
        426,
        f"{PATH} takes WebSockets: connect to ws://.../v1/realtime?intent=transcription",
        code="upgrade_required",
        headers={"Upgrade": "websocket", "Connection": "Upgrade"},
    )


@router.websocket(PATH)
async def realtime(socket: WebSocket) -> None:
    """Serve one stream."""
    settings: ServerSettings = socket.app.state.settings
    streams: LiveStreams = socket.app.state.models.streams
    _check_origin(socket, settings)
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in socket.scope["subprotocols"] else None)
    try:
        with streams.place() as end:
            await _Conversation(socket, settings, end).hold()
    except WebSocketDisconnect:
        pass
    except Exception as error:
        answer = answer_to(socket.scope, error)
        await _close(socket, answer, GOING_AWAY if answer.code == "draining" else CODES.get(answer.status, BROKEN))


class _Conversation:
    """One connection. end: set when the server shuts down."""

    def __init__(self, socket: WebSocket, settings: ServerSettings, end: asyncio.Event) -> None:
        self.socket, self.settings, self.end = socket, settings, end
        self.gone = asyncio.Event()  # set once nothing can be sent
        socket.app.state.models.check_open()
        expires_at = int(time.time() + settings.max_stream_seconds)
        self.session = RealtimeSession(socket.scope, _beginning(socket), self._send, expires_at)

    async def hold(self) -> None:
        """Handle the client's events until one side ends the stream."""
        session = self.session
        try:
            await session.open()
            error, code = await self._until_end()
            if error is not None:
                if code != BROKEN:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(FINISH_SECONDS):
                            await session.finish()
                await _close(self.socket, answer_to(self.socket.scope, error), code)
        finally:
            await session.close()
            log = self.socket.scope["state"].setdefault("log", {})
            log |= {"model": session.model, "audio_seconds": round(session.num_seconds, 3)}

    async def _until_end(self) -> tuple[ApiError | None, int]:
        """Return the reason why the server ends the stream, with the code; None: the client has closed it."""
        reading = asyncio.ensure_future(self._read())
        others = [asyncio.ensure_future(each.wait()) for each in (self.gone, self.end, self.session.is_broken)]
        try:
            await asyncio.wait(
                (reading, *others), timeout=self.settings.max_stream_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self.gone.is_set():
                return None, 0
            if reading.done():
                idle = f"nothing was sent for {self.settings.stream_idle_seconds:g} s: send audio, or connect again"
                return (None, 0) if reading.result() else (ApiError(408, idle, code="idle_timeout"), VIOLATION)
            if self.session.is_broken.is_set():
                return ApiError(503, "the model has stopped: see the server's log", code="unavailable"), BROKEN
            if self.end.is_set():
                return ApiError(503, "the server is shutting down: connect again later", code="draining"), GOING_AWAY
            message = f"the stream has lasted {self.settings.max_stream_seconds:g} s: connect again"
            return ApiError(400, message, code="session_expired"), GOING_AWAY
        finally:
            for each in (reading, *others):
                each.cancel()
            await asyncio.gather(reading, *others, return_exceptions=True)

    async def _read(self) -> bool:
        """Handle events until the client closes the stream; then return True. Returns False once it is idle."""
        while True:
            try:
                async with asyncio.timeout(self.settings.stream_idle_seconds):
                    message = await self.socket.receive()
            except TimeoutError:
                return False
            if message["type"] == "websocket.disconnect":
                return True
            await self.session.take(message.get("text"))
            await asyncio.sleep(0)  # a flood of messages must not keep other clients waiting

    async def _send(self, event: dict[str, Any]) -> None:
        """Send an event. If the client has disconnected, the event is dropped."""
        try:
            await self.socket.send_text(json.dumps(event))
        except (WebSocketDisconnect, RuntimeError):
            self.gone.set()  # `_read` may wait for something else


def _beginning(socket: WebSocket) -> TranscriptionSession:
    """Return the settings of a new session: the client secret's, with the model in the URL.

    Raises ApiError for a URL of another kind of session, and ParameterError.
    """
    query = socket.query_params
    for name in query:
        if name not in ("intent", "model"):
            message = f"the query parameter {name[:100]!r} is unknown. Connect to {PATH}?intent=transcription"
            raise ApiError(400, message, param=name[:100], code="unknown_parameter")
    if query.get("intent", "transcription") != "transcription":
        message = f"intent must be transcription, not {query['intent'][:100]!r}: this server has no conversations"
        raise ApiError(400, message, param="intent", code="invalid_value")
    settings = TranscriptionSession.of(socket.scope["state"].get("session", {}))
    if "model" in query:
        settings = settings.merged({"audio": {"input": {"transcription": {"model": query["model"]}}}})
    return settings


def _check_origin(socket: WebSocket, settings: ServerSettings) -> None:
    """Refuse pages of other origins, which browsers let connect anywhere. Raises ApiError: 403."""
    origin = socket.headers.get("origin")
    if origin is None or "*" in settings.cors or origin in settings.cors:
        return
    hosts = {socket.headers.get("host"), socket.headers.get("x-forwarded-host")}
    if urlsplit(origin).netloc not in hosts:
        message = f"pages of {origin[:200]} may not connect: start the server with --cors {origin[:200]}"
        raise ApiError(403, message, code="origin_not_allowed")


async def _close(socket: WebSocket, answer: ApiError, code: int) -> None:
    """Send the reason for the end of a stream, and close it."""
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_text(json.dumps(error_event(answer)))
        await socket.close(code, answer.code or "")
