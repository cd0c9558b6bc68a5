"""More clients than a server takes: the admitted are answered right, all others are told when to come again."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import openai
import pytest
from serve_process import PATIENCE, ServeProcess

from transept import Transcriber

CAPACITY = 4  # requests: two that run, two that wait


@pytest.fixture(scope="module")
def small(tiny_en_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    folder = tmp_path_factory.mktemp("small")
    (folder / "server.toml").write_text("max_running = 2\nmax_queue = 2\n[engine]\nkv_cache_bytes = 150_000_000\n")
    server = ServeProcess(folder, f"tiny.en={tiny_en_dir}", "--config", folder / "server.toml")
    yield server.wait_until_ready()
    server.stop()


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted((speech_dir / "librivox").glob("*.flac"))]


@pytest.fixture(scope="module")
def expected(clips: list[bytes], tiny_en_dir: Path) -> list[str]:
    return [transcript.text for transcript in Transcriber(tiny_en_dir).transcribe_many(clips)]


def post(server: ServeProcess, clip: bytes, client: httpx.Client | None = None) -> httpx.Response:
    url = f"{server.url}/v1/audio/transcriptions"
    return (client or httpx).post(url, files={"file": ("a.flac", clip)}, timeout=PATIENCE)


def check(answer: httpx.Response, text: str) -> int:
    """Returns its status, which is 200 or 429."""
    if answer.status_code == 200:
        assert answer.json()["text"] == text
        return 200
    assert answer.status_code == 429, answer.text
    assert answer.json()["error"]["code"] == "queue_full"
    assert int(answer.headers["retry-after"]) >= 1
    assert int(answer.headers["retry-after-ms"]) >= 1
    return 429


def test_too_many_at_once_are_answered_or_told_to_come_again(
    small: ServeProcess, clips: list[bytes], expected: list[str]
) -> None:
    """Clients ask until one is refused: on a busy machine the first may have their answers before the last ask."""
    num_clients, refused_one = 5 * CAPACITY, threading.Event()

    def ask(number: int) -> Counter[int]:
        statuses: Counter[int] = Counter()
        while not statuses or not refused_one.is_set():
            status = check(post(small, clips[number % len(clips)]), expected[number % len(clips)])
            statuses[status] += 1
            if status == 429:
                refused_one.set()
        return statuses

    before = small.metrics()
    with ThreadPoolExecutor(num_clients) as pool:
        statuses = sum(pool.map(ask, range(num_clients)), Counter[int]())
    assert statuses[200] >= CAPACITY
    small.wait_until_idle()
    after = small.metrics()
    admitted = ("transept_requests_admitted_total", "tiny.en")
    refused = ("transept_requests_refused_total", "queue_full")
    assert after[admitted] - before[admitted] == statuses[200]
    assert after[refused] - before.get(refused, 0) == statuses[429]


def test_openais_client_comes_again_by_itself(small: ServeProcess, clips: list[bytes], expected: list[str]) -> None:
    def transcribe(number: int) -> str:
        with openai.OpenAI(base_url=f"{small.url}/v1", api_key="none", max_retries=100, timeout=PATIENCE) as client:
            file = ("a.flac", clips[number % len(clips)])
            return client.audio.transcriptions.create(model="tiny.en", file=file).text

    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(transcribe, range(8)))
    assert texts == [expected[number % len(clips)] for number in range(8)]


def test_probes_are_answered_while_the_queue_is_full(small: ServeProcess, clips: list[bytes]) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers = [pool.submit(post, small, clips[number % len(clips)]) for number in range(12)]
        while not all(answer.done() for answer in answers):
            for path in ("/health", "/ready", "/metrics", "/v1/models"):
                assert httpx.get(small.url + path, timeout=PATIENCE).status_code == 200


@pytest.mark.slow
def test_two_minutes_of_five_times_too_many(small: ServeProcess, clips: list[bytes], expected: list[str]) -> None:
    def ask(number: int, end: float) -> Counter[int]:
        statuses: Counter[int] = Counter()
        with httpx.Client() as client:
            while time.monotonic() < end:
                index = (number + statuses.total()) % len(clips)
                statuses[check(post(small, clips[index], client), expected[index])] += 1
        return statuses

    def flood(seconds: float) -> Counter[int]:
        end = time.monotonic() + seconds
        with ThreadPoolExecutor(5 * CAPACITY) as pool:
            return sum(pool.map(partial(ask, end=end), range(5 * CAPACITY)), Counter[int]())

    statuses = flood(60)  # until the cache has been written and the allocator has as much as it ever asks for
    memory = small.resident_mib()
    statuses += flood(60)
    assert set(statuses) == {200, 429}
    small.wait_until_idle()
    assert small.resident_mib() < memory + 100
    assert "Traceback" not in small.log.read_text()
