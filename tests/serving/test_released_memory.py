"""Nothing that a refused request held stays: neither its samples nor its body, though the garbage collector is off."""

from __future__ import annotations

import asyncio
import gc
import io
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from transept.serving.http.app import build_app
from transept.serving.settings import ModelSource, ServerSettings

RATE = 16_000  # Hz
LONGEST = 60.0  # seconds of a recording: 3.84 MB of samples
TIMES = 5
SMALL = 600_000  # bytes that five requests may leave: a sixth of one request's samples, or of its body
BOUNDARY = "refused"


@pytest.fixture
def collector_is_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@contextmanager
def traced() -> Iterator[list[int]]:
    """The bytes that the block leaves in Python's memory and NumPy's."""
    left: list[int] = []
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        yield left
        left.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()


def silence(seconds: float) -> bytes:
    """A FLAC."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(seconds * RATE), np.int16), RATE, format="FLAC")
    return file.getvalue()


def undeclared(seconds: float) -> bytes:
    """A FLAC whose header holds no length, as one that was streamed."""
    file = bytearray(silence(seconds))
    file[21] &= 0xF0  # STREAMINFO's number of samples, 36 bits of it
    file[22:26] = bytes(4)
    return bytes(file)


def form(audio: bytes, **fields: str) -> bytes:
    parts = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    parts += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.flac"\r\n\r\n'
    return parts.encode() + audio + f"\r\n--{BOUNDARY}--\r\n".encode()


async def status_of(app: Any, body: bytes, gone_after: int | None = None) -> int:
    """POST a form to the application itself. gone_after: the client hangs up after so many bytes. Returns the status.

    0 for a client that hung up.
    """
    sent = [memoryview(body)[begin : begin + (1 << 16)] for begin in range(0, len(body), 1 << 16)]
    status, over = 0, asyncio.Event()
    num_received = 0

    async def receive() -> dict[str, Any]:
        nonlocal num_received
        if gone_after is not None and num_received >= gone_after:
            return {"type": "http.disconnect"}
        if not sent:
            await over.wait()
            return {"type": "http.disconnect"}
        piece = bytes(sent.pop(0))
        num_received += len(piece)
        return {"type": "http.request", "body": piece, "more_body": bool(sent)}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif not message.get("more_body"):
            over.set()

    kind = f"multipart/form-data; boundary={BOUNDARY}".encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/audio/transcriptions",
        "raw_path": b"/v1/audio/transcriptions",
        "query_string": b"",
        "headers": [(b"content-type", kind)],
        "client": ("127.0.0.1", 1),
        "server": ("x", 80),
        "root_path": "",
        "state": {},
    }
    await app(scope, receive, send)
    return status


NOISE = bytes(np.random.default_rng(0).integers(0, 256, 900_000, dtype=np.uint8))  # under 1 MiB: kept in memory
LONG = silence(2 * LONGEST)
REFUSED = {
    "too long": (form(LONG), 413),
    "too long, says nothing of it": (form(undeclared(2 * LONGEST)), 413),
    "too long, as a stream": (form(LONG, stream="true"), 413),
    "not audio": (form(NOISE), 400),
    "unknown model": (form(NOISE, model="gpt"), 404),
    "unknown option": (form(NOISE, beams="3"), 400),
    "bad value": (form(NOISE, beam_size="0"), 400),
    "too large": (form(NOISE * 3), 413),
}


def check_nothing_stays(requests: list[tuple[bytes, int | None]], statuses: set[int], tiny_en_dir: Path) -> None:
    settings = ServerSettings((ModelSource("tiny.en", str(tiny_en_dir)),), max_audio_seconds=LONGEST, max_upload_mb=2.0)

    async def whole() -> None:
        app = build_app(settings)
        app.state.models.start_loading()
        await app.state.models.wait_until_loaded()
        gc.disable()  # loading may have turned it on

        async def ask() -> None:
            for body, gone_after in requests:
                assert await status_of(app, body, gone_after) in statuses
            while any(engine.num_running or engine.engine.runner._offloaded for engine in app.state.models.engines()):
                await asyncio.sleep(0.01)

        await ask()  # fills caches
        with traced() as left:
            for _ in range(TIMES):
                await ask()
        assert left[0] < SMALL
        await app.state.models.drain(10.0)

    asyncio.run(whole())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("sort", REFUSED)
def test_a_refusal_leaves_nothing(sort: str, tiny_en_dir: Path, collector_is_off: None) -> None:
    body, status = REFUSED[sort]
    check_nothing_stays([(body, None)], {status}, tiny_en_dir)


def test_a_client_that_hangs_up_leaves_nothing(tiny_en_dir: Path, collector_is_off: None) -> None:
    body = form(NOISE)
    check_nothing_stays([(body, 300_000), (form(silence(LONGEST - 1)), 1)], {0, 499}, tiny_en_dir)
