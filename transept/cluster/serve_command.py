"""What ``transept serve --ray`` runs: the application on a cluster, until a signal lets it drain."""

from __future__ import annotations

import dataclasses
import logging
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from transept.cluster.runtime import LOCAL, ClusterError, cluster, num_ranks, rank_threads
from transept.cluster.serve_app import NAME, build_app, parse_autoscale
from transept.core.config import EngineConfig
from transept.core.engine import describe
from transept.core.parallel.launcher import usable_cores
from transept.serving.settings import ServerSettings

DONE, FORCED = 0, 130  # exit codes
CLASS_NAMES = re.compile(r"^(?:[\w.]+Error: )+")


def run_on_ray(
    settings: ServerSettings,
    announce: Callable[[str], None],
    *,
    address: str = LOCAL,
    replicas: int = 1,
    autoscale: str | None = None,
    num_gpus: float | None = None,
) -> int:
    """Serve until a signal comes: the first one lets running requests finish, a second one ends at once.

    announce: is given one line, with the URL, once all models are loaded. address: of a Ray cluster; `LOCAL` starts Ray
    here and ends it. autoscale: ``MIN:MAX``. num_gpus: of a replica.
    Returns the exit code. Raises ClusterError where no cluster, or no replica, can be had.
    """
    bounds = None if autoscale is None else parse_autoscale(autoscale)
    most = replicas if bounds is None else bounds[1]
    ranks = num_ranks(settings.engine)
    threads = settings.engine.get("threads") or (max(1, usable_cores() // most) if address == LOCAL else ranks)
    num_cpus = most * ranks * rank_threads(threads, ranks) * len(settings.models)
    port = settings.port or _free_port(settings.host)
    settings = dataclasses.replace(settings, port=port)
    if address == LOCAL:  # before Ray starts, and a replica, which is started thrice where that fails
        for model in settings.models:
            describe(EngineConfig(model.source, **settings.engine_options()))
    app = build_app(settings, replicas=replicas, autoscale=bounds, threads=threads, num_gpus=num_gpus)
    with cluster(address, num_cpus=num_cpus), _signals() as signals:
        from ray import serve
        from ray.exceptions import RayError

        logging.getLogger("ray.serve").setLevel(logging.ERROR)  # which importing it has set
        if NAME in serve.status().applications:
            raise ClusterError(
                f'an application "{NAME}" runs on this cluster already: end the command that runs it, or remove it by '
                f'ray.serve.delete("{NAME}")'
            )
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        where = "HeadOnly" if address == LOCAL else "EveryNode"
        try:
            serve.start(where, {"host": settings.host, "port": port}, logging_config=quiet)
        except (RayError, TimeoutError) as error:
            raise ClusterError(
                "Ray Serve's proxy did not start within its time: the machine may be busy, or without memory; try again"
            ) from error
        try:
            serve.run(app, name=NAME, route_prefix="/", logging_config=quiet)
        except RuntimeError as error:
            reason = _reason(serve.status())
            serve.delete(NAME)
            raise ClusterError(reason) from error
        except KeyboardInterrupt:
            serve.delete(NAME)
            raise
        host, port = _listening()
        host = f"[{host}]" if ":" in host else host
        signals.end_at_once = False
        announce(f"Transept listens on http://{host}:{port}{settings.root_path} (by Ray Serve; the models are loaded)")
        signals.came.wait()
        serve.delete(NAME)
    return DONE


class _Signals:
    """SIGINT and SIGTERM: the first one sets `came`; a second one, or any while end_at_once, is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.end_at_once = True  # until there is something to be let finish

    def note(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        if self.end_at_once or self.came.is_set():
            raise KeyboardInterrupt
        self.came.set()


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    before = {each: signal.signal(each, signals.note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listening() -> tuple[str, int]:
    """Where Serve listens: as it was asked to, or as it did before, where it ran on the cluster already."""
    from ray.serve.context import _get_global_client  # nothing public tells

    client: Any = _get_global_client()
    return client.http_config.host, client.http_config.port


def _free_port(host: str) -> int:
    """Serve takes no 0 for any port that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        return port


def _reason(status: Any) -> str:
    """Why no replica could be started: what our own error in a replica's traceback says, or what Serve says."""
    told = [each.message for each in status.applications[NAME].deployments.values()]
    lines = [line.strip() for message in told for line in message.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("transept.errors.")]
    return CLASS_NAMES.sub("", (ours or lines or ["Serve could not start the application"])[-1])
