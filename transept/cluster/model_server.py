"""ModelServer: runs the server's application in a replica of Ray Serve."""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import TYPE_CHECKING

from transept.cluster.rank_actors import RankActors, replica_placement_group
from transept.cluster.runtime import num_ranks, replica_threads
from transept.errors import EngineClosedError
from transept.serving.request_context import RequestIdFilter
from transept.serving.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from transept.serving.async_engine import AsyncEngine

logger = logging.getLogger(__name__)
STEP_SECONDS = 30.0  # within which the engine must take a step, or the replica is replaced
RETRY_AFTER_SECONDS = 2.0  # after which clients may try again if the queue was full


def log_to_stderr() -> None:
    """Write this process's log to stderr, from where Ray collects it."""
    ours = logging.getLogger("transept")
    ours.setLevel(logging.INFO)
    if not ours.handlers:
        handler = logging.StreamHandler()
        handler.addFilter(RequestIdFilter())
        handler.setFormatter(logging.Formatter("%(message)s%(of_request)s"))
        ours.addHandler(handler)


class ModelServer:
    """The server's application (`transept.serving.http.app`) with dedicated models.

    settings: of the server; threads defaults to the number of CPUs that Ray gave the replica. Several ranks share the
    replica's placement group.
    """

    def __init__(self, settings: ServerSettings) -> None:
        from transept.serving.http.app import build_app

        log_to_stderr()
        engine = settings.engine
        if num_ranks(engine) > 1:
            engine = {**engine, "launcher": RankActors(replica_placement_group())}
        if engine.get("threads") is None:
            engine = {**engine, "threads": replica_threads()}
        self.application = build_app(dataclasses.replace(settings, engine=engine))
        self.models = self.application.state.models

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Serve if this is the ingress. Serve starts the application, which loads the models."""
        return IdByServe(self.application)

    async def check_health(self) -> None:
        """Take a step with every engine. The first check waits until the models are loaded; then Serve sends requests.

        Raises EngineClosedError for a model that cannot be loaded, or an engine that takes no step. If an engine has
        ended, this process exits, so that Serve replaces it at once, instead of after two more checks.
        """
        await self.models.wait_until_loaded()
        for model in self.models.models.values():
            if model.engine is None:
                raise EngineClosedError(f'model "{model.name}" cannot be served: {model.error}')
            try:
                await model.engine.check_health(STEP_SECONDS)
            except EngineClosedError as error:
                if not _has_ended(model.engine):
                    raise
                logger.error('the engine of "%s" has ended, so this replica ends: %s', model.name, error)
                os._exit(1)


def _has_ended(engine: AsyncEngine) -> bool:
    """Return True if an engine has ended permanently."""
    try:
        engine.engine.executor.check_open()
    except EngineClosedError:
        return True
    return not engine.is_alive


class IdByServe:
    """ASGI middleware: removes X-Request-Id from answers, because Serve adds it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message["headers"] if header[0].lower() != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, send_without)
