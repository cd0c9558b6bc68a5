"""ModelServer: what runs in a replica, the server's own application, and what Ray Serve asks of it."""

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
STEP_SECONDS = 30.0  # in which the engine must take a step, or the replica is replaced
RETRY_AFTER_SECONDS = 2.0  # what a client is told whose request found the queue full


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
    """The server's application (`transept.serving.http.app`) with models of its own.

    settings: of the server; threads is the number of CPUs that Ray gave the replica, unless they tell it. Several
    ranks stand in the replica's placement group.
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
        """Called by Serve where this is the ingress; it starts the application, which begins to load the models."""
        return IdByServe(self.application)

    async def check_health(self) -> None:
        """Take a real step with every engine. The first check ends once the models are loaded, and then requests come.

        Raises EngineClosedError for a model that cannot be loaded, or an engine that takes no step. One that has ended
        ends this process: Serve replaces it at once, where it would ask twice more, and send it requests meanwhile.
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
                logger.error('the engine of "%s" has ended, and this replica with it: %s', model.name, error)
                os._exit(1)


def _has_ended(engine: AsyncEngine) -> bool:
    """Whether an engine will never take a step again."""
    try:
        engine.engine.executor.check_open()
    except EngineClosedError:
        return True
    return not engine.is_alive


class IdByServe:
    """ASGI middleware: leaves it to Serve to tell the id of a request, so that each answer has that header once."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""

        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [header for header in message["headers"] if header[0].lower() != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, send_without)
