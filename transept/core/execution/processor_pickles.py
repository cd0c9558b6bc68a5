"""Pickle users' logits processors for workers, separately from the rest of a step. Used by `step_deltas`.

Processors that cannot be pickled, or cannot be loaded in a worker, raise when they are called. So they fail only their
own request.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from transept.core.parallel.connection import dumps
from transept.core.request.sampling_params import LogitsProcessor
from transept.errors import ParameterError, message_of

MOST_LOADED = 256  # different pickles


def pickle_processors(processors: Sequence[LogitsProcessor]) -> bytes | str:
    """Return the pickle of a request's processors, or the reason why they cannot be pickled."""
    try:
        return dumps(processors)
    except Exception as error:  # of a user's object
        return message_of(error)


class ProcessorLoader:
    """Loads processors in a worker. Equal pickles load once, so that the sampler calls them once for all their rows."""

    def __init__(self) -> None:
        self._loaded: dict[bytes, Sequence[LogitsProcessor]] = {}

    def load(self, pickled: bytes | str) -> Sequence[LogitsProcessor]:
        """Return what `pickle_processors` was given."""
        if isinstance(pickled, str):
            return (_Unavailable(pickled),)
        if pickled not in self._loaded:
            if len(self._loaded) >= MOST_LOADED:
                self._loaded.clear()
            try:
                self._loaded[pickled] = pickle.loads(pickled)
            except Exception as error:  # its module cannot be imported here, say
                self._loaded[pickled] = (_Unavailable(f"{type(error).__name__}: {message_of(error)}"),)
        return self._loaded[pickled]


class _Unavailable:
    """Placeholder for logits processors that could not be pickled or loaded."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, logits: Tensor, rows: Any) -> None:
        raise ParameterError(
            f"with several processes {{logits_processors}} must pickle, and these do not: {self._why}. Classes and "
            "functions of a module that workers can import do; lambdas and local functions do not",
            param="logits_processors",
        )
