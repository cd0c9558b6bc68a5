"""Replicas whose engines have several ranks on two nodes: a batch, and clients of Serve, lose a rank and no result."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from serve_clients import SHORTEST, asking, free_port
from test_faults import num_replicas
from test_rank_actors import SECOND, placement_groups
from two_nodes import kill, processes_named, two_nodes

from transept.cluster.batch import BatchJob, run_batch
from transept.cluster.inputs import find_inputs
from transept.cluster.runtime import ClusterError
from transept.cluster.serve_app import build_app
from transept.cluster.serve_command import run_on_ray
from transept.errors import ParameterError
from transept.serving.settings import ModelSource, ServerSettings

SLOW = pytest.mark.slow


@SLOW
def test_a_batch_loses_a_rank_and_then_a_replica(
    tiny_en_dir: Path, short: list[Path], texts: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for index in range(48):
        (folder / f"{index:03}.flac").symlink_to(short[index % SHORTEST])
    rows, _ = find_inputs([str(folder)], {".flac"})
    job = BatchJob("transcribe", str(tiny_en_dir), {"tensor_parallel_size": 2}, threads=2)
    killed: list[str] = []
    seen: list[str] = []
    with two_nodes(node_ip_address=SECOND):

        def on_result(row: dict[str, Any]) -> None:
            seen.append(row["file"])
            if len(seen) in (1, 17):  # of blocks of 16
                wait_until(lambda: placement_groups() == ["CREATED"])
                name = "ray::MapWorker" if killed else "RankActor"
                wait_until(lambda: processes_named(name))
                kill(processes_named(name)[0])
                killed.append(name)

        report = run_batch(rows, job, str(tmp_path / "out"), on_result=on_result, part_seconds=0)
        assert (report.replicas, report.threads) == (1, 2)
        wait_until(lambda: not processes_named("RankActor"))
        wait_until(lambda: not placement_groups())
        many = BatchJob("transcribe", str(tiny_en_dir), {"tensor_parallel_size": 2}, replicas=2)
        with pytest.raises(ClusterError, match="2 replicas of 2 ranks need 4 CPUs, but the cluster has 2"):
            run_batch(rows, many, str(tmp_path / "other"))
    assert len(killed) == 2
    assert (report.num_done, report.failed) == (48, {})
    parts = sorted((tmp_path / "out").glob("part-*.jsonl"))
    found = [json.loads(line) for part in parts for line in part.read_text(encoding="utf-8").splitlines()]
    assert Counter(row["file"] for row in found) == Counter(row.file for row in rows)
    for row in found:
        assert row["text"] == texts[int(Path(row["file"]).stem) % SHORTEST]


@SLOW
def test_clients_of_serve_lose_a_rank_and_then_its_node(tiny_en_dir: Path, short: list[Path], texts: list[str]) -> None:
    """A replica whose engine has ended is replaced, and its placement group with it; clients try again meanwhile."""
    settings = ServerSettings((ModelSource("tiny.en", str(tiny_en_dir)),), engine={"tensor_parallel_size": 2})
    with two_nodes(node_ip_address=SECOND) as (cluster, second):
        from ray import serve

        port = free_port()
        serve.start("HeadOnly", {"port": port})
        serve.run(build_app(settings), name="transept")
        assert placement_groups() == ["CREATED"]
        with asking(port, short, num_clients=2, max_retries=60) as answers:
            wait_until(lambda: len(answers) >= 4)
            replica = processes_named("ray::ServeReplica")[0].pid
            kill(processes_named("RankActor")[0])
            seen = len(answers)
            wait_until(lambda: len(answers) >= seen + 6)
            assert processes_named("ray::ServeReplica")[0].pid != replica
            assert placement_groups() == ["CREATED"]
            cluster.remove_node(second, allow_graceful=False)
            cluster.add_node(wait=False, num_cpus=1, object_store_memory=128 << 20, node_ip_address="127.0.0.3")
            seen = len(answers)
            wait_until(lambda: len(answers) >= seen + 6)
        assert {index: texts[index % SHORTEST] for index in answers} == answers
        assert num_replicas() == 1
        serve.delete("transept")
        wait_until(lambda: not processes_named("RankActor"))
        wait_until(lambda: not placement_groups())
        serve.shutdown()


def test_what_a_deployment_asks_for() -> None:
    def deployment_of(engine: dict[str, Any], **options: Any) -> Any:
        settings = ServerSettings((ModelSource("m", "m"),), engine=engine)
        return build_app(settings, **options)._bound_deployment  # Serve has no public way to see it

    ranks = deployment_of({"tensor_parallel_size": 2}, threads=6)._replica_config
    assert ranks.placement_group_bundles == [{"CPU": 3}, {"CPU": 3}]
    assert ranks.placement_group_strategy == "PACK"
    assert ranks.ray_actor_options["num_cpus"] == 0
    on_gpus = deployment_of({"tensor_parallel_size": 4}, num_gpus=1)._replica_config
    assert on_gpus.placement_group_bundles == [{"CPU": 1, "GPU": 1}] * 4
    alone = deployment_of({}, threads=6)._replica_config
    assert alone.placement_group_bundles is None
    assert alone.ray_actor_options["num_cpus"] == 6
    with pytest.raises(ParameterError, match=r"num_gpus of each of 2 ranks must be 0 or 1, not 0\.5"):
        deployment_of({"tensor_parallel_size": 2}, num_gpus=0.5)


def test_sizes_that_do_not_divide_are_told_before_ray_starts(
    tiny_en_dir: Path, short: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # where Ray would find nothing to start
    engine = {"tensor_parallel_size": 4}
    settings = ServerSettings((ModelSource("tiny.en", str(tiny_en_dir)),), engine=engine)
    with pytest.raises(ParameterError, match="tensor_parallel_size=4 does not divide a layer's 6 heads"):
        run_on_ray(settings, print)
    rows, _ = find_inputs([*map(str, short)], {".flac"})
    with pytest.raises(ParameterError, match="tensor_parallel_size=4 does not divide a layer's 6 heads"):
        run_batch(rows, BatchJob("transcribe", str(tiny_en_dir), engine), str(tmp_path / "out"))
