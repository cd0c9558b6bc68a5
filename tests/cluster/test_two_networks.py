"""Ranks on two machines as far as the network can tell: namespaces of Linux's with an address each, and a cable.

What `two_nodes` cannot show: that nothing goes over the loopback interface, and what happens when the cable is cut.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from serving.serve_process import PATIENCE

from transept import Engine, SamplingParams

CHECKPOINT = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
WORDS = ["transept", "nave", "crossing"]
HOSTS = {"transept-1": "10.231.7.1", "transept-2": "10.231.7.2"}  # namespaces, and the address that each has
PORT = 6399
SCRIPT = textwrap.dedent(
    """
    import json, os, subprocess, sys, threading, time
    import ray
    from transept import Engine, SamplingParams
    from transept.cluster import RankActors
    ray.init(address=sys.argv[1], log_to_driver=False)
    options = {"device": "cpu", "kv_cache_bytes": 1 << 24, "tensor_parallel_size": 2, "num_threads": 2}
    engine = Engine(sys.argv[2], launcher=RankActors(timeout=600), **options)
    words = sys.argv[3:]
    tokens = [each.outputs[0].token_ids for each in engine.generate(words, SamplingParams(temperature=0.0))]
    hosts = [node["NodeManagerAddress"] for node in ray.nodes()]
    cut = ["nsenter", "--net=/run/netns/transept-1", "ip", "link", "set", "cable-1", "down"]
    for number in range(100):
        engine.add_request(str(number), words[0], SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True))
    engine.step()
    subprocess.run(cut, check=True)
    errors = set()
    while engine.has_unfinished_requests:
        errors |= {f"{type(each.error).__name__}: {each.error}" for each in engine.step() if each.error is not None}
    engine.close()
    print(json.dumps([tokens, hosts, sorted(errors)]), flush=True)
    os._exit(0)  # Ray waits for the node that is out of reach
    """
)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def in_network(name: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", name, *command]


@pytest.fixture
def networks() -> Iterator[None]:
    """Two network namespaces whose addresses reach each other."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("network namespaces are made by root, with ip and nsenter")
    try:
        for name in HOSTS:
            ip("netns", "add", name)
        ip("link", "add", "cable-1", "netns", "transept-1", "type", "veth", "peer", "cable-2", "netns", "transept-2")
    except subprocess.CalledProcessError as error:
        _remove()
        pytest.skip(f"this machine makes no network namespaces: {error.stderr.decode()}")
    for number, (name, address) in enumerate(HOSTS.items(), 1):
        subprocess.run(in_network(name, "ip", "link", "set", "lo", "up"), check=True)
        subprocess.run(in_network(name, "ip", "addr", "add", f"{address}/24", "dev", f"cable-{number}"), check=True)
        subprocess.run(in_network(name, "ip", "link", "set", f"cable-{number}", "up"), check=True)
    yield
    _remove()


def _remove() -> None:
    """The namespaces, and all processes in them."""
    for name in HOSTS:
        pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout.split()
        for pid in map(int, pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.slow
def test_two_networks_give_the_tokens_of_one_process_until_the_cable_is_cut(networks: None) -> None:
    reference = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)
    expected = [each.outputs[0].token_ids for each in reference.generate(WORDS, SamplingParams(temperature=0.0))]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    (first, first_address), (second, second_address) = HOSTS.items()
    start = [sys.executable, "-m", "ray.scripts.scripts", "start", "--num-cpus=1", f"--object-store-memory={128 << 20}"]
    head = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir=/tmp/ray-{os.getpid()}"]
    address = f"{first_address}:{PORT}"
    try:
        for command in (
            in_network(first, *start, *head, f"--node-ip-address={first_address}"),
            in_network(second, *start, f"--address={address}", f"--node-ip-address={second_address}"),
        ):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.run(command, check=True, env=environment, timeout=PATIENCE, **quiet)
        script = in_network(first, sys.executable, "-c", SCRIPT, address, str(CHECKPOINT), *WORDS)
        done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
    finally:
        _remove()
        shutil.rmtree(f"/tmp/ray-{os.getpid()}", ignore_errors=True)
    assert done.returncode == 0, done.stderr
    tokens, hosts, errors = json.loads(done.stdout.splitlines()[-1])
    assert tokens == expected
    assert sorted(hosts) == sorted(HOSTS.values())
    (error,) = errors
    assert error.startswith("EngineClosedError: rank ")
    assert f"on node {second_address}" in error
    assert "has sent no heartbeat for 6 s" in error
