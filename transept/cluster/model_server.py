"""ModelServer: what runs in a replica, the server's own application, and what Ray Serve asks of it."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from transept.cluster.runtime import replica_threads
from transept.errors import EngineClosedError
from transept.serving.settings import ServerSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STEP_SECONDS = 30.0  # in which the engine must take a step, or the replica is replaced
RETRY_AFTER_SECONDS = 2.0  # what a client is told whose request found the queue full


class ModelServer:
    """The server's application (`transept.serving.http.app`) with models of its own.

    settings: of the server; num_threads is the number of CPUs that Ray gave the replica, unless they tell it.
    """

    def __init__(self, settings: ServerSettings) -> None:
        from transept.serving.http.app import build_app

        logger = logging.getLogger("transept")
        logger.setLevel(logging.INFO)
        if not logger.handlers:
            logger.addHandler(logging.StreamHandler())
        engine = settings.engine
        if engine.get("num_threads") is None:
            engine = {**engine, "num_threads": replica_threads()}
        self.application = build_app(dataclasses.replace(settings, engine=engine))
        self.models = self.application.state.models

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Serve where this is the ingress; it starts the application, which begins to load the models."""
        return IdByServe(self.application)

    async def check_health(self) -> None:
        """Take a real step with every engine. The first check ends once the models are loaded, and then requests come.

        Raises EngineClosedError for a model that cannot be loaded, or an engine that takes no step.
        """
        await self.models.wait_until_loaded()
        for model in self.models.models.values():
            if model.engine is None:
                raise EngineClosedError(f'model "{model.name}" cannot be served: {model.error}')
            await model.engine.check_health(STEP_SECONDS)


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
