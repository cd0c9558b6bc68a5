"""uvicorn's connections for HTTP and for WebSockets, with timeouts for slow request heads and slow readers.

The timeout of request bodies is in `http.access`, because the application answers it.
"""

from __future__ import annotations

import asyncio
import json
import uuid

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from transept.serving.errors import ApiError

HEAD_SECONDS = 20.0  # timeout of a request's line and headers, and of an unread rest of a body
READ_SECONDS = 60.0  # in which a client must read 64 KiB of its answer, the size of a full buffer


class ReadTimeout(asyncio.Protocol):
    """Aborts a connection whose client stops reading. Goes before uvicorn's protocol in a list of base classes."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _read_timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._read_timer = _cancelled(self._read_timer)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The write buffer is full: start the timeout of reading."""
        super().pause_writing()
        self._read_timer = self._read_timer or self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read most of the buffer: stop the timeout."""
        super().resume_writing()
        self._read_timer = _cancelled(self._read_timer)


class PatientConnection(ReadTimeout, H11Protocol):
    """A client's connection, which is aborted if a request's head, or reading an answer, takes too long.

    uvicorn has no such timeouts; its keep-alive timeout ends at the first byte of a head.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _is_websocket = False  # True once another protocol has the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first request's head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._head_timer = _cancelled(self._head_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process received bytes, then start or stop the timeout of heads."""
        super().data_received(data)
        self._watch()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Stop the timeout of heads, and leave the connection to `PatientWebSocket`."""
        self._is_websocket = True
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        """Start the timeout of the next request's head, part of which may have been received."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Run the timer while the connection receives a head, or the unread rest of a body."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self._is_websocket or self.timeout_keep_alive_task is not None:
            self._head_timer = _cancelled(self._head_timer)
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, or a head that is too long."""
        error = ApiError(
            400,
            "the request is not valid HTTP, or its headers are too long: send HTTP/1.1 with fewer headers",
            code="invalid_request",
        )
        request_id = uuid.uuid4().hex
        if self.conn.our_state in (
            h11.IDLE,
            h11.SEND_RESPONSE,
        ):  # otherwise an answer to an earlier request is being sent
            body = json.dumps(error.body())
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nx-request-id: {request_id}\r\n"
            self.transport.write(f"HTTP/1.1 400 Bad Request\r\n{head}connection: close\r\n\r\n{body}".encode())
            self.note_malformed(error, request_id)
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application stops working on the request
            self.cycle.message_event.set()
        self.transport.close()

    def note_malformed(self, error: ApiError, request_id: str) -> None:
        """Called with the answer to a malformed request, for subclasses that log and count it."""


class PatientWebSocket(ReadTimeout, WebSocketsSansIOProtocol):
    """A client's WebSocket, which is aborted if the client stops reading.

    uvicorn closes a connection whose pong is late. But a client that sends much data answers late. Any received byte
    shows that the client is alive, and so does data that the server has not read yet.
    """

    _last_received = 0.0  # time of the event loop

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        self._last_received = self.loop.time()
        super().data_received(data)

    def keepalive_timeout(self) -> None:
        """Close the connection if nothing has been received since the ping."""
        if self.read_paused or self._last_received > self.ping_sent_at:
            self.pong_timer = self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
