"""All errors that Transept raises on purpose. All are subclasses of TranseptError, so one except clause catches them.

A message says what is wrong, with which value, and what would work.
"""

from __future__ import annotations

import ast
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Self

MOST_NAMES = 60  # in a message's list
LONGEST_MESSAGE = 1000  # characters of a foreign exception's message that an error repeats
LONGEST_REPR = 100  # characters of a value's repr in a message
LONGEST_NAME = 100  # characters; for a longer name no suggestion is searched, since the search would take long
LETTERS_OF_A_SLIP = 4  # letters of a word for each typo; one typo is always tolerated: "germn" is near to "german"
SHORTEST_BEGIN = 3  # letters of a misspelt word, or of a truncated name
SHORTEST_STEM, LEAST_STEM = 6, 0.6  # letters of a common stem, and their minimum share in the longer word
MOST_LONGER = 3  # candidates for a truncated name; with more, none is suggested
NEGATIONS = ("no", "not", "without", "disable")  # a name after one of these means the opposite
# An option or a value in a message: {name}, {name=}, {name=1}, {name!} (its value alone) or {=True} (a literal alone).
OPTION = re.compile(r"\{([^{}=]*?)(!|=([^{}]*))?\}")


class TranseptError(Exception):
    """Base of all errors that Transept raises on purpose.

    message: contains options' names as ``{beam_size}``, as ``{beam_size=}`` with their values, or as ``{beam_size=5}``
    with a value to use instead; a value alone as ``{beam_size!}``, and a literal as ``{=True}``. `spelt` formats them
    for the command line or the HTTP API, ``str`` for Python.
    param: the option at fault, such as ``"beam_size"`` or ``"vad_options.threshold"``; None: no option. value: its
    value. others: further options in the message, with their values if it shows them.
    """

    def __init__(
        self,
        message: str = "",
        *,
        param: str | None = None,
        value: Any = None,
        others: Mapping[str, Any] | Iterable[str] = (),
    ) -> None:
        self.message, self.param, self.value = message, param, value
        self.others = dict(others) if isinstance(others, Mapping) else dict.fromkeys(others)
        super().__init__(self.spelt(str, lambda name, given: f"{name}={given!r}"))

    def spelt(
        self, name: Callable[[str], str], assigned: Callable[[str, Any], str], value: Callable[[Any], str] | None = None
    ) -> str:
        """Return the message with option names formatted by `name`, names with values by `assigned`.

        value: formats a value alone; by default Python's repr, truncated.
        """
        named = self.others if self.param is None else self.others | {self.param: self.value}

        def written(found: re.Match[str]) -> str:
            option, mark, literal = found.groups()
            if option not in named and (option or not literal):
                return found[0]
            if mark is None:
                return name(option)
            if mark == "!":
                return (value or shown)(named[option])
            try:
                given = ast.literal_eval(literal) if literal else named[option]
            except (ValueError, SyntaxError):  # braces in a user's text
                return found[0]
            return assigned(option, given) if option else (value or shown)(given)

        return OPTION.sub(written, self.message)

    def renamed(self, name: Callable[[str], str]) -> Self:
        """Return the error with other names of its options, such as ``vad_options.threshold`` for ``threshold``."""
        named = {self.param, *self.others}
        message = OPTION.sub(
            lambda found: found[0].replace(found[1], name(found[1]), 1) if found[1] in named else found[0], self.message
        )
        others = {name(each): value for each, value in self.others.items()}
        param = None if self.param is None else name(self.param)
        return type(self)(message, param=param, value=self.value, others=others)

    def spelling(self, names: Mapping[str, str]) -> Self:
        """Return the error with the names that `names` has for its options. A part of an option keeps its own name."""

        def spelt(name: str) -> str:
            option, dot, part = name.partition(".")
            return names.get(option, option) + dot + part

        return self.renamed(spelt)

    def at(self, place: str, param: str | None = None) -> Self:
        """Return the error with a place before its message. param: the parameter at fault if the error names none."""
        return type(self)(f"{place}: {self.message}", param=self.param or param, value=self.value, others=self.others)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),), {"param": self.param}  # values may not pickle


