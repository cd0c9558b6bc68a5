"""Isolation: bisect a batch that raises, to isolate the failing encode or request.

Used by the model runner. Each failure costs about 2 * log2(batch) further computations. Recomputing is harmless: a
request writes the same keys and values again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from transept.core.execution.device_errors import is_fatal
from transept.core.execution.logits_processors import ProcessorInterruptedError
from transept.core.parallel.group import ExchangeError
from transept.errors import is_interruption

FailableT = TypeVar("FailableT")  # an encode, or a request: either can fail alone


class Isolation(Generic[FailableT]):
    """Yields batches to compute, the whole one first, and splits those that raise.

    simpler: returns a simpler form of an encode or a request that has failed alone, to be tried next; None if it has
    no simpler form.
    failed: encodes or requests that failed in a batch of one, with their errors. interruption: a BaseException of a
    logits processor, to be raised once all other requests have their tokens.
    """

    def __init__(
        self,
        batch: Sequence[FailableT],
        device: torch.device,
        simpler: Callable[[FailableT], FailableT | None] = lambda failed: None,
    ) -> None:
        self.failed: list[tuple[FailableT, Exception]] = []
        self.interruption: BaseException | None = None
        self._waiting = [batch] if batch else []
        self._device, self._simpler = device, simpler

    def __iter__(self) -> Iterator[Sequence[FailableT]]:
        while self._waiting:
            yield self._waiting.pop()

    @contextmanager
    def isolating(self, batch: Sequence[FailableT]) -> Iterator[None]:
        """Compute a batch in this context. Raises only errors of the whole step: see `ModelRunner.issue`."""
        try:
            yield
        except Exception as error:  # of any kind: a model, a mapper and a logits processor may be a plugin's
            if ends_engine(error, self._device):
                raise
            if len(batch) == 1 and (simpler := self._simpler(batch[0])) is not None:
                self._waiting.append([simpler])
                return
            self.interruption = interruption_of(error) or self.interruption
            if len(batch) == 1:
                self.failed.append((batch[0], error))
            else:
                middle = len(batch) // 2
                self._waiting += [batch[middle:], batch[:middle]]


def ends_engine(error: Exception, device: torch.device) -> bool:
    """True if an error ends the engine: ranks are out of step, or the device has failed."""
    return isinstance(error, ExchangeError) or is_fatal(error, device)


def interruption_of(error: Exception) -> BaseException | None:
    """Return the interruption that a logits processor raised; None if the error has another cause."""
    interruption = error.interruption if isinstance(error, ProcessorInterruptedError) else None
    return interruption if interruption is not None and is_interruption(interruption) else None
