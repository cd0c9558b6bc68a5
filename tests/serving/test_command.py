"""``transept serve`` as a process: where it listens, whom it lets in, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from patience import wait_until
from serve_process import PATIENCE, Serve, ServeProcess
from speech.recordings import RATE, joined

CUT_OFF, FORCED = 1, 130
KEY = "a-key-of-the-tests"
OPEN = ("/health", "/ready", "/", "/web/index.html", "/docs", "/docs/start.js", "/openapi.json")
CLOSED = ("/v1/models", "/v1/models/none", "/metrics", "/nothing")


@pytest.fixture(scope="module")
def recording(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some windows: work for many steps."""
    file = tmp_path_factory.mktemp("recording") / "some.wav"
    soundfile.write(file, np.tile(joined(speech_dir / "librivox"), 2), RATE)
    return file


def run(*arguments: str, environment: dict[str, str] | None = None, code: str | None = None) -> Any:
    start = ["-m", "transept"] if code is None else ["-c", code]
    command = [sys.executable, *start, "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


class Stream:
    """A transcription that is streamed to this process by a thread of its own."""

    def __init__(self, server: ServeProcess, file: Path) -> None:
        self.begun = threading.Event()
        self.events: list[dict[str, Any]] = []
        self.ended = ThreadPoolExecutor(1).submit(self._read, server, file)

    def _read(self, server: ServeProcess, file: Path) -> bool:
        """Returns whether it was ended as it should be, by [DONE]."""
        data = {"stream": "true", "progress": "true", "beam_size": "5"}
        with (
            file.open("rb") as opened,
            httpx.stream(
                "POST",
                f"{server.url}/v1/audio/transcriptions",
                data=data,
                files={"file": opened},
                timeout=PATIENCE,
            ) as answer,
        ):
            for line in answer.iter_lines():
                if line == "data: [DONE]":
                    return True
                if line.startswith("data: "):
                    self.events.append(json.loads(line.removeprefix("data: ")))
                    self.begun.set()
        return False

    def wait_until_it_has_begun(self) -> "Stream":
        assert self.begun.wait(PATIENCE)
        return self


@pytest.fixture(scope="module")
def locked(tiny_en_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """With keys, of a file and of the environment."""
    folder = tmp_path_factory.mktemp("locked")
    (folder / "keys").write_text(f"# ours\n{KEY}\n")
    server = ServeProcess(
        folder,
        f"tiny.en={tiny_en_dir}",
        "--api-key-file",
        folder / "keys",
        "--cors",
        "https://example.org",
        "--upload-timeout",
        "0.2",
        environment={"TRANSEPT_API_KEY": "another-key"},
    )
    yield server.wait_until_ready()
    server.stop()


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("header", [None, "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer", "Bearer \xff"])
def test_without_a_key_nothing_is_told(path: str, header: str | None, locked: ServeProcess) -> None:
    headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
    answer = httpx.get(locked.url + path, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("key", [KEY, "another-key"])
def test_with_any_of_the_keys_all_is_open(key: str, locked: ServeProcess) -> None:
    for path in CLOSED:
        answer = httpx.get(locked.url + path, headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE)
        assert answer.status_code == (404 if path in ("/v1/models/none", "/nothing") else 200)


def test_probes_and_the_page_need_no_key(locked: ServeProcess) -> None:
    for path in OPEN:
        assert httpx.get(locked.url + path, timeout=PATIENCE).status_code == 200


def test_pages_of_other_origins_may_call_when_they_are_named(locked: ServeProcess) -> None:
    asked = {"origin": "https://example.org", "access-control-request-method": "POST"}
    preflight = httpx.options(f"{locked.url}/v1/audio/transcriptions", headers=asked, timeout=PATIENCE)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://example.org"
    refused = httpx.get(f"{locked.url}/v1/models", headers={"origin": "https://example.org"}, timeout=PATIENCE)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://example.org"  # so that the page can read it
    other = httpx.get(f"{locked.url}/health", headers={"origin": "https://other.example"}, timeout=PATIENCE)
    assert "access-control-allow-origin" not in other.headers


def test_keys_are_in_no_log(locked: ServeProcess) -> None:
    assert KEY not in locked.log.read_text()


def test_it_says_where_it_listens(server: ServeProcess) -> None:
    assert server.line.startswith("Transept listens on http://127.0.0.1:")
    assert httpx.get(f"{server.url}/health", timeout=PATIENCE).json() == {"status": "ok"}


def test_a_request_id_comes_back_and_stands_in_the_log(server: ServeProcess) -> None:
    answer = httpx.get(f"{server.url}/v1/models", headers={"x-request-id": "mine-1"}, timeout=PATIENCE)
    assert answer.headers["x-request-id"] == "mine-1"
    # it is written once all is sent
    found = wait_until(lambda: [line for line in server.log.read_text().splitlines() if "mine-1" in line])
    line = json.loads(found[0])
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/models", 200)
    assert (
        httpx.get(f"{server.url}/health", headers={"x-request-id": "a\tb"}, timeout=PATIENCE).headers["x-request-id"]
        != "a\tb"
    )


def test_every_line_of_a_log_of_json_is_json_and_tells_nothing_of_bodies(server: ServeProcess) -> None:
    body = b'--cut\r\nContent-Disposition: form-data; name="model"\r\n\r\ntiny.en\r\n--cut--\r\nsecret'
    for damaged in (body, body.replace(b"\r\n--cut", b"\r\n-secret")):
        kind = {"Content-Type": "multipart/form-data; boundary=cut"}
        answer = httpx.post(f"{server.url}/v1/audio/transcriptions", content=damaged, headers=kind, timeout=PATIENCE)
        assert answer.status_code == 400
    for line in server.log.read_text().splitlines():
        assert isinstance(json.loads(line), dict)
        assert "multipart" not in line


def test_a_port_in_use_is_told(server: ServeProcess) -> None:
    port = server.url.rpartition(":")[2]
    done = run("x", "--port", port)
    assert done.returncode == 1
    assert done.stderr == (
        f"transept: AddressError: port {port} of 127.0.0.1 is in use: stop what listens there, or choose another "
        "--port\n"
    )


def test_an_address_that_is_none_of_ours_is_told() -> None:
    for host, message in (
        ("192.0.2.1", "192.0.2.1 is not an address"),
        ("127.0.0..1", "the host 127.0.0..1 is unknown: "),
    ):
        done = run("x", "--host", host, "--port", "0")
        assert done.returncode == 1
        assert message in done.stderr.splitlines()[-1]


def test_bad_usage_is_told_before_anything_is_loaded() -> None:
    for arguments, message in (
        ((), "name at least one model"),
        (("x", "--max-queue", "-1"), "--max-queue must be an integer of at least 0"),
        (("x", "--max-que", "1"), "Did you mean --max-queue"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert message in done.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    hide = """
import sys
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name in ("fastapi", "uvicorn") else find_spec(name, *rest)
from transept.__main__ import run
run()
"""
    done = run("x", code=hide)
    assert done.returncode == 1
    assert 'needs fastapi, uvicorn; install them with: pip install "transept[serve]"' in done.stderr


def test_when_no_model_can_be_served_it_ends(serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "none")
    assert server.wait() == CUT_OFF
    assert "cannot be served: CheckpointError" in server.log.read_text()


def test_when_the_ranks_of_all_models_are_gone_it_ends(serve: Serve, bart_dir: Path) -> None:
    server = serve(f"bart={bart_dir}", "--tensor-parallel-size", "3").wait_until_ready()
    for children in Path(f"/proc/{server.process.pid}/task").glob("*/children"):
        for child in children.read_text().split():
            os.kill(int(child), signal.SIGKILL)
    assert server.wait() == CUT_OFF
    assert "all models have failed" in server.log.read_text()


def test_a_model_that_fails_does_not_keep_others_from_being_served(
    serve: Serve, bart_dir: Path, tmp_path: Path
) -> None:
    server = serve(f"none={tmp_path / 'none'}", f"bart={bart_dir}")
    server.wait_for("failed")
    assert httpx.get(f"{server.url}/ready", timeout=PATIENCE).status_code == 503
    states = {
        each["id"]: each["state"] for each in httpx.get(f"{server.url}/v1/models", timeout=PATIENCE).json()["data"]
    }
    assert states == {"none": "failed", "bart": "ready"}
    answer = httpx.post(f"{server.url}/v1/summarize", json={"model": "bart", "input": "a"}, timeout=PATIENCE)
    assert answer.status_code == 200
    assert (
        httpx.post(f"{server.url}/v1/summarize", json={"model": "none", "input": "a"}, timeout=PATIENCE).status_code
        == 503
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_the_first_signal_lets_what_runs_finish(
    how: signal.Signals, serve: Serve, tiny_en_dir: Path, recording: Path
) -> None:
    server = serve(f"tiny.en={tiny_en_dir}", "--shutdown-timeout", "1000").wait_until_ready()
    stream = Stream(server, recording).wait_until_it_has_begun()
    server.send(how)
    server.wait_for("draining")
    refused = httpx.post(f"{server.url}/v1/audio/transcriptions", files={"file": b"x"}, timeout=PATIENCE)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "draining"
    assert int(refused.headers["retry-after"]) > 0
    assert stream.ended.result(PATIENCE)
    assert stream.events[-1]["type"] == "transcript.text.done"
    assert server.wait() == 0


@pytest.mark.parametrize("how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_what_does_not_finish_in_time_is_told_so(
    how: signal.Signals, serve: Serve, tiny_en_dir: Path, recording: Path
) -> None:
    server = serve(f"tiny.en={tiny_en_dir}", "--shutdown-timeout", "0").wait_until_ready()
    stream = Stream(server, recording).wait_until_it_has_begun()
    server.send(how)
    assert not stream.ended.result(PATIENCE)
    assert stream.events[-1]["error"]["type"] == "service_unavailable_error"
    assert server.wait() == CUT_OFF
    assert not server.temporary_files()


def test_a_second_signal_ends_it_at_once(serve: Serve, tiny_en_dir: Path, recording: Path) -> None:
    server = serve(f"tiny.en={tiny_en_dir}", "--shutdown-timeout", "1000").wait_until_ready()
    stream = Stream(server, recording).wait_until_it_has_begun()
    server.send(signal.SIGTERM)
    server.wait_for("draining")
    server.send(signal.SIGTERM)
    assert server.wait() == FORCED
    assert not stream.ended.result(PATIENCE)
    assert not server.temporary_files()
    assert "Traceback" not in server.log.read_text()


WAITS = """
import importlib.machinery, sys, threading

class Waits:
    def find_spec(self, name, path, target=None):
        if name == "transept.plugins.whisper":
            return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):  # without the lock that find_spec is called under, which other imports need
        threading.Event().wait()

sys.meta_path.insert(0, Waits())
"""


def test_it_can_be_stopped_while_models_load(serve: Serve, tiny_en_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WAITS)  # what loads a model waits for its plugin without end
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = serve(f"tiny.en={tiny_en_dir}", environment={"PYTHONPATH": path})
    assert server.ready_status() == "loading"
    url, fields = f"{server.url}/v1/audio/transcriptions", {"model": "tiny.en"}
    assert httpx.post(url, files={"file": b"x"}, data=fields, timeout=PATIENCE).status_code == 503
    server.send(signal.SIGTERM)
    assert server.wait() == 0


def test_an_upload_that_stops_is_given_up(locked: ServeProcess) -> None:
    port = int(locked.url.rpartition(":")[2])
    head = (
        b"POST /v1/summarize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer " + KEY.encode() + b"\r\nContent-Length: 100\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(head)
        answer = b"".join(iter(lambda: client.recv(65536), b""))  # until the server closes the connection
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"\r\nconnection: close\r\n" in answer.lower()
    locked.wait_until_idle(headers={"authorization": f"Bearer {KEY}"})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", [("bart",), ("bart", "other")], ids=" ".join)
@pytest.mark.parametrize(("timeout", "code"), [("0.5", CUT_OFF), ("1000", 0)])  # the second one since nothing comes
def test_an_upload_that_is_under_way_at_the_end_is_told(
    timeout: str, code: int, names: tuple[str, ...], serve: Serve, bart_dir: Path
) -> None:
    models = [f"{name}={bart_dir}" for name in names]
    server = serve(*models, "--shutdown-timeout", timeout, "--upload-timeout", "900").wait_until_ready()
    port = int(server.url.rpartition(":")[2])
    head = (
        b"POST /v1/summarize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(head)
        while not server.held():
            assert server.process.poll() is None
        server.send(signal.SIGTERM)
        answer = b"".join(iter(lambda: client.recv(65536), b""))  # until the server closes
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"x-request-id" in answer.lower()
    assert b"draining" in answer
    assert server.wait() == code
    assert "Traceback" not in server.log.read_text()


def test_a_proxy_may_show_it_under_a_path(serve: Serve, bart_dir: Path) -> None:
    server = serve(f"bart={bart_dir}", "--root-path", "/speech", "--api-key", KEY).wait_until_ready()
    root = server.url.removesuffix("/speech")
    headers = {"Authorization": f"Bearer {KEY}"}
    for prefix in ("/speech", ""):  # a proxy may take it off
        models = httpx.get(f"{root}{prefix}/v1/models", headers=headers, timeout=PATIENCE).json()
        assert models["data"][0]["tasks"] == ["summarize", "generate"]
        assert httpx.get(f"{root}{prefix}/v1/models", timeout=PATIENCE).status_code == 401
        assert "Transept" in httpx.get(f"{root}{prefix}/", timeout=PATIENCE).text
        assert httpx.get(f"{root}{prefix}/web/main.js", timeout=PATIENCE).status_code == 200
        api = httpx.get(f"{root}{prefix}/openapi.json", headers=headers, timeout=PATIENCE).json()
        assert api["servers"] == [{"url": "/speech"}]
    assert httpx.get(f"{root}/speech", timeout=PATIENCE).headers["location"] == "/speech/"
    assert "Warning" not in server.log.read_text()