class UnsupportedModelError(TranseptError):
    """No loaded plugin runs the requested checkpoint, or two do and neither was chosen."""


class PluginError(TranseptError):
    """A plugin breaks the plugin contract, or cannot be written or installed.

    Transept also raises it for a function or a model of a plugin that raises an exception other than a TranseptError;
    ``__cause__`` is that exception. Only the request, document, recording or image at hand fails.
    """


class CheckpointError(TranseptError):
    """A checkpoint cannot be found, read, or matched with its model."""


class PromptError(TranseptError, ValueError):
    """A prompt has the wrong form, or is too long for the model."""


class MediaError(TranseptError, ValueError):
    """Multimodal data (such as an audio file) cannot be read or does not fit the model."""


class MediaTooLargeError(MediaError):
    """Multimodal data is longer or larger than a limit of this engine."""


class ParameterError(TranseptError, ValueError):
    """An option is unknown, out of range, not supported by this model, or contradicts another.

    ``ParameterError("omit {language}", param="language", value=language)`` names the option at fault. A name in braces
    is ``language`` in Python, ``--language`` on the command line and the client's field over HTTP. ``{language=}`` also
    shows the value, and ``{language='en'}`` another value.
    """


class UnsupportedTaskError(ParameterError):
    """The checkpoint cannot do a text task, such as translation, with any options.

    A function of TextSpec raises it. `TextGenerator.tasks` and a server then do not list the task.
    """


class CapacityError(TranseptError):
    """A request could never fit into the memory or the budgets of this engine, or the engine into this machine."""


class QueueFullError(TranseptError):
    """The queue is full: Limits.max_queue_length requests are waiting. Try again later."""


class EngineClosedError(TranseptError):
    """An engine accepts no new work: it is draining, was closed, or has stopped after a fatal error."""


class EngineDeadError(EngineClosedError):
    """An engine has ended permanently: its device has failed, or one of its processes has died or hung.

    The message says which. All its requests fail with this error, and new ones are refused with it.
    """


class RequestFailedError(TranseptError):
    """An exception while a request was processed: in a plugin's model or mapper, a logits processor or a tokenizer.

    Only this request has failed. ``__cause__`` is the exception.
    """

    @classmethod
    def of(cls, cause: BaseException) -> RequestFailedError:
        """Make the error of a request that failed with another exception."""
        error = cls(f"the request failed while it was computed: {type(cause).__name__}: {message_of(cause)}")
        error.__cause__ = cause
        return error


class PluginFailedError(PluginError, RequestFailedError):
    """A function that a plugin declares raised an exception other than a TranseptError, or cannot be imported.

    Only the call that needed it has failed. ``__cause__`` is the exception.
    """


class MissingPackageError(TranseptError, ImportError):
    """An extra of Transept is not installed."""


class KernelsNotBuiltError(TranseptError):
    """The CPU kernels are missing, or were built from other sources: build the package."""


class ForkedProcessError(TranseptError):
    """An engine was made or used in a process forked after the kernels' threads had started. Use spawn instead."""


def message_of(error: BaseException) -> str:
    """Return an exception's message, truncated to LONGEST_MESSAGE characters; safe even if its ``__str__`` raises."""
    try:
        text = str(error)
    except Exception as failure:  # of a foreign __str__
        return f"(its message cannot be shown: {type(failure).__name__})"
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."


def shown(value: Any) -> str:
    """Return a value's repr for a message, truncated to LONGEST_REPR characters; its type if repr raises."""
    try:
        text = repr(value)
    except Exception:  # of its __repr__, or of an integer with thousands of digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= LONGEST_REPR else f"{text[:LONGEST_REPR]}..."


def either(values: Iterable[Any]) -> str:
    """Return values as a choice in the message of a TranseptError: ``True, False or "never"``."""
    *first, last = (f'"{each}"' if isinstance(each, str) else f"{{={each!r}}}" for each in values)
    return f"{', '.join(first)} or {last}" if first else last


