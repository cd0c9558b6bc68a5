"""Answers that end when their client goes away: `attended` for whole ones, `EventStream` for server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from transept.serving.errors import client_gone
from transept.serving.http.failures import answer_to

Result = TypeVar("Result")
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_SECONDS = 15.0  # after which a silent stream sends a comment, so that no proxy gives it up


async def attended(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of some work, which is cancelled when the client goes away. The request's body must have been read.

    Raises ApiError then.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise client_gone()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events, ``data: {JSON}``, ended by ``data: [DONE]``.

    events: plain dicts. owned: what is given back after them. Both are closed when the client goes away, which is
    counted and logged as of any answer. What is raised before the first event, and within KEEP_ALIVE_SECONDS, is the
    answer, with its status; later it is sent as ``{"error": ...}``, the last event.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[dict[str, Any], None],
        owned: contextlib.AsyncExitStack | None = None,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.events = events
        self.owned = contextlib.AsyncExitStack() if owned is None else owned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        gone = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send(scope, receive, send))
        try:
            await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                told = answer_to(scope, client_gone())
                scope["state"].setdefault("log", {})["status"] = told.status  # not that with which it began
        finally:
            for each in (sending, gone):
                each.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            try:
                await self.events.aclose()
            finally:
                await self.owned.aclose()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer's head with the first event, and an error in its place."""
        has_begun = False

        async def begin() -> None:
            nonlocal has_begun
            if not has_begun:
                has_begun = True
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def body(chunk: bytes) -> None:
            await begin()
            await send({"type": "http.response.body", "body": chunk, "more_body": bool(chunk)})

        with contextlib.suppress(OSError):  # the client went away
            try:
                async with contextlib.aclosing(_with_pauses(self.events)) as events:
                    async for event in events:
                        await body(b": waiting\n\n" if event is None else _line(event))
            except Exception as error:
                told = answer_to(scope, error)
                if not has_begun:
                    await told.response()(scope, receive, send)
                    return
                await body(_line(told.body()))
            else:
                await body(DONE)
            await body(b"")


async def _with_pauses(
    events: AsyncGenerator[dict[str, Any], None],
) -> AsyncGenerator[dict[str, Any] | None, None]:
    """The events, and None whenever there was none for KEEP_ALIVE_SECONDS."""
    following: asyncio.Future[dict[str, Any]] | None = None
    try:
        while True:
            if following is None:
                following = asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait((following,), timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield None
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                following = None
                return
            following = None
            yield event
    finally:
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _line(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode(errors="replace") + b"\n\n"
