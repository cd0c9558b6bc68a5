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

from transept.errors import ParameterError, nearest, suggest
from transept.names_elsewhere import ANSWERS, ELSEWHERE, NOTES

Options = TypeVar("Options")
Call = TypeVar("Call", bound=Callable[..., Any])

SHORTEST_MISSPELT = 5  # letters of another program's option that may be misspelt: short ones are near to many words
MOST_LETTERS_MORE = 2  # or fewer, in such a misspelling


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
            raise ParameterError(f"{what} {name!r}.{hint(str(name), known) or suggest(str(name), known)}")


def refuse_misplaced(given: Iterable[str], known: Iterable[str], others: Iterable[str], where: str) -> None:
    """Raise ParameterError for the first name that is not known, but an option of another call, or stands for one.

    where: what to call, with NAME for the option, such as ``"Transcriber(model, NAME=...)"``.
    """
    known, others = list(known), list(others)
    for name in given:
        stands_for = ELSEWHERE.get(name, ())
        if name not in known and not any(ours in known for ours in stands_for):
            for ours in (name, *stands_for):
                if ours in others:
                    raise ParameterError(f"{name} is not set here, but by {where.replace('NAME', ours)}")


def hint(name: str, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """The tail of a message about an unknown option: what other programs mean by it, or what was probably meant.

    known: the names that there are. shown: how one of them is written. Empty where nothing is near.
    """
    known, plain = list(known), name.lower().replace("-", "_")
    if meant := [shown(ours) for ours in ELSEWHERE.get(plain, ()) if ours in known]:
        return f" Here that is {' or '.join(meant)}.{_note(plain)}"
    if plain in ANSWERS:
        return f" {ANSWERS[plain]}"
    if near := nearest(name, known):
        return f" Did you mean {shown(near)}?"
    if plain in ELSEWHERE:
        return ""
    theirs = {other: ours for other, meant in ELSEWHERE.items() for ours in reversed(meant) if ours in known}
    misspelt = nearest(name, theirs) or ""
    if len(misspelt) >= SHORTEST_MISSPELT and abs(len(misspelt) - len(plain)) <= MOST_LETTERS_MORE:
        return f" Did you mean {shown(theirs[misspelt])}?{_note(misspelt)}"
    return ""


def _note(name: str) -> str:
    """The tail of a hint: how another program's option counts differently, if it does."""
    return f" {NOTES[name]}" if name in NOTES else ""


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
