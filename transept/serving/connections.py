"""PatientConnection: uvicorn's HTTP connection, with bounds for clients that send or read too slowly.

The bound of bodies is the application's (`http.access`), since it answers; here are those of heads, and of readers.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from transept.serving.errors import ApiError

HEAD_SECONDS = 20.0  # in which a request's line and headers must come, or the rest of a body that nobody wants
READ_SECONDS = 60.0  # in which a client must read a buffer full (64 KiB) of its answer


class PatientConnection(H11Protocol):
    """One connection of a client. Given up when a request's head, or the reading of an answer, takes too long."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there, and is to send a head."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        for timer in (self._head_timer, self._read_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._read_timer = None
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
        """Set the timer while a head is to come, or the rest of a body that was answered already; else end it."""
        state = self.conn.their_state
        awaits_head = state is h11.IDLE and self.timeout_keep_alive_task is None
        awaits_rest = state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete
        if awaits_head or awaits_rest:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def pause_writing(self) -> None:
        """The client has not read so much that more is to wait."""
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read most of it."""
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or a head that is too long."""
        request_id = uuid.uuid4().hex
        error = ApiError(400, "this is no valid HTTP request, or its headers are too long", code="invalid_request")
        body = json.dumps(error.body()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            (b"x-request-id", request_id.encode()),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer to what came before is on its way
            for event in (h11.Response(status_code=400, headers=headers, reason=b"Bad Request"), h11.Data(data=body)):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
            self.note_malformed(error, request_id)
        if self.cycle is not None:
            self.cycle.disconnected = True  # whoever works on the request is to stop
            self.cycle.message_event.set()
        self.transport.close()

    def note_malformed(self, error: ApiError, request_id: str) -> None:
        """Called with the answer to what is no HTTP, for subclasses that log and count."""
