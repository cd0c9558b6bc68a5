"""forget_frames: clear the variables that a traceback keeps alive. The engine core calls it for failed requests."""

from __future__ import annotations

import traceback
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import FrameType

SUSPENDABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def forget_frames(error: BaseException | None) -> None:
    """Clear the local variables of an error's frames: tensors and, through `self`, the whole model.

    Users may keep errors for a long time. The traceback's functions and lines stay.
    """
    while error is not None:
        for failed, _ in traceback.walk_tb(error.__traceback__):
            frame: FrameType | None = failed
            # Stop at a running caller, and at a generator, because clearing closes it.
            while frame is not None and not frame.f_code.co_flags & SUSPENDABLE:
                try:
                    frame.clear()
                except RuntimeError:  # it is running
                    break
                frame = frame.f_back
        error = error.__cause__
