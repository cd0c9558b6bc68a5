"""A request's place in a model's engine: taken before its body is read, where it is known which model it will be."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack

from transept.serving.async_engine import Ticket
from transept.serving.models import Kind, ServedModel, ServedModels


class Place:
    """What a request holds until it is answered; given back with its stack.

    models: of the server. kind: of the model that it needs.
    """

    def __init__(self, models: ServedModels, kind: Kind, stack: AsyncExitStack) -> None:
        self.models, self.kind, self.stack = models, kind, stack
        self._ticket: Ticket | None = None
        self._without = ExitStack()  # until it is taken, where that is not early
        stack.callback(self._without.close)

    async def take_early(self) -> None:
        """Take it now if there is one model of that kind; else only so many are read at a time as one model has places.

        Raises ApiError when there is no place, or none ready.
        """
        self.models.check_open()
        only = self.models.only(self.kind)
        if only is not None:
            self._ticket = await self.stack.enter_async_context(self.models.admit(only))
        else:
            self._without.enter_context(self.models.without_place())

    async def take(self, name: str | None, target: str | None = None) -> tuple[ServedModel, Ticket]:
        """The model of that name, and a place in its engine. target: see ServedModels.get. Raises ApiError."""
        model = self.models.get(name, self.kind, target)
        if self._ticket is None:
            self._ticket = await self.stack.enter_async_context(self.models.admit(model))
        self._without.close()
        return model, self._ticket
