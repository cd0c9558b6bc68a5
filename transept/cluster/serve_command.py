"""``transept serve --ray``: runs the application on a cluster until a signal makes it drain."""

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
from transept.serving.settings import ServerSettings
from transept.system import usable_cores

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
    """Serve until a signal arrives: the first one lets running requests finish, a second one ends at once.

    announce: called with a line that contains the URL, once all models are loaded. address: of a Ray cluster; `LOCAL`
    starts Ray here and ends it. autoscale: ``MIN:MAX``. num_gpus: of a replica.
    Returns the exit code. Raises ClusterError if the cluster cannot be reached, or no replica started.
    """
    bounds = None if autoscale is None else parse_autoscale(autoscale)
    most = replicas if bounds is None else bounds[1]
    ranks = num_ranks(settings.engine)
    threads = settings.engine.get("threads") or (max(1, usable_cores() // most) if address == LOCAL else ranks)
    num_cpus = most * ranks * rank_threads(threads, ranks) * len(settings.models)
    port = settings.port or _free_port(settings.host)
    settings = dataclasses.replace(settings, port=port)
    if address == LOCAL:  # before Ray starts replicas, which it would try three times
        for model in settings.models:
            describe(EngineConfig(model.source, **settings.engine_options()))
    app = build_app(settings, replicas=replicas, autoscale=bounds, threads=threads, num_gpus=num_gpus)
    with cluster(address, num_cpus=num_cpus), _signals() as signals:
        from ray import serve
        from ray.exceptions import RayError

        logging.getLogger("ray.serve").setLevel(logging.ERROR)  # importing Serve sets it
        if NAME in serve.status().applications:
            raise ClusterError(
                f'this cluster already runs an application "{NAME}": end its command, or remove it with '
                f'ray.serve.delete("{NAME}")'
            )
        quiet = {"log_level": "ERROR", "enable_access_log": False}
        where = "HeadOnly" if address == LOCAL else "EveryNode"
        try:
            serve.start(where, {"host": settings.host, "port": port}, logging_config=quiet)
        except (RayError, TimeoutError) as error:
            raise ClusterError(
                "Ray Serve's proxy did not start in time: the machine may be busy, or out of memory. Try again"
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
        self.end_at_once = True  # until the application runs

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
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
    """Return the host and port of Serve, which keeps its earlier ones if it already ran on the cluster."""
    from ray.serve.context import _get_global_client  # Ray has no public function

    client: Any = _get_global_client()
    return client.http_config.host, client.http_config.port


def _free_port(host: str) -> int:
    """Return a free port, because Serve does not accept port 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.bind((host, 0))
        port: int = bound.getsockname()[1]
        return port


def _reason(status: Any) -> str:
    """Return the reason why no replica started: Transept's error in a replica's traceback, or Serve's message."""
    told = [each.message for each in status.applications[NAME].deployments.values()]
    lines = [line.strip() for message in told for line in message.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("transept.errors.")]
    return CLASS_NAMES.sub("", (ours or lines or ["Serve could not start the application"])[-1])
