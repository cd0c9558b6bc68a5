"""Isolation: a batch of work that raises is computed again in halves, until the work that fails stands alone.

Used by the model runner. That takes twice log2(batch) computations for each failure, and is harmless: a request writes
the same keys and values again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from transept.core.execution.device_errors import is_fatal
from transept.core.execution.logits_processors import ProcessorInterruptedError
from transept.core.parallel.group import ExchangeError
from transept.errors import is_interruption

FailableT = TypeVar("FailableT")  # an encode, or a request: either can fail alone


class Isolation(Generic[FailableT]):
    """Gives out batches, at first the whole one, and takes back those that raise.

    failed: what failed alone, with its error. interruption: one that a logits processor raised, to be raised once all
    others have their tokens.
    """

    def __init__(self, batch: Sequence[FailableT], device: torch.device) -> None:
        self.failed: list[tuple[FailableT, Exception]] = []
        self.interruption: BaseException | None = None
        self._waiting = [batch] if batch else []
        self._device = device

    def __iter__(self) -> Iterator[Sequence[FailableT]]:
        while self._waiting:
            yield self._waiting.pop()

    @contextmanager
    def isolating(self, batch: Sequence[FailableT]) -> Iterator[None]:
        """Compute a batch within. Raises only the errors that concern the whole step: see `ModelRunner.issue`."""
        try:
            yield
        except ExchangeError:
            raise
        except Exception as error:  # of any kind: a model, a mapper and a logits processor may be a plugin's
            if is_fatal(error, self._device):
                raise
            self.interruption = interruption_of(error) or self.interruption
            if len(batch) == 1:
                self.failed.append((batch[0], error))
            else:
                middle = len(batch) // 2
                self._waiting += [batch[middle:], batch[:middle]]


def interruption_of(error: Exception) -> BaseException | None:
    """The interruption that made a logits processor fail, if one did."""
    interruption = error.interruption if isinstance(error, ProcessorInterruptedError) else None
    return interruption if interruption is not None and is_interruption(interruption) else None
