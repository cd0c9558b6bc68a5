"""RankActors: the launcher of an engine's ranks as Ray actors, which may be on several nodes.

The actors (`rank_actor.py`) stand in a placement group, a bundle each, and connect to this process by TCP. Whoever ends
first, the others follow: a connection that closes ends the process at its other end, and the watch of the executor ends
what does not answer.
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
GREETING_SECONDS = 5.0  # for whoever connects to show the token and say who it is
SENDING_SECONDS = 60  # after which a node that takes nothing is taken to be gone
KILL_SECONDS = 5.0  # that Ray takes at most to end an actor; of a node that is out of reach nothing is heard
PROCESS = secrets.token_hex(8)  # this one, as the names of placement groups tell it
GONE = 0  # Ray tells no exit codes
ENDED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)  # the last one is Linux's

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RankActors(Launcher):
    """Starts each rank as a Ray actor with the CPUs of its threads, and on GPUs with one.

        Engine("small", tensor_parallel_size=2, threads=8, launcher=RankActors())

    This process is to be connected to the cluster: a driver on one of its nodes, an actor or a task.

    placement_group: whose first bundles the ranks take, one each; None: one is created for each engine, and removed
        with it. strategy: of one that is created: ``"PACK"`` takes as few nodes as hold all ranks,
        ``"STRICT_SPREAD"`` one for each.
    timeout: seconds in which the ranks must have been placed and started, new nodes of an autoscaler included.

    Launching raises ClusterError where there is no room for them, or they cannot be started.
    """

    placement_group: PlacementGroup | None = None
    strategy: str = "PACK"
    timeout: float = 300.0
    is_local = False

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise refusal(self, f"{{strategy}} must be one of {', '.join(STRATEGIES)}, not {shown(self.strategy)}")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, int | float) or not self.timeout > 0:
            raise refusal(self, f"{{timeout}} must be a number of seconds over 0, not {shown(self.timeout)}")
        if self.placement_group is not None and not hasattr(self.placement_group, "bundle_specs"):
            message = f"must be one of ray.util.placement_group(), not {shown(self.placement_group)}"
            raise refusal(self, f"{{placement_group}} {message}")

    def launch(self, size: int, num_stages: int, num_threads: int, device: str) -> Launched:
        """See Launcher."""
        num_ranks = size * num_stages
        ray = require_ray()
        if not ray.is_initialized():
            raise ClusterError("ranks that are Ray actors need a cluster: call ray.init() before")
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
        """A placement group with room for all ranks. Raises ClusterError where there is none in time."""
        ray = require_ray()
        group = self.placement_group
        if group is not None:
            bundles = group.bundle_specs[:size]
            if len(bundles) < size or any(each.get(name, 0) < bundle[name] for each in bundles for name in bundle):
                raise ClusterError(
                    f"{size} ranks of {bundle} each are to stand in a placement group with {group.bundle_specs}"
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
            f"the cluster has no room for {size} ranks of {bundle} each by the strategy {self.strategy}, or had none "
            f"for {self.timeout:g} s; it has {_told_resources(ray.available_resources())} left of "
            f"{_told_resources(ray.cluster_resources())} on {len(ray.nodes())} nodes"
        )

    def _release(self, group: PlacementGroup) -> None:
        ray = require_ray()
        if group is not self.placement_group and ray.is_initialized():
            with contextlib.suppress(Exception):  # the cluster is gone, and the group with it
                ray.util.remove_placement_group(group)


def _name_of_group() -> str:
    """A name for a new placement group.

    Where an actor and all of its ranks die at once, as with a node of theirs, nobody removes the group, and Ray places
    it anew, in the way of the actor that it restarts. So the name has the actor, and groups of its earlier processes
    are removed here.
    """
    ray = require_ray()
    actor_id = ray.get_runtime_context().get_actor_id()
    prefix = f"transept-ranks-{actor_id or 'driver'}-"
    if actor_id is not None:
        for told in ray.util.placement_group_table().values():
            name = told["name"]
            if name.startswith(prefix) and not name.startswith(prefix + PROCESS) and told["state"] != "REMOVED":
                with contextlib.suppress(ValueError):  # it has just gone
                    ray.util.remove_placement_group(ray.util.get_placement_group(name))
    return f"{prefix}{PROCESS}-{secrets.token_hex(4)}"


def rank_bundle(num_threads: int, on_gpu: bool) -> dict[str, float]:
    """What a rank takes of its node, as a placement group has it."""
    return {"CPU": num_threads, **({"GPU": 1} if on_gpu else {})}


def replica_placement_group() -> PlacementGroup | None:
    """The one that Ray placed this actor in, if any."""
    group: PlacementGroup | None = require_ray().util.get_current_placement_group()
    return group


class ActorProcess(RankProcess):
    """A rank in an actor. It has ended once the other end of its connection is closed, as a process's death does."""

    def __init__(self, actor: Any, connected: socket.socket, host: str, pid: int) -> None:
        self._actor, self.socket = actor, connected
        self.name = f"process {pid} on node {host}, actor {actor._actor_id.hex()}"
        self._has_ended = False

    def poll(self) -> int | None:
        """See RankProcess."""
        return GONE if self.wait(0.0) else None

    def wait(self, timeout: float | None = None) -> bool:
        """See RankProcess. Without a timeout it gives up after KILL_SECONDS."""
        descriptor = self.socket.fileno()  # -1: it was closed, since the process had ended
        if not self._has_ended and descriptor != -1:
            poll = select.poll()  # of this thread's own
            poll.register(descriptor, ENDED)
            self._has_ended = bool(poll.poll(1000 * (KILL_SECONDS if timeout is None else timeout)))
        if not self._has_ended and timeout is None:
            logger.warning("%s does not answer, and is left to Ray", self.name)
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
    """Each rank's number and process, as they connect. Raises ClusterError for an actor that ends before."""
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
                f"rank {min(missing)} did not connect to {server.getsockname()[0]} in time: is that this machine's "
                "address for other nodes?"
            )


def _greeting(connected: socket.socket, token: bytes) -> tuple[int, str, int] | None:
    """Rank, host and process id, of whoever knows the token. Nothing else is read of others."""
    from transept.core.parallel.connection import Connection

    connected.settimeout(GREETING_SECONDS)
    try:
        shown_token = b""
        while len(shown_token) < len(token) and (data := connected.recv(len(token) - len(shown_token))):
            shown_token += data
        if not hmac.compare_digest(shown_token, token):
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
    if ray.is_initialized():  # else Ray ended its actors when it was left
        with contextlib.suppress(Exception):
            ray.kill(actor)


def _reason(run: Any) -> str:
    """The last line of what Ray says of an actor that ended."""
    ray = require_ray()
    try:
        ray.get(run)
    except ray.exceptions.RayError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1] if lines else type(error).__name__
    return "it ended at once"


def _told_resources(resources: dict[str, float]) -> str:
    told = [f"{resources.get(name, 0):g} {name}s" for name in ("CPU", "GPU") if resources.get(name, 0) or name == "CPU"]
    return " and ".join(told)
