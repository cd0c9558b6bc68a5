"""Clients that are too slow, at the level of bytes: their connections are given up. Bounds are shortened here."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from transept.serving import connections
from transept.serving.connections import PatientConnection

SHORT = 0.2  # seconds
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE = bytes(64 << 20)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers without reading; ``/large`` with more than sockets hold."""
    if scope["type"] != "http":
        return
    body = LARGE if scope["path"] == "/large" else b"hello"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    for begin in range(0, len(body), 1 << 16):
        await send({"type": "http.response.body", "body": body[begin : begin + (1 << 16)], "more_body": True})
    await send({"type": "http.response.body"})


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[uvicorn.Server, int]]:
    """A server in this process, and its port."""
    options: dict[str, Any] = {"lifespan": "off", "log_config": None, "h11_max_incomplete_event_size": 4096}
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=PatientConnection, timeout_keep_alive=1, **options))
    task = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


@pytest.fixture(autouse=True)
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", SHORT)
    monkeypatch.setattr(connections, "READ_SECONDS", SHORT)


async def read_to_the_end(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := await reader.read(1 << 16):
            received += piece
    return received


async def all_that_is_answered(sent: bytes) -> bytes:
    """What a new server says to some bytes until it closes the connection."""
    async with asyncio.timeout(60), serving() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        received = await read_to_the_end(reader)
        writer.close()
        return received


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"\r\n",
        GET + b"GET / HT",  # one after another
        GET + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nsome of it",  # which was answered already
    ],
    ids=repr,
)
def test_a_client_that_does_not_end_what_it_began_is_given_up(sent: bytes) -> None:
    answered = asyncio.run(all_that_is_answered(sent)).count(b"hello")
    assert answered == sent.count(b"Host: x\r\n\r\n") + sent.count(b"1000\r\n\r\n")


def test_a_head_that_drips_is_given_up() -> None:
    async def whole() -> None:
        async with asyncio.timeout(60), serving() as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                writer.write(b"GET / HTTP/1.1\r\n")
                for number in range(10_000):
                    writer.write(b"X-%d: y\r\n" % number)
                    await writer.drain()
                    await asyncio.sleep(0.02)
                    if reader.at_eof():
                        break
            assert not server.server_state.connections

    asyncio.run(whole())


def test_a_client_that_does_not_read_is_given_up() -> None:
    async def whole() -> None:
        async with asyncio.timeout(60), serving() as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(GET.replace(b"/ ", b"/large "))
            while not server.server_state.tasks:
                await asyncio.sleep(0.01)
            while server.server_state.tasks or server.server_state.connections:
                await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(whole())


def test_a_client_that_reads_gets_all_of_it_and_may_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 10.0)  # for which a busy machine may keep it from reading

    async def whole() -> None:
        async with asyncio.timeout(120), serving() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for path, length in ((b"/", 5), (b"/large", len(LARGE)), (b"/", 5)):
                writer.write(GET.replace(b"/ ", path + b" ", 1))
                head = await reader.readuntil(b"\r\n\r\n")
                assert b"content-length: %d" % length in head
                assert len(await reader.readexactly(length)) == length
            writer.close()

    asyncio.run(whole())


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nA: " + b"x" * 9000, b"\x16\x03\x01 TLS\r\n\r\n"],
    ids=lambda sent: repr(sent[:20]),
)
def test_what_is_no_http_is_answered_in_openais_shape(sent: bytes) -> None:
    head, _, body = asyncio.run(all_that_is_answered(sent)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"
