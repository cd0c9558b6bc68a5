"""The server's process: uvicorn with the application, the announcement of its URL, signals and exit codes.

Called by `transept serve`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from types import FrameType
from typing import Any

import uvicorn

from transept.errors import TranseptError
from transept.serving.connections import PatientConnection, PatientWebSocket
from transept.serving.errors import ApiError
from transept.serving.http.app import build_app
from transept.serving.http.request_log import UNKNOWN, write_line
from transept.serving.models import ServedModels
from transept.serving.settings import ServerSettings
from transept.system import allow_many_files

logger = logging.getLogger(__name__)

DONE, FAILED, FORCED = 0, 1, 130  # exit codes: drained; requests aborted, or no model works; ended by a second signal
HEAD_BYTES = 32 << 10  # of a request's line and headers
KEEP_ALIVE_SECONDS = 15  # of an idle connection, longer than the pauses of proxies
MESSAGE_BYTES = 21 << 20  # of a WebSocket: 15 MiB of audio in base64, as OpenAI allows
PING_SECONDS = 20.0  # between pings to a WebSocket, shorter than the pauses that proxies allow
PONG_SECONDS = 60.0  # without any data after a ping, after which the client counts as gone
FLUSH_SECONDS = 5  # in which clients must read the last answers
BACKLOG = 1024  # connections that wait to be accepted
COLLECTIONS = (700, 10, 10)  # Python's own thresholds of its garbage collector
LOOPBACK = ("127.", "::1", "localhost")


class AddressError(TranseptError):
    """The server cannot listen at the given address."""


def run_server(settings: ServerSettings, announce: Callable[[str], None]) -> int:
    """Serve until a signal arrives. announce: called with a line that contains the URL, once the server listens.

    Returns the exit code; see the constants. Raises AddressError for an address that is in use or not of this machine.
    """
    sockets = listen(settings.host, settings.port)
    allow_many_files()
    if not settings.api_keys and not settings.host.startswith(LOOPBACK):
        logger.warning("any client that can reach %s may use this server; set a key with --api-key-file", settings.host)
    app = build_app(settings)
    config = configured(app)
    server = Server(config, app.state.models, settings.shutdown_timeout)
    if settings.wyoming is not None:
        from transept.serving.wyoming import handler  # of an extra

        server.handle_wyoming = handler(settings, app.state.models, app.state.metrics)
        server.wyoming_sockets = listen(settings.host, settings.wyoming)
    url = url_of(sockets[0], settings)
    app.state.models.on_loaded = restore_garbage_collection
    server.on_start = lambda: announce(f"Transept listens on {url} (models are loading; {url}/ready says when)")
    server.run(sockets=sockets)
    return server.exit_code


def configured(app: Any) -> uvicorn.Config:
    """Return uvicorn's configuration for an application of `build_app`: connections and their limits."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws=PatientWebSocket,
        ws_max_size=MESSAGE_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PONG_SECONDS,
        ws_per_message_deflate=False,  # audio in base64 hardly shrinks
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


class Connection(PatientConnection):
    """A client's connection. Logs and counts malformed requests, which never reach the application."""

    def note_malformed(self, error: ApiError, request_id: str) -> None:
        """Log and count a malformed request."""
        app: Any = self.config.app  # of `build_app`
        app.state.metrics.answered(UNKNOWN, error.status, 0)
        app.state.metrics.refused(error)
        write_line(app.state.settings, request_id, UNKNOWN, UNKNOWN, error.status, 0.0, {})


class Server(uvicorn.Server):
    """uvicorn's server, which at the first signal refuses new requests and lets running ones finish.

    models: drained at the signal. timeout: seconds until the remaining requests are aborted.
    """

    def __init__(self, config: uvicorn.Config, models: ServedModels, timeout: float) -> None:
        super().__init__(config)
        self.models, self.timeout = models, timeout
        self.exit_code = DONE
        self.on_start: Callable[[], None] = lambda: None
        self.handle_wyoming: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] | None = None
        self.wyoming_sockets: list[socket.socket] = []
        self._wyoming: list[asyncio.Server] = []
        self._deadline: float | None = None  # of time.monotonic; set by the first signal
        self._is_forced = False  # set by the second signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and announce it."""
        await super().startup(sockets)
        if self.handle_wyoming is not None:
            for each in self.wyoming_sockets:
                logger.info("Wyoming listens on tcp://%s:%d", *each.getsockname()[:2])
                self._wyoming.append(await asyncio.start_server(self.handle_wyoming, sock=each, limit=HEAD_BYTES))
        if self.started:
            self.on_start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and end the application."""
        for each in self._wyoming:
            each.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one drains, the second one ends at once."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.timeout
            self.models.is_draining = True
        else:
            self._is_forced = self.force_exit = True
            self.exit_code = FORCED
            self.config.timeout_graceful_shutdown = 0
            logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it would log each cancelled request

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second. Returns True to stop."""
        if await super().on_tick(counter):
            return True
        if self._deadline is None:
            return self._nothing_is_served()
        if not (unfinished := self._num_unfinished()):
            return True
        self.models.fail_silent_uploads()
        self.models.streams.drain()
        if time.monotonic() < self._deadline and not self._is_forced:
            return False
        logger.warning("%d requests were cut off", unfinished)
        self.exit_code = FORCED if self._is_forced else FAILED
        self.models.abort()
        await asyncio.sleep(0.1)  # while their clients are told
        return True

    def _num_unfinished(self) -> int:
        admitted = sum(engine.num_running + engine.num_waiting for engine in self.models.engines())
        return admitted + self.models.uploads.num + self.models.streams.num

    def _nothing_is_served(self) -> bool:
        """True if every model has failed; the process then ends, so that its supervisor notices."""
        if any(model.state != "failed" for model in self.models.models.values()):
            return False
        logger.error("all models have failed")
        self.exit_code = FAILED
        return True


def restore_garbage_collection() -> None:
    """Restore Python's garbage collection thresholds, for objects created from now on.

    The command raises the thresholds, because imports create many objects. Objects of imports and models are frozen, so
    a collection takes less than a millisecond.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets bound to all addresses of a host, or for port 0 to the first one. Raises AddressError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        reason = getattr(error, "strerror", None) or error
        raise AddressError(
            f"the host {host} is unknown: {reason}. --host 0.0.0.0 listens at all addresses of this machine"
        ) from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    with contextlib.ExitStack() as opened:
        sockets: list[socket.socket] = []
        try:
            for family, address in addresses if port else addresses[:1]:
                bound = socket.create_server(address, family=family, backlog=BACKLOG)
                sockets.append(opened.enter_context(bound))
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        except OSError as error:
            raise _address_error(error, host, port) from None
        opened.pop_all()
        return sockets


def _address_error(error: OSError, host: str, port: int) -> AddressError:
    if error.errno == errno.EADDRINUSE:
        return AddressError(f"port {port} of {host} is in use: stop what listens there, or choose another --port")
    if error.errno == errno.EACCES:
        return AddressError(f"port {port} needs root rights: choose a --port from 1024 up, if needed behind a proxy")
    if error.errno == errno.EADDRNOTAVAIL:
        return AddressError(f"{host} is not an address of this machine: --host 0.0.0.0 listens at all of its addresses")
    return AddressError(f"cannot listen at port {port} of {host}: {error.strerror}")


def url_of(bound: socket.socket, settings: ServerSettings) -> str:
    """Return the server's URL, without a trailing slash."""
    port = bound.getsockname()[1]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"http://{host}:{port}{settings.root_path}"
