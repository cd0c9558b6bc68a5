"""Ray itself: import it, connect to or start a cluster, and get the resources of a replica."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from transept.errors import TranseptError, require_packages
from transept.system import usable_cores

LOCAL = "local"  # in place of a cluster's address: start Ray on this machine, and end it with the command
CONNECT_SECONDS = 10.0
HTTP2_SETTINGS = 4  # type of a frame
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, HTTP2_SETTINGS, 0, 0, 0, 0, 0])
LONGEST_FOLDER = 30  # characters; a socket's path has at most 107, and Ray adds about 75
OBJECT_STORE_BYTES = 256 << 20  # for a local cluster; its objects are small: paths and texts, no audio
EXTRA = {"ray": "ray", "pyarrow": "pyarrow"}  # module: its package
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # for a local cluster: Ray's default of 15 makes replicas wait on a busy machine
}


class ClusterError(TranseptError):
    """A cluster cannot be reached, or lacks the requested resources."""


@dataclass(frozen=True)
class ClusterSize:
    """Resources of a cluster's living nodes. node_cpus: CPUs of the smallest node with any."""

    num_nodes: int
    num_cpus: int
    node_cpus: int
    num_gpus: int


def require_ray() -> ModuleType:
    """Import Ray. Raises MissingPackageError, which names the extra."""
    require_packages("transept.cluster", EXTRA, "ray")
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    import ray

    return ray


@contextlib.contextmanager
def cluster(address: str, *, num_cpus: int | None = None) -> Iterator[ClusterSize]:
    """Connect to a cluster for one command, or start one on this machine (`LOCAL`) and end it afterwards.

    num_cpus: minimum of a local cluster; by default one for each core. An existing connection is used and kept.
    Raises ClusterError if no cluster answers at the address.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield _size(ray)
        return
    if address != LOCAL:
        _check_reachable(address)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with _without_stderr():
            if address == LOCAL:
                ray.init(
                    address=LOCAL,
                    num_cpus=max(usable_cores(), num_cpus or 1),
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    **_session_folder(),
                    **quiet,
                )
            else:
                ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        what = "start Ray on this machine" if address == LOCAL else f'reach a Ray cluster at "{address}"'
        raise ClusterError(f"cannot {what}: {_first_line(error)}") from error
    try:
        yield _size(ray)
    finally:
        ray.shutdown()


def _session_folder() -> dict[str, str]:
    """Return Ray's option for the folder of its sockets, whose paths must not be too long."""
    return {"_temp_dir": "/tmp/ray"} if len(tempfile.gettempdir()) > LONGEST_FOLDER else {}


def _check_reachable(address: str) -> None:
    """Raise ClusterError if Ray does not answer at ``HOST:PORT`` or ``ray://HOST:PORT``. Ray itself waits minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return  # "auto", or a name that Ray knows
    try:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as connected:
            speaks = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(connected)
    except (OSError, OverflowError) as error:
        raise ClusterError(f'cannot reach a Ray cluster at "{address}": {error}') from error
    if not speaks:
        raise ClusterError(f'cannot reach a Ray cluster at "{address}": the program that listens there is not Ray')


def _speaks_http2(connected: socket.socket) -> bool:
    """Return True if a server answers with HTTP/2 settings (RFC 9113, section 3.4), as gRPC. Raises TimeoutError."""
    connected.sendall(HTTP2_PREFACE)
    head = b""
    while len(head) < 9 and (data := connected.recv(9 - len(head))):
        head += data
    return len(head) == 9 and head[3] == HTTP2_SETTINGS


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Discard stderr while Ray's C++ starts, which logs its settings; failures raise exceptions."""
    try:
        saved = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def _size(ray: ModuleType) -> ClusterSize:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cpus = [int(resources["CPU"]) for resources in nodes if resources.get("CPU", 0) >= 1]
    gpus = int(sum(resources.get("GPU", 0) for resources in nodes))
    return ClusterSize(len(nodes), sum(cpus), min(cpus, default=1), gpus)


def num_ranks(engine: Mapping[str, Any]) -> int:
    """Return the number of ranks of an engine with these options."""
    return (engine.get("tensor_parallel_size") or 1) * (engine.get("pipeline_parallel_size") or 1)


def rank_threads(threads: int | None, ranks: int) -> int:
    """Return the CPUs of each rank. threads: of the replica; None: one for each rank."""
    return max(1, (threads or ranks) // ranks)


def replica_threads() -> int | None:
    """Return the number of CPUs that Ray gave the current actor, at least one; None outside of actors."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:
        return None
    return max(1, int(context.get_assigned_resources().get("CPU", 1)))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
