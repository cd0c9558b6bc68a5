"""The log of a server: a line for each request, none for probes, and the request's id on what it warns of."""

import io
import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from serve_process import PATIENCE, Serve, ServeProcess

PROBES = ("/health", "/ready", "/metrics")
NUMBERS = count(100)  # of requests that are sent last; none of their ids is the beginning of another


@pytest.fixture(scope="module")
def plain(tiny_en_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A server whose log is text."""
    process = ServeProcess(tmp_path_factory.mktemp("plain"), f"tiny.en={tiny_en_dir}")
    yield process.wait_until_ready()
    process.stop()


def damaged() -> bytes:
    """A second of noise whose codec decodes it far over full scale, which is warned of."""
    file = io.BytesIO()
    soundfile.write(file, np.random.default_rng(0).normal(0, 6, 16_000), 16_000, format="OGG", subtype="VORBIS")
    return file.getvalue()


def log_of(server: ServeProcess) -> list[str]:
    """All lines, once a request that is sent last has its own."""
    last = f"last-{next(NUMBERS)}"
    server.client.get("/v1/models", headers={"X-Request-Id": last})
    while last not in (text := server.log.read_text()):
        server.client.get("/health")
    return text.splitlines()


def test_a_line_of_text_tells_each_request(plain: ServeProcess, speech_dir: Path) -> None:
    clip = (speech_dir / "librivox" / "austen-0870.flac").read_bytes()
    headers = {"X-Request-Id": "spoken"}
    url = f"{plain.url}/v1/audio/transcriptions"
    assert httpx.post(url, files={"file": clip}, headers=headers, timeout=PATIENCE).status_code == 200
    plain.client.head("/v1/models", headers={"X-Request-Id": "asked"})
    plain.client.get("/secret-path", headers={"X-Request-Id": "lost"})
    lines = log_of(plain)
    expected = {
        "spoken": r"POST /v1/audio/transcriptions 200 in \d+\.\d{3} s, model=tiny\.en, audio_seconds=\d+\.\d+",
        "asked": r"HEAD /v1/models 200 in \d+\.\d{3} s",
        "lost": r"GET \(unknown\) 404 in \d+\.\d{3} s",
    }
    for request_id, pattern in expected.items():
        (line,) = [line for line in lines if request_id in line]
        assert re.fullmatch(rf"\S+ \S+ INFO {pattern} \(request {request_id}\)", line)
    assert not any("secret-path" in line for line in lines)


def test_probes_have_no_line(plain: ServeProcess) -> None:
    for path in PROBES:
        plain.client.get(path, headers={"X-Request-Id": "probes"})
    assert not any("probes" in line or path in line for line in log_of(plain) for path in PROBES)


def test_probes_have_one_where_they_are_asked_for(serve: Serve, bart_dir: Path) -> None:
    server = serve(f"bart={bart_dir}", "--log-probes")
    server.client.get("/health")
    assert any("GET /health 200" in line for line in log_of(server))


def test_a_warning_has_its_requests_id(plain: ServeProcess) -> None:
    url = f"{plain.url}/v1/audio/transcriptions"
    httpx.post(url, files={"file": damaged()}, headers={"X-Request-Id": "broken"}, timeout=PATIENCE)
    warnings = [line for line in log_of(plain) if " WARNING " in line]
    assert warnings
    assert all(line.endswith(" (request broken)") for line in warnings)


def test_a_warning_has_it_in_json(server: ServeProcess) -> None:
    url = f"{server.url}/v1/audio/transcriptions"
    httpx.post(url, files={"file": damaged()}, headers={"X-Request-Id": "broken-2"}, timeout=PATIENCE)
    warnings = [line for line in map(json.loads, log_of(server)) if "damaged" in line.get("message", "")]
    assert "broken-2" in {line["request_id"] for line in warnings}
