"""Unknown options of the classes that hold a user's settings: refused with what was probably meant.

Used by the dataclasses of options, and where a call takes the options of two of them. Knows no option by itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from transept.errors import ParameterError, suggest

Options = TypeVar("Options")

ELSEWHERE: Mapping[str, str] = {  # names that openai-whisper, faster-whisper and transformers have for options of ours
    "beams": "num_beams",
    "compute_type": "quantization",
    "cpu_threads": "num_threads",
    "fp16": "dtype",
    "log_prob_threshold": "logprob_threshold",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "min_new_tokens": "min_tokens",
    "threads": "num_threads",
    "torch_dtype": "dtype",
    "vad_filter": "vad",
    "vad_parameters": "vad_options",
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


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ParameterError for the first name that is not known, with the nearest or the equivalent one that is."""
    known = list(known)
    for name in given:
        if name not in known:
            meant = ELSEWHERE.get(name)
            hint = f" Here it is called {meant!r}." if meant in known else suggest(name, known)
            raise ParameterError(f"{what} {name!r}.{hint}")
