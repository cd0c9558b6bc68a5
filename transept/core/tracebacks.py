"""Release the local variables that an error's traceback holds.

A refused recording's samples are among them, and an error lives for as long as its reader keeps it. Called by
`transept.core.offload`, `transept.core.job_tasks` and the server; nothing here raises or logs an error.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from transept.errors import TranseptError


def release_frames(error: BaseException) -> None:
    """Clear the local variables of an error's finished frames, and of its causes'; the lines of the traceback stay.

    Does so for a TranseptError alone, which explains itself: a debugger may want the variables of any other exception.
    """
    if isinstance(error, TranseptError):
        for each in _chain(error):
            traceback.clear_frames(each.__traceback__)


def drop_traceback(error: BaseException) -> None:
    """Remove the tracebacks of an error and of its causes, once they are logged or will never be shown.

    An error in a local variable of a frame that its own traceback holds is a reference cycle, which only the garbage
    collector ends.
    """
    for each in _chain(error):
        each.__traceback__ = None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes. A context that ``raise ... from None`` hides is removed."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if current.__suppress_context__:
            current.__context__ = None
        yield current
        current = current.__cause__
