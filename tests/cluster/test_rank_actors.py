"""Ranks that are Ray actors on two nodes: the tokens of one process, and whatever dies, an end for all that waits."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import PATIENCE, wait_until
from two_nodes import kill, processes_named, two_nodes

from transept import Engine, RequestOutput, SamplingParams, Transcriber
from transept.cluster import RankActors
from transept.cluster.rank_actor import interface_of
from transept.cluster.runtime import ClusterError
from transept.errors import EngineClosedError, ParameterError, TranseptError

CHECKPOINT = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
WORDS = ["transept", "nave", "crossing"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
LONG = SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True)
OPTIONS: dict[str, Any] = {"device": "cpu", "kv_cache_bytes": 1 << 24}
SECOND = "127.0.0.2"  # the second node's address, where Linux has all of 127.0.0.0/8
SLOW = pytest.mark.slow
SOON = RankActors(timeout=PATIENCE)


@pytest.fixture
def nodes() -> Iterator[tuple[Any, Any]]:
    """Two nodes of one CPU each, at two addresses."""
    with two_nodes(node_ip_address=SECOND) as found:
        yield found


def on_nodes(model: Path, size: int = 2, launcher: RankActors = SOON) -> Engine:
    return Engine(model, tensor_parallel_size=size, num_threads=size, launcher=launcher, **OPTIONS)


def finished_of(engine: Engine) -> dict[str, RequestOutput]:
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    return finished


def placement_groups() -> list[str]:
    """The states of those that there are."""
    import ray

    states = [group["state"] for group in ray.util.placement_group_table().values()]
    return [state for state in states if state != "REMOVED"]


def assert_nothing_stays(threads_before: set[threading.Thread]) -> None:
    wait_until(lambda: not processes_named("RankActor"))
    wait_until(lambda: not placement_groups())
    ours = [each for each in threading.enumerate() if each.name.startswith("transept-")]
    wait_until(lambda: not [each for each in ours if each.is_alive() and each not in threads_before])


def disturb(until: threading.Event) -> int:
    """Connect to whatever port this process listens at, as a stranger. Returns how often."""
    own, count = psutil.Process(), 0
    known = {each.laddr for each in own.net_connections() if each.status == psutil.CONN_LISTEN}
    while not until.is_set():
        for each in own.net_connections():
            if each.status == psutil.CONN_LISTEN and each.laddr not in known:
                known.add(each.laddr)
                for token in (b"x" * 32, b""):
                    with socket.create_connection(each.laddr, 5) as stranger:
                        stranger.sendall(token)
                        count += 1
        time.sleep(0.01)
    return count


def test_two_nodes_give_the_tokens_of_one_process(nodes: tuple[Any, Any]) -> None:
    """Strangers who connect meanwhile are sent away; a rank that dies ends all requests; nothing stays behind."""
    reference = Engine(CHECKPOINT, **OPTIONS)
    expected = [output.outputs[0].token_ids for output in reference.generate(WORDS, GREEDY)]
    before, until, strangers = set(threading.enumerate()), threading.Event(), []
    disturber = threading.Thread(target=lambda: strangers.append(disturb(until)))
    disturber.start()
    engine = on_nodes(CHECKPOINT)
    until.set()
    disturber.join()
    assert strangers[0] >= 2
    found = [output.outputs[0].token_ids for output in engine.generate(WORDS, GREEDY)]
    assert found == expected
    for word in WORDS:
        engine.add_request(word, word, LONG)
    engine.step()
    (victim, *_) = processes_named("RankActor")
    kill(victim)
    finished = finished_of(engine)
    assert sorted(finished) == sorted(WORDS)
    for output in finished.values():
        assert isinstance(output.error, EngineClosedError)
        assert f"(process {victim.pid} on node " in str(output.error)
        assert "has gone, and the engine has stopped; make another one" in str(output.error)
    with pytest.raises(TranseptError, match="has gone"):
        engine.generate(WORDS, GREEDY)
    engine.close()
    assert_nothing_stays(before)


@SLOW
def test_stages_on_two_nodes_give_the_tokens_of_one_process(nodes: tuple[Any, Any]) -> None:
    reference = Engine(CHECKPOINT, **OPTIONS)
    expected = [output.outputs[0].token_ids for output in reference.generate(WORDS, GREEDY)]
    before = set(threading.enumerate())
    engine = Engine(CHECKPOINT, pipeline_parallel_size=2, num_threads=2, launcher=SOON, **OPTIONS)
    assert [output.outputs[0].token_ids for output in engine.generate(WORDS, GREEDY)] == expected
    engine.close()
    assert_nothing_stays(before)


@SLOW
def test_each_rank_stands_on_a_node_of_its_own(nodes: tuple[Any, Any]) -> None:
    before = set(threading.enumerate())
    engine = on_nodes(CHECKPOINT)
    import ray

    (group,) = [each for each in ray.util.placement_group_table().values() if each["state"] == "CREATED"]
    assert group["strategy"] == "PACK"
    assert group["bundles"] == {0: {"CPU": 1.0}, 1: {"CPU": 1.0}}
    assert len(set(group["bundles_to_node_id"].values())) == 2
    ranks = {process.pid for process in processes_named("RankActor")}
    assert len(ranks) == 2
    with pytest.raises(
        ClusterError, match=r"no room for 2 ranks of \{'CPU': 1\} each by .* 0 CPUs left of 2 CPUs on 2 nodes"
    ):
        on_nodes(CHECKPOINT, launcher=RankActors(timeout=1.0))
    assert len(placement_groups()) == 1
    del engine
    import gc

    gc.collect()
    assert_nothing_stays(before)


@SLOW
def test_three_ranks_on_two_nodes_with_random_weights(bart_dir: Path) -> None:
    documents = ["The cat sat on the mat.", "A second document, of other words."]
    expected = [output.outputs[0].token_ids for output in Engine(bart_dir, **OPTIONS).generate(documents, LONG)]
    with two_nodes((1, 2), node_ip_address=SECOND):
        engine = on_nodes(bart_dir, size=3)
        found = [output.outputs[0].token_ids for output in engine.generate(documents, LONG)]
        engine.close()
    assert found == expected


@SLOW
def test_transcripts_of_two_nodes(nodes: tuple[Any, Any], tiny_en_dir: Path, speech_dir: Path) -> None:
    files = sorted((speech_dir / "librivox").glob("*.flac"))
    expected = [each.to_dict() for each in Transcriber(tiny_en_dir).transcribe_many(files)]
    transcriber = Transcriber(tiny_en_dir, device="cpu", tensor_parallel_size=2, num_threads=2, launcher=SOON)
    found = [each.to_dict() for each in transcriber.transcribe_many(files)]
    assert [each["text"] for each in found] == [each["text"] for each in expected]
    for one, other in zip(found, expected, strict=True):
        assert [each["tokens"] for each in one["segments"]] == [each["tokens"] for each in other["segments"]]
    transcriber.engine.close()


@SLOW
@pytest.mark.parametrize("what", ["node", "stands still"])
def test_a_node_that_dies_or_a_rank_that_stands_still(nodes: tuple[Any, Any], what: str) -> None:
    before = set(threading.enumerate())
    engine = on_nodes(CHECKPOINT)
    engine.add_request("done", WORDS[0], GREEDY)
    assert finished_of(engine)["done"].error is None
    for word in WORDS:
        engine.add_request(word, word, LONG)
    engine.step()
    if what == "node":
        nodes[0].remove_node(nodes[1], allow_graceful=False)
    else:
        processes_named("RankActor")[0].suspend()
    finished = finished_of(engine)
    if any(output.error is None for output in finished.values()):  # it was done before
        for word in WORDS:
            engine.add_request(word, word, LONG)
        finished = finished_of(engine)
    assert all(isinstance(output.error, EngineClosedError) for output in finished.values())
    told = str(finished[WORDS[0]].error)
    assert ("has gone" if what == "node" else "has sent no heartbeat for 6 s") in told
    engine.close()
    assert_nothing_stays(before)


@SLOW
def test_what_cannot_be_started_is_told(nodes: tuple[Any, Any], tmp_path: Path) -> None:
    import ray

    before = set(threading.enumerate())
    for file in CHECKPOINT.iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).symlink_to(file)
    whole = (CHECKPOINT / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TranseptError, match="truncated or corrupt"):
        on_nodes(tmp_path)
    assert_nothing_stays(before)
    too_small = ray.util.placement_group([{"CPU": 1}])
    with pytest.raises(ClusterError, match=r"2 ranks of .* but the placement group has"):
        on_nodes(CHECKPOINT, launcher=RankActors(too_small))
    ray.util.remove_placement_group(too_small)


def test_options() -> None:
    with pytest.raises(ParameterError, match="strategy must be one of PACK"):
        RankActors(strategy="pack")
    for seconds in (0, -1.0, "1", True):
        with pytest.raises(ParameterError, match="timeout must be a number of seconds"):
            RankActors(timeout=seconds)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="placement_group must be one of"):
        RankActors(placement_group=3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="launcher must be a Launcher"):
        Engine("/nowhere", launcher="ray")


@pytest.mark.skipif(not os.path.isdir("/sys/class/net"), reason="network interfaces are listed by Linux alone")
def test_the_interface_of_an_address() -> None:
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET:
                assert interface_of(address.address) == name
    assert interface_of("127.0.0.2") == "lo"
    assert interface_of("198.51.100.7") is None
