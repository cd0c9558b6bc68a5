"""Clients that go away at random moments: nothing of theirs is left, and everybody else is answered right."""

import contextlib
import json
import random
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from serve_process import PATIENCE, ServeProcess

from transept import Transcriber

SEED = 5
BOUNDARY = "hang-up"
SPARE_FILES = 12  # descriptors that the process may have more of: sockets of those who look, threads' pipes


@pytest.fixture(scope="module")
def own(tiny_en_dir: Path, bart_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """With a small cache: its pages take memory once they are written, which is to be over when memory is compared."""
    folder = tmp_path_factory.mktemp("hang-ups")
    (folder / "server.toml").write_text("max_queue = 10000\n[engine]\nkv_cache_bytes = 150_000_000\n")
    server = ServeProcess(folder, f"tiny.en={tiny_en_dir}", f"bart={bart_dir}", "--config", folder / "server.toml")
    yield server.wait_until_ready()
    server.stop()


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0870.flac"


@pytest.fixture(scope="module")
def large(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A recording that is too large to be kept in memory."""
    parts = [soundfile.read(clip)[0] for clip in sorted((speech_dir / "librivox").glob("*.flac"))]
    file = tmp_path_factory.mktemp("large") / "large.wav"
    soundfile.write(file, np.concatenate(parts), 16000)
    return file.read_bytes()


def upload(audio: bytes, **fields: str) -> bytes:
    parts = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in {"model": "tiny.en", **fields}.items()
    )
    parts += f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body = parts.encode() + audio + f"\r\n--{BOUNDARY}--\r\n".encode()
    return request("/v1/audio/transcriptions", f"multipart/form-data; boundary={BOUNDARY}", body)


def request(path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def hang_up(server: ServeProcess, sent: bytes, dice: random.Random) -> None:
    """Send some or all of a request, perhaps read a little, and go away, perhaps with a reset."""
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    with socket.create_connection(address, timeout=PATIENCE) as client:
        if dice.random() < 0.5:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        client.sendall(sent if dice.random() < 0.7 else sent[: dice.randrange(len(sent))])
        if dice.random() < 0.7:  # a moment, or a part of the answer, whichever is first
            select.select([client], [], [], dice.random())
            if dice.random() < 0.5:
                client.setblocking(False)
                with contextlib.suppress(OSError):
                    client.recv(dice.randrange(1, 4000))


def go_away(server: ServeProcess, clip: bytes, large: bytes, num_clients: int) -> None:
    """Many clients, some at a time, that go away."""
    dice = random.Random(SEED)
    text = {"model": "bart", "input": "The rain in Spain falls mainly on the plain.", "stream": True}
    completion = {"model": "bart", "prompt": ["The rain in Spain", "falls"], "n": 2, "max_tokens": 30}
    requests = [
        upload(clip),
        upload(clip, stream="true", progress="true"),
        upload(clip, beam_size="5", response_format="verbose_json"),
        upload(large, stream="true"),
        upload(large, batched="true"),
        request("/v1/summarize", "application/json", json.dumps(text).encode()),
        request("/v1/completions", "application/json", json.dumps(completion).encode()),
    ]
    with ThreadPoolExecutor(16) as pool:
        clients = [
            pool.submit(hang_up, server, dice.choice(requests), random.Random(dice.random()))
            for _ in range(num_clients)
        ]
        for client in clients:
            client.result()


def check_nothing_is_left(server: ServeProcess, clip: Path, expected: str, num_files: int) -> None:
    server.wait_until_idle()
    with clip.open("rb") as file:
        answer = httpx.post(f"{server.url}/v1/audio/transcriptions", files={"file": file}, timeout=PATIENCE)
    assert answer.json()["text"] == expected
    server.wait_until_idle()
    assert server.num_open_files() <= num_files + SPARE_FILES
    assert "Traceback" not in server.log.read_text()


def test_nothing_is_left_of_clients_that_go_away(
    own: ServeProcess, clip: Path, large: bytes, tiny_en_dir: Path
) -> None:
    expected = Transcriber(tiny_en_dir).transcribe(clip).text
    num_files = own.num_open_files()
    go_away(own, clip.read_bytes(), large, 60)
    check_nothing_is_left(own, clip, expected, num_files)


def test_who_stays_is_answered_beside_those_who_go(
    own: ServeProcess, clip: Path, large: bytes, tiny_en_dir: Path
) -> None:
    expected = Transcriber(tiny_en_dir).transcribe(clip).text
    url = f"{own.url}/v1/audio/transcriptions"
    with ThreadPoolExecutor(5) as pool:
        going = pool.submit(go_away, own, clip.read_bytes(), large, 30)
        staying = [pool.submit(httpx.post, url, files={"file": clip.read_bytes()}, timeout=PATIENCE) for _ in range(4)]
        assert [answer.result().json()["text"] for answer in staying] == [expected] * 4
        going.result()


@pytest.mark.slow
def test_nothing_is_left_of_a_thousand_clients_that_go_away(
    own: ServeProcess, clip: Path, large: bytes, tiny_en_dir: Path
) -> None:
    """Rounds of clients: a leak grows in each of them, while the allocator's arenas fill up in some only."""
    expected = Transcriber(tiny_en_dir).transcribe(clip).text
    go_away(own, clip.read_bytes(), large, 300)
    own.wait_until_idle()
    num_files, memory = own.num_open_files(), [own.resident_mib()]
    for _ in range(4):
        go_away(own, clip.read_bytes(), large, 300)
        check_nothing_is_left(own, clip, expected, num_files)
        memory.append(own.resident_mib())
    growths = [after - before for before, after in pairwise(memory)]
    assert min(growths) < 50, memory  # MiB; a clip and its features are 1 MiB
