"""A request's places: one among the uploads while its body is received, then one in its model's engine."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack

from starlette.requests import Request

from transept.serving.async_engine import Ticket
from transept.serving.models import Ability, Kind, ServedModel, ServedModels


class Place:
    """The place that a request holds until it is answered. The stack gives it back.

    kind: of the model that it needs.
    """

    def __init__(self, request: Request, kind: Kind, stack: AsyncExitStack) -> None:
        self.models: ServedModels = request.app.state.models
        self.kind, self.stack = kind, stack
        self._address = request.client.host if request.client is not None else ""
        self._upload = ExitStack()
        stack.callback(self._upload.close)

    def take_early(self) -> None:
        """Take a place among the uploads, before the body is read.

        Raises ApiError: 503 while the server drains, 429 if there is no free place or the only model of the kind has
        a full queue.
        """
        self.models.check_open()
        only = self.models.only(self.kind)
        if only is not None:
            self.models.check_room(only)
        self._upload.enter_context(self.models.uploads.place(self._address))

    async def take(self, name: str | None, ability: Ability | None = None) -> tuple[ServedModel, Ticket]:
        """Exchange the place for one in a model's engine, once the body is read.

        ability: see ServedModels.get. Raises ApiError.
        """
        model = self.models.get(name, self.kind, ability)
        ticket = await self.stack.enter_async_context(self.models.admit(model))
        self._upload.close()
        return model, ticket
