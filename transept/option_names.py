"""The names of a user's options: unknown ones are refused with what was probably meant, known ones shown by ``help``.

Used by the dataclasses of options and by the calls that take them as ``**options``. Knows no option by itself.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any, TypeVar

from transept.errors import ParameterError, suggest

Options = TypeVar("Options")
Call = TypeVar("Call", bound=Callable[..., Any])

# Names that openai-whisper, faster-whisper and transformers have, and ours for the same.
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "batch_size": ("max_num_seqs",),
    "beams": ("num_beams",),
    "compute_type": ("quantization", "dtype"),
    "cache_dir": ("model_dir",),
    "cpu_threads": ("num_threads",),
    "download_root": ("model_dir",),
    "fp16": ("dtype",),
    "local_files_only": ("offline",),
    "log_prob_threshold": ("logprob_threshold",),
    "max_length": ("max_tokens",),
    "max_new_tokens": ("max_tokens",),
    "min_new_tokens": ("min_tokens",),
    "threads": ("num_threads",),
    "torch_dtype": ("dtype",),
    "vad_filter": ("vad",),
    "vad_parameters": ("vad_options",),
}


def refuses_unknown(what: str) -> Callable[[type[Options]], type[Options]]:
    """Decorator of a dataclass whose fields are options: made with any other keyword, it raises ParameterError.

    what: begins the message, such as ``"Engine has no option"``. The constructor's signature stays that of the fields.
    """

    def decorate(cls: type[Options]) -> type[Options]:
        make = cls.__init__
        known = [each.name for each in dataclasses.fields(cls)]  # type: ignore[arg-type]  # a dataclass, as said

        @functools.wraps(make)
        def make_known(self: Options, *args: Any, **options: Any) -> None:
            refuse_unknown(what, options, known)
            make(self, *args, **options)

        cls.__init__ = make_known  # type: ignore[method-assign, assignment]
        return cls

    return decorate


def finite(value: Any) -> float:
    """A number as a float; infinity for one that is too large to be one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def made_of(cls: type[Options], what: str, given: Mapping[str, Any]) -> Options:
    """Options from a mapping. Raises ParameterError for names that are unknown or no names; what: as above."""
    refuse_unknown(what, given, [each.name for each in dataclasses.fields(cls)])  # type: ignore[arg-type]
    return cls(**given)


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ParameterError for the first name that is not known, with the nearest or the equivalent one that is."""
    known = list(known)
    for name in given:
        if name not in known:
            meant = [repr(ours) for ours in ELSEWHERE.get(name, ()) if ours in known]
            hint = f" Here that is {' or '.join(meant)}." if meant else suggest(str(name), known)
            raise ParameterError(f"{what} {name!r}.{hint}")


def shows_options(*of: Callable[..., Any], without: Iterable[str] = ()) -> Callable[[Call], Call]:
    """Decorator of a call with ``**options``: its signature, as ``help`` and notebooks show it, names them one by one.

    of: the dataclasses and functions whose keywords the options are. without: those that are not.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)
        shown = {name: each for name, each in signature.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        for taker in of:
            for name, each in inspect.signature(taker).parameters.items():
                if each.kind is not Parameter.VAR_KEYWORD and name not in without:
                    shown.setdefault(name, each.replace(kind=Parameter.KEYWORD_ONLY))
        call.__signature__ = signature.replace(parameters=[*shown.values()])  # type: ignore[attr-defined]
        return call

    return decorate
