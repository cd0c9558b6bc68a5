"""The memory that decoded audio takes, told to the owner of a budget while a recording is read.

`transept.multimodal.audio_limits` and `declared_length` tell it. A server sets RESERVATION for each of its requests,
and their jobs carry the context variable into the threads that decode. Nothing here counts.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class Reservation(Protocol):
    """One recording's part of a budget. Both methods are called in the thread that decodes it."""

    def expect(self, num_bytes: int) -> None:
        """Return once there is room for a recording that declares so many bytes of samples. May wait, and may raise."""

    def hold(self, num_bytes: int) -> None:
        """Note that so many bytes have been decoded so far. Does not wait; raises if there is no room for them."""


RESERVATION: ContextVar[Reservation | None] = ContextVar("transept_decoded_memory", default=None)


def expect(num_bytes: float) -> None:
    """Tell the budget of the current context, if it has one, how large a recording says it will be."""
    reservation = RESERVATION.get()
    if reservation is not None:
        reservation.expect(int(num_bytes))


def hold(num_bytes: float) -> None:
    """Tell the budget of the current context, if it has one, how large a recording is so far."""
    reservation = RESERVATION.get()
    if reservation is not None:
        reservation.hold(int(num_bytes))
