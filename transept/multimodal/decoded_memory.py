"""Report the memory of decoded audio to a budget while a recording is read.

`transept.multimodal.audio_limits` and `declared_length` report it. A server sets RESERVATION for each request, and the
request's job carries the context variable into the threads that decode. Nothing here counts.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Protocol


class Reservation(Protocol):
    """One recording's share of a budget. Both methods are called in the thread that decodes the recording."""

    def expect(self, num_bytes: int) -> None:
        """Wait until there is room for a recording that declares so many bytes of samples. May raise."""

    def hold(self, num_bytes: int) -> None:
        """Record that so many bytes have been decoded so far. Does not wait; raises if there is no room for them."""


RESERVATION: ContextVar[Reservation | None] = ContextVar("transept_decoded_memory", default=None)


def expect(num_bytes: float) -> None:
    """Report the declared size of a recording to the current context's budget, if there is one."""
    reservation = RESERVATION.get()
    if reservation is not None:
        reservation.expect(int(num_bytes))


def hold(num_bytes: float) -> None:
    """Report the decoded size of a recording so far to the current context's budget, if there is one."""
    reservation = RESERVATION.get()
    if reservation is not None:
        reservation.hold(int(num_bytes))
