"""Answers that end when their client goes away: `attended` for whole ones, `event_stream` for server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

import anyio
from fastapi.sse import EventSourceResponse, format_sse_event
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from transept.serving.errors import answer_to, client_gone

Result = TypeVar("Result")
KEEP_ALIVE_SECONDS = 15.0  # after which a silent stream sends a comment, so that no proxy times out
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def attended(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`. Cancel it and raise ApiError if the client disconnects first.

    The request's body must have been read.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise client_gone()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def event_stream(
    request: Request, events: AsyncGenerator[dict[str, Any], None], stack: contextlib.AsyncExitStack
) -> Response:
    """Return an answer of server-sent events, ``data: {JSON}``, ended by ``data: [DONE]``.

    events: plain dicts; closed if the client disconnects, which is counted and logged as for any answer. stack: closed
    after the answer. An exception before the first event, and within KEEP_ALIVE_SECONDS, is raised, which sets the
    status. A later one is sent as ``{"error": ...}``, the last event.
    """
    lines = await stack.enter_async_context(contextlib.aclosing(_lines(request.scope, events)))
    first = await attended(request, anext(lines))

    async def whole() -> AsyncGenerator[bytes, None]:
        yield first
        async for line in lines:
            yield line

    return EventSourceResponse(whole(), headers=HEADERS)


async def _lines(scope: Scope, events: AsyncGenerator[dict[str, Any], None]) -> AsyncGenerator[bytes, None]:
    """Yield the events as sent, and a comment after each KEEP_ALIVE_SECONDS without an event."""
    has_begun, following = False, asyncio.ensure_future(anext(events))
    try:
        while True:
            done, _ = await asyncio.wait((following,), timeout=KEEP_ALIVE_SECONDS)
            line = _line(following.result()) if done else format_sse_event(comment="waiting")
            if done:
                following = asyncio.ensure_future(anext(events))
            has_begun = True
            yield line
    except StopAsyncIteration:
        yield format_sse_event(data_str="[DONE]")
    except Exception as error:
        if not has_begun:
            raise
        yield _line(answer_to(scope, error).body())
    except BaseException:
        if has_begun:  # the client disconnected: log that, not the status with which the answer began
            scope["state"].setdefault("log", {})["status"] = answer_to(scope, client_gone()).status
        raise
    finally:
        with anyio.CancelScope(shield=True):
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await events.aclose()


def _line(event: dict[str, Any]) -> bytes:
    text = json.dumps(event, ensure_ascii=False).encode(errors="replace").decode()  # without halves of surrogate pairs
    return format_sse_event(data_str=text)
