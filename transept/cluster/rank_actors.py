"""RankActors: the launcher of an engine's ranks as Ray actors, which may be on several nodes.

The actors (`rank_actor.py`) occupy a placement group, one bundle each, and connect to this process by TCP. If one
process ends, the others follow: a closed connection ends the process at its other end, and the executor ends ranks that
do not answer.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.cluster.rank_actor import RankActor
from transept.cluster.runtime import ClusterError, require_ray
from transept.core.parallel.launcher import Launched, Launcher, RankProcess
from transept.errors import shown
from transept.options import refusal

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
GREETING_SECONDS = 5.0  # within which a connecting process must send the token and its rank
SENDING_SECONDS = 60  # after which a node that receives nothing counts as lost
KILL_SECONDS = 5.0  # within which Ray ends an actor, unless its node is unreachable
PROCESS = secrets.token_hex(8)  # identifies this process in names of placement groups
GONE = 0  # Ray has no exit codes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankActors(Launcher):
    """Starts each rank as a Ray actor, with a CPU for each thread, and with a GPU if the device is one.

        Engine("small", tensor_parallel_size=2, threads=8, launcher=RankActors())

    This process must be connected to the cluster, as a driver on one of its nodes, an actor or a task.

    placement_group: each rank takes one of its first bundles; None: a group is created for each engine, and removed
        with it. strategy: of a created group: ``"PACK"`` uses as few nodes as possible, ``"STRICT_SPREAD"`` one for
        each rank.
    timeout: seconds to place and start the ranks, including the start of new nodes by an autoscaler.

    Launching raises ClusterError if the cluster has no room for the ranks, or if they cannot be started.
    """

    placement_group: PlacementGroup | None = None
    strategy: str = "PACK"
    timeout: float = 300.0
    is_local = False

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise refusal(self, f"{{strategy}} must be one of {', '.join(STRATEGIES)}, not {shown(self.strategy)}")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not self.timeout > 0:
            raise refusal(self, "{timeout} must be a number of seconds over 0, not {timeout!}")
        if self.placement_group is not None and not hasattr(self.placement_group, "bundle_specs"):
            message = f"must be one of ray.util.placement_group(), not {shown(self.placement_group)}"
            raise refusal(self, f"{{placement_group}} {message}")

    def launch(self, size: int, num_stages: int, num_threads: int, device: str) -> Launched:
        """See Launcher."""
        num_ranks = size * num_stages
        ray = require_ray()
        if not ray.is_initialized():
            raise ClusterError("ranks that are Ray actors need a cluster: call ray.init() first")
        deadline = time.monotonic() + self.timeout
        on_gpu = device != "cpu"
        group = self._placed(num_ranks, rank_bundle(num_threads, on_gpu))
        actors: list[Any] = []
        try:
            host = ray.util.get_node_ip_address()
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, 0), family=family) as server:
                address, token = (host, server.getsockname()[1]), secrets.token_hex(16).encode()
                runs = []
                for rank in range(num_ranks):
                    actor = ray.remote(RankActor).options(
                        num_cpus=num_threads,
                        num_gpus=int(on_gpu),
                        scheduling_strategy=ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                            group, placement_group_bundle_index=rank
                        ),
                    )
                    actors.append(actor.remote())
                    own = None if group is self.placement_group else group
                    runs.append(actors[-1].run.remote(rank, address, token, on_gpu, own))
                processes = dict(_connected(server, token, actors, runs, deadline))
        except BaseException:
            for actor in actors:
                _kill(actor)
            self._release(group)
            raise
        return Launched([processes[rank] for rank in range(num_ranks)], lambda: self._release(group))

    def _placed(self, size: int, bundle: dict[str, float]) -> PlacementGroup:
        """Return a placement group with room for all ranks. Raises ClusterError if none is ready in time."""
        ray = require_ray()
        group = self.placement_group
        if group is not None:
            bundles = group.bundle_specs[:size]
            if len(bundles) < size or any(each.get(name, 0) < bundle[name] for each in bundles for name in bundle):
                raise ClusterError(
                    f"{size} ranks need {bundle} each, but the placement group has {group.bundle_specs}: enlarge it"
                )
            return group
        name = _name_of_group()
        group = ray.util.placement_group([bundle] * size, strategy=self.strategy, name=name)
        try:
            if group.wait(self.timeout):
                return group
        except BaseException:
            self._release(group)
            raise
        self._release(group)
        raise ClusterError(
            f"the cluster has no room for {size} ranks of {bundle} each by the strategy {self.strategy} within "
            f"{self.timeout:g} s; it has {_described(ray.available_resources())} left of "
            f"{_described(ray.cluster_resources())} on {len(ray.nodes())} nodes"
        )

    def _release(self, group: PlacementGroup) -> None:
        ray = require_ray()
        if group is not self.placement_group and ray.is_initialized():
            with contextlib.suppress(Exception):  # the cluster is gone, and the group with it
                ray.util.remove_placement_group(group)


def _name_of_group() -> str:
    """Return a name for a new placement group.

    If an actor and all of its ranks die at once, for example with their node, their group remains. Ray then places the
    group again, and the restarted actor lacks its resources. So the name contains the actor's id, and this function
    removes the groups of the actor's earlier processes.
    """
    ray = require_ray()
    actor_id = ray.get_runtime_context().get_actor_id()
    prefix = f"transept-ranks-{actor_id or 'driver'}-"
    if actor_id is not None:
        for row in ray.util.placement_group_table().values():
            name = row["name"]
            if name.startswith(prefix) and not name.startswith(prefix + PROCESS) and row["state"] != "REMOVED":
                with contextlib.suppress(ValueError):  # it has just gone
                    ray.util.remove_placement_group(ray.util.get_placement_group(name))
    return f"{prefix}{PROCESS}-{secrets.token_hex(4)}"


def rank_bundle(num_threads: int, on_gpu: bool) -> dict[str, float]:
    """Return the resources of a rank, as a bundle of a placement group."""
    return {"CPU": num_threads, **({"GPU": 1} if on_gpu else {})}


def replica_placement_group() -> PlacementGroup | None:
    """Return the placement group of this actor, if any."""
    group: PlacementGroup | None = require_ray().util.get_current_placement_group()
    return group


class ActorProcess(RankProcess):
    """A rank in an actor. It has ended once its connection is closed; the system does that if the process dies."""

    def __init__(self, actor: Any, connected: socket.socket, host: str, pid: int) -> None:
        self._actor, self.socket = actor, connected
        self.name = f"process {pid} on node {host}, actor {actor._actor_id.hex()}"
        self._has_ended = False

    def poll(self) -> int | None:
        """See RankProcess."""
        return GONE if self.wait(0.0) else None

    def wait(self, timeout: float | None = None) -> bool:
        """See RankProcess. Without a timeout, it waits for KILL_SECONDS."""
        descriptor = self.socket.fileno()  # -1: closed, because the process had ended
        if not self._has_ended and descriptor != -1:
            poll = select.poll()  # not shared between threads
            # POLLRDHUP exists only on Linux
            poll.register(descriptor, select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0))
            self._has_ended = bool(poll.poll(1000 * (KILL_SECONDS if timeout is None else timeout)))
        if not self._has_ended and timeout is None:
            logger.warning("%s does not answer; Ray will end it", self.name)
        return self._has_ended

    def kill(self) -> None:
        """See RankProcess."""
        _kill(self._actor)

    def end(self) -> str | None:
        """See RankProcess."""
        return None if self.poll() is None else "has gone"


def _connected(
    server: socket.socket, token: bytes, actors: Sequence[Any], runs: Sequence[Any], deadline: float
) -> Iterator[tuple[int, ActorProcess]]:
    """Yield each rank's number and process as it connects. Raises ClusterError if an actor ends before."""
    ray = require_ray()
    missing = set(range(len(actors)))
    server.settimeout(0.25)
    while missing:
        with contextlib.suppress(TimeoutError):
            connected, _ = server.accept()
            greeting = _greeting(connected, token)
            if greeting is not None and greeting[0] in missing:
                rank, host, pid = greeting
                missing.remove(rank)
                yield rank, ActorProcess(actors[rank], connected, host, pid)
            else:
                connected.close()
            continue
        ended, _ = ray.wait(list(runs), timeout=0)
        if ended:
            raise ClusterError(f"rank {runs.index(ended[0])} cannot be started: {_reason(ended[0])}")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"rank {min(missing)} did not connect to {server.getsockname()[0]} in time: check that other "
                "nodes can reach this machine at that address"
            )


