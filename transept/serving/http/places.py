"""A request's places: one among the uploads while its body is received, then one in its model's engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, ExitStack

from starlette.requests import Request

from transept.serving.async_engine import Ticket
from transept.serving.models import Ability, Kind, ServedModel, ServedModels


def place_of(kind: Kind | None) -> Callable[[Request], AsyncGenerator[Place, None]]:
    """Return a dependency of an endpoint: the request's place, taken before its body is read.

    kind: the kind of model that the request needs, or None. The place must come before the body among the endpoint's
    parameters, because FastAPI resolves them in order. Raises ApiError:
    503 while the server drains, 429 if all places are taken or the only model of the kind has a full queue.
    """

    async def place(request: Request) -> AsyncGenerator[Place, None]:
        async with AsyncExitStack() as stack:
            yield Place(request, kind, stack)

    return place


class Place:
    """The place that a request holds until it is answered. Closing the stack releases the place."""

    def __init__(self, request: Request, kind: Kind | None, stack: AsyncExitStack) -> None:
        self.models: ServedModels = request.app.state.models
        self.kind, self.stack = kind, stack
        self._upload = ExitStack()
        stack.callback(self._upload.close)
        self.models.check_open()
        only = self.models.only(kind) if kind is not None else None
        if only is not None:
            self.models.check_room(only)
        address = request.client.host if request.client is not None else ""
        self._upload.enter_context(self.models.uploads.place(address))

    async def take(self, name: str, ability: Ability | None = None) -> tuple[ServedModel, Ticket]:
        """Exchange the place for one in a model's engine, once the body is read.

        name: empty for the first of its kind. ability: see ServedModels.get. Raises ApiError.
        """
        assert self.kind is not None
        model = self.models.get(name or None, self.kind, ability)
        ticket = await self.stack.enter_async_context(self.models.admit(model))
        self._upload.close()
        return model, ticket
