"""What is closed when it is no longer needed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closable:
    """Something with ``close()``, which leaving a ``with`` statement calls."""

    def close(self) -> None:
        """Give back what is held."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