def _greeting(connected: socket.socket, token: bytes) -> tuple[int, str, int] | None:
    """Return the rank, host and process id of a peer that sends the token; None for any other peer."""
    from transept.core.parallel.connection import Connection

    connected.settimeout(GREETING_SECONDS)
    try:
        given_token = b""
        while len(given_token) < len(token) and (data := connected.recv(len(token) - len(given_token))):
            given_token += data
        if not hmac.compare_digest(given_token, token):
            return None
        rank, host, pid = Connection(connected).receive()
    except (OSError, EOFError):
        return None
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SENDING_SECONDS, 0))
    return rank, host, pid


def _kill(actor: Any) -> None:
    ray = require_ray()
    if ray.is_initialized():  # otherwise Ray has ended its actors
        with contextlib.suppress(Exception):
            ray.kill(actor)


def _reason(run: Any) -> str:
    """Return the last line of Ray's error for an actor that ended."""
    ray = require_ray()
    try:
        ray.get(run)
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1] if lines else type(error).__name__
    return "it ended at once"


def _described(resources: dict[str, float]) -> str:
    parts = [
        f"{resources.get(name, 0):g} {name}s" for name in ("CPU", "GPU") if resources.get(name, 0) or name == "CPU"
    ]
    return " and ".join(parts)
