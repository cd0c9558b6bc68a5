"""Call users' logits processors, for the sampler, and pickle functions of users, for `step_deltas`.

Functions that cannot be pickled, or cannot be loaded in a worker, raise when they are called. So they fail only their
own request.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transept.core.parallel.connection import dumps
from transept.core.request.sampling_params import LogitsProcessor
from transept.core.scheduling.step import SequenceData
from transept.errors import ParameterError, RequestFailedError, message_of, shown


class ProcessorInterruptedError(RequestFailedError):
    """A logits processor raised a BaseException that is not an Exception, such as SystemExit or KeyboardInterrupt."""

    def __init__(self, message: str, interruption: BaseException | None = None) -> None:
        super().__init__(message)
        self.interruption = interruption


def call_processors(logits: Tensor, processors: Sequence[LogitsProcessor], rows: Sequence[SequenceData]) -> None:
    """Apply a request's processors to logits [rows, vocabulary], which they change in place or return anew.

    They receive copies of everything except the logits. Raises ValueError if a processor changes the logits' shape or
    memory, or returns something else than logits; ProcessorInterruptedError for a BaseException.
    """
    num_bytes = logits.untyped_storage().nbytes()
    data = [SequenceData([*row.prompt_token_ids], [*row.output_token_ids], row.sample_index) for row in rows]
    for processor in processors:
        given = logits.view_as(logits)
        try:
            returned: Any = _call(processor, given, data)
        except Exception:
            raise
        except BaseException as error:  # sys.exit(), or a signal
            message = f"a logits processor raised {type(error).__name__}: {message_of(error)}"
            raise ProcessorInterruptedError(message, error) from error
        same = given.shape == logits.shape and given.data_ptr() == logits.data_ptr()
        if not same or logits.untyped_storage().nbytes() != num_bytes:
            raise ValueError(f"{shown(processor)} changed the logits' shape or memory; it must change numbers in place")
        if returned is not None and returned is not given:
            _take(returned, logits, processor)


def _call(processor: Any, logits: Tensor, rows: Sequence[SequenceData]) -> Any:
    """Call a processor and return its result. Call transformers' processors row by row, since lengths may differ."""
    module = sys.modules.get("transformers.generation.logits_process")  # loaded if there is an instance
    if module is None or not isinstance(processor, module.LogitsProcessor):
        return processor(logits, rows)
    returned = []
    for row, scores in zip(rows, logits.split(1), strict=True):
        scores = processor(torch.tensor([row.token_ids], device=logits.device), scores)
        if not isinstance(scores, Tensor):
            return scores
        returned.append(scores)
    return torch.cat(returned)


def _take(returned: Any, logits: Tensor, processor: LogitsProcessor) -> None:
    """Copy the logits that a processor returned into the input. Raises ValueError for any other return value."""
    if isinstance(returned, Tensor):
        kind = f"a {returned.dtype} tensor of shape {[*returned.shape]} on {returned.device}"
        fits = (returned.shape, returned.dtype, returned.device) == (logits.shape, logits.dtype, logits.device)
    else:
        kind, fits = shown(returned), False
    if not fits:
        raise ValueError(
            f"{shown(processor)} returned {kind}; it must return None, or logits like those that it was given: "
            f"{logits.dtype}, {[*logits.shape]}, on {logits.device}"
        )
    shared = returned.untyped_storage().data_ptr() == logits.untyped_storage().data_ptr()
    logits.copy_(returned.clone() if shared else returned)


def pickle_functions(functions: Sequence[Any]) -> bytes | str:
    """Return the pickle of some functions of a request, or the reason why they cannot be pickled."""
    try:
        return dumps(functions)
    except Exception as error:  # of a user's object
        return message_of(error)


def load_functions(name: str, pickled: bytes | str) -> Sequence[Any]:
    """Return the functions that `pickle_functions` was given, or one that raises an error with the reason.

    name: the parameter with these functions.
    """
    try:
        return (_Unavailable(name, pickled),) if isinstance(pickled, str) else pickle.loads(pickled)
    except Exception as error:  # its module cannot be imported here, say
        return (_Unavailable(name, f"{type(error).__name__}: {message_of(error)}"),)


class _Unavailable:
    """Placeholder for functions that could not be pickled or loaded."""

    def __init__(self, name: str, why: str) -> None:
        self._name, self._why = name, why

    def __call__(self, *args: Any) -> Any:
        raise ParameterError(
            f"with several processes {{{self._name}}} must pickle, but pickling failed: {self._why}. Use classes and "
            "functions of a module that workers can import, not lambdas and local functions",
            param=self._name,
        )
