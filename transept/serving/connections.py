"""PatientConnection: uvicorn's HTTP connection, with bounds for clients that send or read too slowly.

The bound of bodies is the application's (`http.access`), since it answers; here are those of heads, and of readers.
"""

from __future__ import annotations

import asyncio
import json
import uuid

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from transept.serving.errors import ApiError

HEAD_SECONDS = 20.0  # in which a request's line and headers must come, or the rest of a body that nobody wants
READ_SECONDS = 60.0  # in which a client must read a buffer full (64 KiB) of its answer


class PatientConnection(H11Protocol):
    """One connection of a client. Given up when a request's head, or the reading of an answer, takes too long.

    uvicorn has no such bounds; its keep-alive ends with a head's first byte.
    """

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, and is to send a head."""
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._head_timer = _cancelled(self._head_timer)
        self._read_timer = _cancelled(self._read_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came: more of a head, or of a body."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """An answer was sent; the next head may have come already."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Set the timer while something comes that is no request yet: a head, or the rest of a body nobody wants."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering or self.timeout_keep_alive_task is not None:
            self._head_timer = _cancelled(self._head_timer)
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        """The client has not read so much that more is to wait."""
        super().pause_writing()
        self._read_timer = self._read_timer or self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read most of it."""
        super().resume_writing()
        self._read_timer = _cancelled(self._read_timer)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or a head that is too long."""
        error = ApiError(400, "this is no valid HTTP request, or its headers are too long", code="invalid_request")
        request_id = uuid.uuid4().hex
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer to what came before is on its way
            body = json.dumps(error.body())
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nx-request-id: {request_id}\r\n"
            self.transport.write(f"HTTP/1.1 400 Bad Request\r\n{head}connection: close\r\n\r\n{body}".encode())
            self.note_malformed(error, request_id)
        if self.cycle is not None:
            self.cycle.disconnected = True  # whoever works on the request is to stop
            self.cycle.message_event.set()
        self.transport.close()

    def note_malformed(self, error: ApiError, request_id: str) -> None:
        """Called with the answer to what is no HTTP, for subclasses that log and count."""


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
