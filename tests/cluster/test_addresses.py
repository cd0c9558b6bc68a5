"""``--ray ADDRESS``: commands on a cluster that runs already, which they leave as it was, and addresses of none."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import openai
import pytest
from patience import PATIENCE, wait_until
from ray.cluster_utils import Cluster
from serve_clients import free_port
from serving.serve_process import ServeProcess

from transept import Transcriber
from transept.cluster import runtime
from transept.cluster.runtime import ClusterError, cluster

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """A cluster of one node, which this process does not belong to."""
    runtime.require_ray()
    quiet = {"include_dashboard": False, "object_store_memory": 128 << 20}
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, **quiet})
    yield started
    started.shutdown()


@pytest.fixture(scope="module")
def recordings(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


@pytest.fixture(scope="module")
def texts(tiny_en_dir: Path, recordings: list[Path]) -> list[str]:
    return [each.text for each in Transcriber(tiny_en_dir).transcribe_many(recordings)]  # type: ignore[union-attr]


@contextmanager
def connected(address: str) -> Iterator[None]:
    """This process as another driver of the cluster."""
    import ray

    ray.init(address=address, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


@SLOW
def test_a_batch_on_a_cluster(
    running: Cluster, tiny_en_dir: Path, recordings: list[Path], texts: list[str], tmp_path: Path
) -> None:
    import ray

    arguments = [*map(str, recordings), "--model", str(tiny_en_dir), "--output", str(tmp_path / "out")]
    command = [sys.executable, "-m", "transept", "batch", *arguments, "--ray", running.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    parts = sorted((tmp_path / "out").glob("part-*.jsonl"))
    rows = [json.loads(line) for part in parts for line in part.read_text(encoding="utf-8").splitlines()]
    assert {row["file"]: row["text"] for row in rows} == dict(zip(map(str, recordings), texts, strict=True))
    with connected(running.address):
        assert [node["Alive"] for node in ray.nodes()] == [True]
        wait_until(lambda: ray.available_resources().get("CPU") == 2)  # its replicas have gone


@SLOW
def test_a_server_beside_another_application(
    running: Cluster, tiny_en_dir: Path, recordings: list[Path], texts: list[str], tmp_path: Path
) -> None:
    """Serve runs already, for somebody else, at a port of theirs: the command says that one, and leaves them alone."""
    from ray import serve

    port = free_port()
    with connected(running.address):

        @serve.deployment(ray_actor_options={"num_cpus": 0})
        class Other:
            def __call__(self) -> str:
                return "other"

        serve.start("HeadOnly", {"port": port})
        serve.run(Other.bind(), name="other", route_prefix="/other")
        arguments = [f"tiny.en={tiny_en_dir}", "--ray", running.address]
        server = ServeProcess(tmp_path / "first", *arguments)
        try:
            assert server.url == f"http://127.0.0.1:{port}", server.log.read_text()
            with openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", timeout=PATIENCE) as client:
                assert client.audio.transcriptions.create(model="tiny.en", file=recordings[0]).text == texts[0]
            second = ServeProcess(tmp_path / "second", *arguments)
            assert second.wait() == 1
            assert 'this cluster already runs an application "transept"' in second.log.read_text()
            assert httpx.get(f"{server.url}/ready", timeout=PATIENCE).json()["status"] == "ready"
            server.send(signal.SIGTERM)
            assert server.wait() == 0
        finally:
            server.stop()
        assert list(serve.status().applications) == ["other"]
        assert httpx.get(f"http://127.0.0.1:{port}/other", timeout=PATIENCE).text == "other"
        serve.shutdown()


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A port where somebody answers so to whatever comes, or is silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            taken, _ = server.accept()
            with taken:
                if answer is None:
                    until.wait()
                else:
                    taken.recv(100)
                    taken.sendall(answer)

        until = threading.Event()
        thread = threading.Thread(target=run)
        thread.start()
        yield server.getsockname()[1]
        until.set()
        thread.join()


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_addresses_where_no_cluster_answers(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "CONNECT_SECONDS", 0.2)
    for answer, words in (
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Ray"),
        (b"", "is not Ray"),
        (None, "timed out"),
    ):
        with answering(answer) as port:
            address = f"{scheme}127.0.0.1:{port}"
            with pytest.raises(ClusterError, match=f'cannot reach a Ray cluster at "{address}": .*{words}'):
                cluster(address).__enter__()
    with pytest.raises(ClusterError, match="Connection refused"):
        cluster(f"{scheme}127.0.0.1:{port}").__enter__()


@pytest.mark.parametrize("command", ["serve", pytest.param("batch", marks=SLOW)])
def test_a_command_says_so_in_a_sentence(
    command: str, tiny_en_dir: Path, recordings: list[Path], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    arguments = [str(recordings[0]), "--model", str(tiny_en_dir), "--output", str(tmp_path)]
    arguments = [f"tiny.en={tiny_en_dir}"] if command == "serve" else arguments
    whole = [sys.executable, "-m", "transept", command, *arguments, "--ray", address]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(
        f'transept: ClusterError: cannot reach a Ray cluster at "{address}": [Errno 111] Connection refused\n'
    )
