"""Every error that Transept raises on purpose. All of them are TranseptError, so one except clause catches them.

A message says what was asked, why it cannot be, and what would work.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable
from typing import Any

MOST_NAMES = 60  # that a message lists
LONGEST_MESSAGE = 1000  # characters of a foreign exception's that an error of ours repeats
LONGEST_REPR = 100  # characters of a value
NEAR = 0.75  # of difflib's ratio: "germn" and "german" have 0.91, "auto" and "pushto" 0.6
SHORTEST_BEGIN = 3  # letters of a name that broke off


class TranseptError(Exception):
    """Base of all errors that Transept raises on purpose."""


class UnsupportedModelError(TranseptError):
    """No loaded plugin runs the requested checkpoint, or two do and neither was chosen."""


class PluginError(TranseptError):
    """A plugin breaks the plugin contract, or cannot be written or installed."""


class CheckpointError(TranseptError):
    """A checkpoint cannot be found, read, or matched with its model."""


class PromptError(TranseptError, ValueError):
    """A prompt has the wrong form, or is too long for the model."""


class MediaError(TranseptError, ValueError):
    """Multimodal data (such as an audio file) cannot be read or does not fit the model."""


class ParameterError(TranseptError, ValueError):
    """A sampling parameter or an engine option is unknown, out of range, or contradicts another."""


class UnsupportedTaskError(ParameterError):
    """The model's family does not have a text task at all, such as translation, whatever the options."""


class CapacityError(TranseptError):
    """A request could never fit into the memory or the budgets of this engine, or the engine into a GPU's memory."""


class QueueFullError(TranseptError):
    """As many requests wait as Limits.max_queue_length allows; later there is room again."""


class EngineClosedError(TranseptError):
    """An engine takes no new work: it ends what it has begun, was closed, or stopped after an error of its own."""


class RequestFailedError(TranseptError):
    """Something raised while a request was computed: a plugin's model or mapper, a logits processor, a tokenizer.

    The request ended with it, and no other did. ``__cause__`` is what was raised.
    """

    @classmethod
    def of(cls, cause: BaseException) -> RequestFailedError:
        """The error of a request that a foreign exception ended."""
        error = cls(f"the request failed while it was computed: {type(cause).__name__}: {message_of(cause)}")
        error.__cause__ = cause
        return error


class KernelsNotBuiltError(TranseptError):
    """The CPU kernels are missing, or are not those of the sources beside them: build the package."""


class ForkedProcessError(TranseptError):
    """An engine is made or used in a process forked from one that had started the kernels' threads: spawn it."""


def message_of(error: BaseException) -> str:
    """A foreign exception's message, as far as it has one that can be shown: LONGEST_MESSAGE characters at most."""
    try:
        text = str(error)
    except Exception as failure:  # of its __str__, which is a stranger's
        return f"(its message cannot be shown: {type(failure).__name__})"
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."


def shown(value: Any) -> str:
    """A value for a message: its repr, or where that fails its type; LONGEST_REPR characters at most."""
    try:
        text = repr(value)
    except Exception:  # of its __repr__, or of an integer with thousands of digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST_REPR else f"{text[:LONGEST_REPR]}..."


def is_interruption(error: BaseException) -> bool:
    """Whether it may come from a signal, such as KeyboardInterrupt: signals reach the main thread only."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant: misspelt, with two letters swapped, or broken off; None: none is near."""
    known = sorted(known)
    if near := difflib.get_close_matches(name, known, n=1, cutoff=NEAR):
        return near[0]
    for each in known:
        begins = len(name) >= SHORTEST_BEGIN and (each.startswith(name) or name.startswith(f"{each}_"))
        if begins or sorted(each) == sorted(name):
            return each
    return None


def suggest(name: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: `` Did you mean 'x'?``, or the known names when none is near.

    Of more than MOST_NAMES a few.
    """
    known = sorted(known)
    if not known:
        return ""
    if near := nearest(name, known):
        return f" Did you mean {near!r}?"
    if len(known) > MOST_NAMES:
        few = MOST_NAMES // 4
        return f" Known: {', '.join(known[:few])} and {len(known) - few} more."
    return f" Known: {', '.join(known)}."
