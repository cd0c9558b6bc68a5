"""RankActor: a rank of an engine in the process of a Ray actor. Created by `RankActors`.

It connects to the engine's process and computes for it. The process ends when the engine closes or disconnects, and,
like every Ray worker, with the node's raylet.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

from transept.cluster.runtime import require_ray

if TYPE_CHECKING:
    from ray.util.placement_group import PlacementGroup

CONNECT_SECONDS = 30.0
LOOPBACK = "127."


class RankActor:
    """One rank. Its only method never returns: the actor ends with it."""

    def run(
        self, rank: int, address: tuple[str, int], token: bytes, on_gpu: bool, group: PlacementGroup | None
    ) -> None:
        """Connect to the engine's process at an address, send the token, and work for the engine.

        group: the ranks' placement group if it must be removed with the engine. Ray removes it with a driver but not
        with an actor, so the ranks remove it when they notice that the engine's process has ended.
        """
        ray: Any = require_ray()

        from transept.core.execution.worker_main import WorkerProcess
        from transept.core.parallel.connection import Connection

        host = ray.util.get_node_ip_address()
        if (interface := interface_of(host)) is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)
        connected = socket.create_connection(address, CONNECT_SECONDS)
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.sendall(token)
        connection = Connection(connected)
        with connection.pack((rank, host, os.getpid())) as parcel:
            connection.send(parcel)

        def leave() -> None:
            with contextlib.suppress(Exception):  # another rank has removed it
                if group is not None:
                    ray.util.remove_placement_group(group)

        gpu = 0 if on_gpu else None
        WorkerProcess(connection, os.getppid(), None, host=host, gpu=gpu, leave=leave).run()
        ray.actor.exit_actor()


def interface_of(host: str) -> str | None:
    """Return the name of the network interface with an IPv4 address; None if it is not found."""
    if sys.platform == "linux":
        import fcntl

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            for _, name in socket.if_nameindex():
                request = struct.pack("256s", name.encode()[:15])
                try:
                    answer = fcntl.ioctl(asking, 0x8915, request)  # SIOCGIFADDR
                except OSError:  # it has no address
                    continue
                found = socket.inet_ntoa(answer[20:24])
                if found == host or (found.startswith(LOOPBACK) and host.startswith(LOOPBACK)):
                    return name
    return None
