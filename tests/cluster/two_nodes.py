"""A Ray cluster of two machines, as far as Ray can tell: raylets of their own on this one, and what is killed of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
from patience import PATIENCE
from ray.cluster_utils import Cluster

from transept.cluster.runtime import require_ray


@contextmanager
def two_nodes(cpus: tuple[int, int] = (1, 1), **of_second: Any) -> Iterator[tuple[Cluster, Any]]:
    """The cluster, which this process is connected to, and its second node, which may be killed.

    of_second: more arguments of ``Cluster.add_node``, such as node_ip_address.
    """
    ray = require_ray()
    quiet = {"include_dashboard": False, "object_store_memory": 128 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus[0], "wait": False, **quiet})
    try:
        cluster.wait_for_nodes(PATIENCE)  # add_node itself waits no longer than 30 s
        second = cluster.add_node(wait=False, num_cpus=cpus[1], object_store_memory=128 << 20, **of_second)
        cluster.wait_for_nodes(PATIENCE)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster, second
    finally:
        ray.shutdown()
        cluster.shutdown()


def processes_named(part: str) -> list[psutil.Process]:
    """Ray's workers whose actor's name has this part, of this test's own cluster."""
    children = psutil.Process().children(recursive=True)
    return [each for each in children if each.is_running() and part in " ".join(_cmdline(each))]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def kill(process: psutil.Process) -> None:
    """At once, as a machine without memory would."""
    os.kill(process.pid, signal.SIGKILL)
