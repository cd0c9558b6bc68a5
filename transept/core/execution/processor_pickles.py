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


def pickle_processors(processors: Sequence[LogitsProcessor]) -> bytes | str:
    """Return the pickle of a request's processors, or the reason why they cannot be pickled."""
    try:
        return dumps(processors)
    except Exception as error:  # of a user's object
        return message_of(error)


def load_processors(pickled: bytes | str) -> Sequence[LogitsProcessor]:
    """Return the processors that `pickle_processors` was given, or one that raises an error with the reason."""
    try:
        return (_Unavailable(pickled),) if isinstance(pickled, str) else pickle.loads(pickled)
    except Exception as error:  # its module cannot be imported here, say
        return (_Unavailable(f"{type(error).__name__}: {message_of(error)}"),)


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