def is_interruption(error: BaseException) -> bool:
    """Return True if an error may come from a signal, as KeyboardInterrupt does: only in the main thread."""
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant; None if no name is near.

    A name is near if some of its words are misspelt or abbreviated, if it is truncated, or if it has extra or missing
    words. Case and separators do not matter. A different word is not a typo: ``output_path`` is not near to
    ``output_format``.
    """
    if len(name) > LONGEST_NAME:
        return None
    words, plain = _words(name), "".join(_words(name))
    others = {each: _words(each) for each in sorted(known)}
    slips = {each: _slips(words, other) for each, other in others.items()}
    if near := {each: slip for each, slip in slips.items() if slip is not None}:
        return min(near, key=lambda each: (near[each], abs(len(each) - len(name)), len(each)))
    if len(plain) < SHORTEST_BEGIN:
        return None
    longer = [
        each
        for each, other in others.items()
        if "".join(other).startswith(plain) or (len(words) > 1 and set(words) < set(other))
    ]
    if longer:
        return min(longer, key=len) if len(longer) <= MOST_LONGER else None
    long_enough = {each: other for each, other in others.items() if len("".join(other)) >= SHORTEST_BEGIN}
    begin = [each for each, other in long_enough.items() if words[: len(other)] == other]
    end = [each for each, other in long_enough.items() if words[-len(other) :] == other and words[0] not in NEGATIONS]
    return max(begin or end, key=len, default=None)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", name.lower()) if word]


def _slips(words: list[str], others: list[str]) -> int | None:
    """Return the number of typos between two names; None if a word differs too much for typos."""
    by_word = len(words) == len(others)
    pairs = list(zip(words, others, strict=True)) if by_word else [("".join(words), "".join(others))]
    num_slips = 0
    for one, other in pairs:
        if one == other:
            continue
        shorter, longer = sorted((one, other), key=len)
        if len(shorter) < SHORTEST_BEGIN and not (len(longer) == SHORTEST_BEGIN and longer.startswith(shorter)):
            return None  # one typo changes half of a two-letter word; only an added letter counts: "dee" for "de"
        edits = 1 if len(pairs) > 1 and longer.startswith(shorter) else _edits(one, other)
        if edits > max(1, len(one) // LETTERS_OF_A_SLIP) and not (by_word and _share_a_stem(one, other)):
            return None
        num_slips += edits
    return num_slips


def _share_a_stem(one: str, other: str) -> bool:
    """Return True if two words are forms of one, as "diarization" and "diarize" are."""
    shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return shared >= SHORTEST_STEM and shared >= LEAST_STEM * max(len(one), len(other))


def _edits(one: str, other: str) -> int:
    """Return the optimal string alignment distance: insertions, deletions, substitutions and transpositions."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, theirs in enumerate(other, 1):
            least = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != theirs))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == theirs:
                least = min(least, last[j - 2] + 1)
            row.append(least)
    return row[-1]


def require_packages(what: str, packages: Mapping[str, str], extra: str) -> None:
    """Raise MissingPackageError, which names the extra, if a module is not installed.

    what: the feature that needs the modules, for the message. packages: module -> the package that contains it.
    """
    missing = [package for module, package in packages.items() if find_spec(module) is None]
    if missing:
        raise MissingPackageError(
            f'{what} needs {", ".join(missing)}; install them with: pip install "transept[{extra}]"'
        )


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: `` Did you mean 'x'?``, or the known names if none is near.

    Lists only a few names if there are more than MOST_NAMES.
    """
    known = sorted({*known})
    if not known:
        return ""
    if near := nearest(name, known):
        return f" Did you mean {near!r}?"
    if len(known) > MOST_NAMES:
        few = MOST_NAMES // 4
        return f" Known: {', '.join(known[:few])} and {len(known) - few} more."
    return f" Known: {', '.join(known)}."
