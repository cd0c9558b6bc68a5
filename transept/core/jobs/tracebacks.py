"""Release the local variables that an error's traceback holds.

They include a refused recording's samples, and an error lives as long as its caller keeps it. Called by
`transept.core.jobs.offload`, `transept.core.jobs.tasks` and the server; nothing here raises or logs an error.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from transept.errors import TranseptError


def release_frames(error: BaseException) -> None:
    """Clear the local variables in the finished frames of an error and its causes; the lines of the traceback stay.

    Only a TranseptError is cleared, because it explains itself: a debugger may need any other exception's variables.
    """
    if isinstance(error, TranseptError):
        for each in _chain(error):
            traceback.clear_frames(each.__traceback__)


def drop_traceback(error: BaseException) -> None:
    """Remove the tracebacks of an error and its causes, once they are logged or will never be shown.

    An error in a local variable of a frame in its own traceback is a reference cycle, which only the garbage collector
    frees.
    """
    for each in _chain(error):
        each.__traceback__ = None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes. Removes a context that ``raise ... from None`` hides."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if current.__suppress_context__:
            current.__context__ = None
        yield current
        current = current.__cause__
