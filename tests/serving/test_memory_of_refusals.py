"""A hundred refusals of each sort by a real server: the peak of its memory stays near where it began."""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from serve_process import PATIENCE, ServeProcess

RATE = 16_000  # Hz
NUM_REFUSALS = 100
NUM_CLIENTS = 4
MOST_MIB = 100.0  # growth of the process, from the start to its peak
LONGEST = 300  # seconds of a recording; 18 MiB of samples
NUM_RUNNING, NUM_WAITING = 2, 6
NUM_PLACES = NUM_RUNNING + NUM_WAITING
TOML = f"""
max_running = {NUM_RUNNING}
max_queue = {NUM_WAITING}
max_upload_mb = 16
max_audio_seconds = {LONGEST}
[engine]
kv_cache_bytes = 50_000_000
"""


@pytest.fixture(scope="module")
def own(tiny_en_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """With a small cache: its pages take memory once they are written."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "server.toml").write_text(TOML)
    server = ServeProcess(folder, f"tiny.en={tiny_en_dir}", "--config", folder / "server.toml")
    yield server.wait_until_ready()
    server.stop()


def silence(hours: float, *, declared: bool = True) -> bytes:
    """A FLAC of silence. declared: its header holds its length."""
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", RATE, 1, format="FLAC") as sound:
        for _ in range(round(hours * 60)):
            sound.write(np.zeros(60 * RATE, np.int16))
    encoded = bytearray(file.getvalue())
    if not declared:
        encoded[21] &= 0xF0  # STREAMINFO's number of samples, 36 bits
        encoded[22:26] = bytes(4)
    return bytes(encoded)


SPEECH = (Path(__file__).parents[1] / "data" / "speech" / "librivox" / "austen-0870.flac").read_bytes()
NOISE = np.random.default_rng(0).integers(0, 256, 8 << 20, dtype=np.uint8).tobytes()


def refused(file: bytes, status: int, **fields: str) -> Callable[[ServeProcess], None]:
    """A refusal with this status."""

    def ask(server: ServeProcess) -> None:
        url = f"{server.url}/v1/audio/transcriptions"
        answer = httpx.post(url, files={"file": ("a.flac", file)}, data=fields, timeout=PATIENCE)
        assert answer.status_code == status, answer.text

    return ask


def chunked(server: ServeProcess) -> None:
    """An upload that does not say how large it is, and is too large."""
    url = f"{server.url}/v1/audio/transcriptions"
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    pieces = [head, NOISE, NOISE, NOISE]
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    with contextlib.suppress(httpx.WriteError):  # the server answers and closes the connection meanwhile
        assert httpx.post(url, content=iter(pieces), headers=headers, timeout=PATIENCE).status_code == 413


def hung_up(server: ServeProcess) -> None:
    """A client that resets its connection in the middle of its upload."""
    host, port = server.url.removeprefix("http://").split(":")
    head = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n"
    head += b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
        client.sendall(head + part + NOISE)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def abandoned(server: ServeProcess) -> None:
    """A client that goes away while its recording is decoded, or waits to be."""
    host, port = server.url.removeprefix("http://").split(":")
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    body = part + silence(LONGEST / 3600) + b"\r\n--x--\r\n"
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode()
    head += b"Content-Type: multipart/form-data; boundary=x\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as client:
        client.sendall(head + body)


@contextlib.contextmanager
def full_queue(server: ServeProcess) -> Iterator[None]:
    """All places of a server are taken: as soon as a client is answered it asks again."""
    url, stop = f"{server.url}/v1/audio/transcriptions", threading.Event()

    def ask_again() -> None:
        while not stop.is_set():
            httpx.post(url, files={"file": ("a.flac", SPEECH)}, data={"mode": "sequential"}, timeout=PATIENCE)

    with ThreadPoolExecutor(NUM_PLACES) as pool:
        for _ in range(NUM_PLACES):
            pool.submit(ask_again)
        try:
            yield
        finally:
            stop.set()


def until_refused(server: ServeProcess) -> None:
    """A request that is sent until no place is free for it."""
    url = f"{server.url}/v1/audio/transcriptions"
    while httpx.post(url, files={"file": ("a.flac", NOISE)}, timeout=PATIENCE).status_code != 429:
        pass


SORTS: dict[str, Callable[[], Callable[[ServeProcess], None]]] = {
    "too long": lambda: refused(silence(26), 413),
    "too long, as a stream": lambda: refused(silence(26), 413, stream="true"),
    "too long, undeclared": lambda: refused(silence(2 * LONGEST / 3600, declared=False), 413),
    "not audio, in memory": lambda: refused(NOISE[: 900 << 10], 400),
    "not audio, in a file": lambda: refused(NOISE, 400),
    "empty": lambda: refused(b"", 400),
    "too large": lambda: refused(NOISE * 3, 413),
    "too large, chunked": lambda: chunked,
    "unknown model": lambda: refused(NOISE, 404, model="gpt"),
    "unknown field": lambda: refused(NOISE, 400, beams="3"),
    "bad value": lambda: refused(NOISE, 400, beam_size="0"),
    "one channel": lambda: refused(silence(LONGEST / 3600), 400, channel="each"),
    "full queue": lambda: until_refused,
    "hung up while sending": lambda: hung_up,
    "hung up while waiting": lambda: abandoned,
}


@contextlib.contextmanager
def _idle(_: ServeProcess) -> Iterator[None]:
    """The server does nothing else."""
    yield


MEANWHILE = {"full queue": full_queue}  # sort -> what the server does while it refuses


def peak_mib(server: ServeProcess) -> float:
    """The most memory since `forget_peak`."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["VmHWM"].split()[0]) / 1024


def forget_peak(server: ServeProcess) -> None:
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # proc(5)


@pytest.mark.slow
@pytest.mark.parametrize("sort", SORTS)
def test_a_hundred_refusals_leave_nothing(own: ServeProcess, sort: str) -> None:
    ask, meanwhile = SORTS[sort](), MEANWHILE.get(sort, _idle)
    with meanwhile(own):
        ask(own)
    own.wait_until_idle()
    forget_peak(own)
    start = own.resident_mib()
    with meanwhile(own), ThreadPoolExecutor(NUM_CLIENTS) as pool:
        list(pool.map(lambda _: ask(own), range(NUM_REFUSALS)))
    own.wait_until_idle()
    peak, end = peak_mib(own), own.resident_mib()
    print(f"{sort}: {start:.0f} MiB at the start, {peak:.0f} at most, {end:.0f} at the end")
    assert peak < start + MOST_MIB
    assert "Traceback" not in own.log.read_text()
