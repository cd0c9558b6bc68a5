"""A replica, then a machine, is killed while files or requests are under way: each result comes, once, and is right."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import openai
import pytest
from patience import PATIENCE, wait_until
from serve_clients import SHORTEST, asking, free_port
from two_nodes import kill, processes_named, two_nodes

from transept.cluster import batch
from transept.cluster.batch import BatchJob, run_batch
from transept.cluster.inputs import find_inputs
from transept.cluster.serve_app import build_app


@pytest.mark.slow
@pytest.mark.parametrize("num_files", [40, 200])
def test_a_batch_loses_a_replica_and_then_a_node(
    tiny_en_dir: Path, short: list[Path], texts: list[str], tmp_path: Path, num_files: int
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(num_files):
        shutil.copy(short[index % SHORTEST], folder / f"{index:03}.flac")
    rows, _ = find_inputs([str(folder)], {".flac"})
    job = BatchJob("transcribe", str(tiny_en_dir), replicas=2, threads=1)
    killed: list[str] = []
    with two_nodes() as (cluster, second):

        def on_result(row: dict[str, Any]) -> None:
            if not killed:
                replicas = processes_named("ray::MapWorker")
                assert replicas
                kill(replicas[0])
                killed.append("replica")
            elif killed == ["replica"]:
                cluster.remove_node(second, allow_graceful=False)
                killed.append("node")

        report = run_batch(rows, job, str(tmp_path / "out"), on_result=on_result, part_seconds=0)
    assert killed == ["replica", "node"]
    assert (report.num_done, report.failed) == (num_files, {})
    parts = sorted((tmp_path / "out").glob("part-*.jsonl"))
    found = [json.loads(line) for part in parts for line in part.read_text(encoding="utf-8").splitlines()]
    assert Counter(row["file"] for row in found) == Counter(row.file for row in rows)
    for row in found:
        assert row["text"] == texts[int(Path(row["file"]).stem) % SHORTEST]


@pytest.mark.slow
def test_a_row_that_ends_its_worker_each_time_gets_an_error(
    tiny_en_dir: Path, short: list[Path], texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deadly(batch.Replica):  # here, so that it is sent to workers
        def __call__(self, table: Any) -> Any:
            if any(path == deadly for path in table["path"].to_pylist()):
                os._exit(1)
            return super().__call__(table)

    deadly = str(short[2])
    monkeypatch.setattr(batch, "Replica", Deadly)
    rows, _ = find_inputs([str(path) for path in short], ())
    report = run_batch(rows, BatchJob("transcribe", str(tiny_en_dir), replicas=1, threads=1), str(tmp_path))
    assert report.num_done == SHORTEST - 1
    assert list(report.failed) == [deadly]
    assert "the worker died each of the 5 times" in report.failed[deadly]


@pytest.mark.slow
def test_clients_of_serve_lose_a_replica_and_then_a_node(
    tiny_en_dir: Path, short: list[Path], texts: list[str]
) -> None:
    """Clients that try again, as OpenAI's does, get every answer, and the right one."""
    with two_nodes(cpus=(2, 1)) as (cluster, second):
        from ray import serve

        port = free_port()
        serve.start("HeadOnly", {"port": port})
        serve.run(build_app(f"tiny.en={tiny_en_dir}", replicas=2), name="transept")
        with asking(port, short, num_clients=4, max_retries=12) as answers:
            wait_until(lambda: len(answers) >= 8)
            kill(processes_named("ray::ServeReplica")[0])
            seen = len(answers)
            wait_until(lambda: len(answers) >= seen + 8)
            cluster.remove_node(second, allow_graceful=False)
            seen = len(answers)
            wait_until(lambda: len(answers) >= seen + 8)
        assert len(answers) >= 24
        assert {index: texts[index % SHORTEST] for index in answers} == answers
        serve.shutdown()


@pytest.mark.slow
def test_a_replica_that_hangs_is_replaced(tiny_en_dir: Path, short: list[Path], texts: list[str]) -> None:
    """It answers no check of its health; what it had taken fails then, and is right when it is asked for again."""
    with two_nodes(cpus=(2, 0)) as _:
        from ray import serve

        port = free_port()
        serve.start("HeadOnly", {"port": port})
        serve.run(build_app(f"tiny.en={tiny_en_dir}", replicas=2), name="transept")
        with asking(port, short, num_clients=4, max_retries=12) as answers:
            wait_until(lambda: len(answers) >= 8)
            hung, other = processes_named("ray::ServeReplica")
            hung.suspend()
            wait_until(lambda: hung not in (replicas := processes_named("ray::ServeReplica")) and len(replicas) == 2)
            assert other in processes_named("ray::ServeReplica")
            seen = len(answers)
            wait_until(lambda: len(answers) >= seen + 16)
        assert {index: texts[index % SHORTEST] for index in answers} == answers
        serve.shutdown()


@pytest.mark.slow
def test_replicas_come_and_go_with_the_load(tiny_en_dir: Path, speech_dir: Path) -> None:
    recording = sorted((speech_dir / "librivox").glob("*.flac"))[0]
    with two_nodes() as _:
        from ray import serve

        port = free_port()
        serve.start("HeadOnly", {"port": port})
        quick = {"upscale_delay_s": 1, "downscale_delay_s": 2, "look_back_period_s": 2, "target_ongoing_requests": 1}
        app = build_app(f"tiny.en={tiny_en_dir}", autoscale=(1, 2), autoscaling_options=quick)
        serve.run(app, name="transept")
        assert num_replicas() == 1
        until = threading.Event()

        def ask() -> None:
            with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="-", timeout=PATIENCE) as client:
                while not until.is_set():
                    client.audio.transcriptions.create(model="tiny.en", file=recording)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: num_replicas() == 2)
        finally:
            until.set()
            for thread in threads:
                thread.join()
        wait_until(lambda: num_replicas() == 1)
        serve.shutdown()


def num_replicas() -> int:
    from ray import serve

    (deployment,) = serve.status().applications["transept"].deployments.values()
    return deployment.replica_states.get("RUNNING", 0)
