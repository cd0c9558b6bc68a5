"""The server's process: uvicorn with the application, the line that says where it listens, signals and exit codes.

Called by `transept serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import resource
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from transept.errors import TranseptError
from transept.serving.connections import PatientConnection
from transept.serving.errors import ApiError
from transept.serving.http.app import build_app
from transept.serving.http.request_log import UNKNOWN, log_malformed
from transept.serving.models import ServedModels
from transept.serving.settings import ServerSettings

logger = logging.getLogger(__name__)

DONE, FAILED, FORCED = 0, 1, 130  # exit codes: nothing was cut off; something was, or nothing can be served; by force
HEAD_BYTES = 32 << 10  # of a request's line and headers
KEEP_ALIVE_SECONDS = 15  # that a connection without a request stays open: longer than proxies take between two
FLUSH_SECONDS = 5  # in which the last answers are to be read, once their work has ended
BACKLOG = 1024  # connections that the system holds until they are accepted
OPEN_FILES = 1 << 16
COLLECTIONS = (700, 10, 10)  # Python's own thresholds of its garbage collector
LOOPBACK = ("127.", "::1", "localhost")


class AddressError(TranseptError):
    """The server cannot listen where it was told to."""


def run_server(settings: ServerSettings, announce: Callable[[str], None]) -> int:
    """Serve until a signal comes. announce: is given one line, with the URL, once the server listens.

    Returns the exit code; see the constants. Raises AddressError for an address that is in use, or none of ours.
    """
    sockets = listen(settings.host, settings.port)
    _allow_many_files()
    if not settings.api_keys and not settings.host.startswith(LOOPBACK):
        logger.warning("whoever reaches %s may use this server: --api-key-file gives it a key", settings.host)
    app = build_app(settings)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FLUSH_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    server = Server(config, app.state.models, settings.shutdown_timeout)
    url = url_of(sockets[0], settings)
    app.state.models.on_loaded = collect_what_requests_leave
    server.on_start = lambda: announce(f"Transept listens on {url} (models are loading; {url}/ready says when)")
    server.run(sockets=sockets)
    return server.exit_code


class Connection(PatientConnection):
    """A client's connection, whose malformed requests are logged and counted, as the application does others."""

    def note_malformed(self, error: ApiError, request_id: str) -> None:
        """Log and count what never reaches the application."""
        app: Any = self.config.app  # of `build_app`
        app.state.metrics.answered(UNKNOWN, error.status, 0)
        app.state.metrics.refused(error)
        log_malformed(app.state.settings, error.status, request_id)


class Server(uvicorn.Server):
    """uvicorn's, which at the first signal lets running requests finish while new ones are refused.

    models: told that they drain. timeout: seconds until what still runs is cut off.
    """

    def __init__(self, config: uvicorn.Config, models: ServedModels, timeout: float) -> None:
        super().__init__(config)
        self.models, self.timeout = models, timeout
        self.exit_code = DONE
        self.on_start: Callable[[], None] = lambda: None
        self._deadline: float | None = None  # of time.monotonic, once a signal came
        self._is_forced = False  # a second one did

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        if self.started:
            self.on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first one drains, the second one ends at once."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.timeout
            self.models.is_draining = True
        else:
            self._is_forced = self.force_exit = True
            self.exit_code = FORCED
            self.config.timeout_graceful_shutdown = 0
            logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # which would tell of all that it cancels

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second. Returns whether to stop."""
        if await super().on_tick(counter):
            return True
        if self._deadline is None:
            return self._nothing_is_served()
        if not (unfinished := self._num_unfinished()):
            return True
        self.models.give_up_silent_uploads()
        if time.monotonic() < self._deadline and not self._is_forced:
            return False
        logger.warning("%d requests were cut off", unfinished)
        self.exit_code = FORCED if self._is_forced else FAILED
        self.models.abort()
        await asyncio.sleep(0.1)  # while their clients are told
        return True

    def _num_unfinished(self) -> int:
        admitted = sum(engine.num_running + engine.num_waiting for engine in self.models.engines())
        return admitted + self.models.uploads.num

    def _nothing_is_served(self) -> bool:
        """Whether every model has failed, so that whoever watches the process should know."""
        if any(model.state != "failed" for model in self.models.models.values()):
            return False
        logger.error("no model can be served")
        self.exit_code = FAILED
        return True


def collect_what_requests_leave() -> None:
    """Restore Python's garbage collection thresholds, for objects created from now on.

    The command raises the thresholds, because imports create many objects. Objects of imports and models are frozen, so
    a collection takes less than a millisecond.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def listen(host: str, port: int) -> list[socket.socket]:
    """Sockets that are bound to all addresses of a host, for port 0 to the first. Raises AddressError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: of what is no host name at all
        reason = getattr(error, "strerror", None) or error
        raise AddressError(f"this machine has no address {host}: {reason}") from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    with contextlib.ExitStack() as opened:
        sockets: list[socket.socket] = []
        try:
            for family, address in addresses if port else addresses[:1]:
                bound = socket.create_server(address, family=family, backlog=BACKLOG)
                sockets.append(opened.enter_context(bound))
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which the connections inherit
        except OSError as error:
            raise _address_error(error, host, port) from None
        opened.pop_all()
        return sockets


def _address_error(error: OSError, host: str, port: int) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressError(f"port {port} of {host} is in use: stop what listens there, or choose another --port")
    if error.errno == errno.EACCES:
        return AddressError(f"port {port} is for the administrator; choose one from 1024 up, behind a proxy if need be")
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressError(f"{host} is no address of this machine; 0.0.0.0 is all that it has")
    return AddressError(f"cannot listen on port {port} of {host}: {error.strerror}")


def url_of(bound: socket.socket, settings: ServerSettings) -> str:
    """Where the server is, without a slash at its end."""
    port = bound.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}{settings.root_path}"


def _allow_many_files() -> None:
    """Raise this process's bound of open files as far as it may be: each client takes one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
