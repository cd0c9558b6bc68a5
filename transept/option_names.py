"""Resolve the names of options: accept aliases, and refuse unknown names with a suggestion.

Used by the dataclasses of options and by the calls that take them as ``**options``. Declares no option itself.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Protocol, TypeVar, cast

from transept.errors import ParameterError, nearest, shown, suggest

Options = TypeVar("Options")
Call = TypeVar("Call", bound=Callable[..., Any])

SHORTEST_MISSPELT = 5  # letters; shorter names are similar to many words, so no typo of them is corrected
MOST_LETTERS_MORE = 2  # difference in length between such a name and a typo of it


@dataclass(frozen=True)
class Alias:
    """Another program's name for an option.

    values: maps each of its values to the option's value; None leaves the option as it is. Without `values`, the alias
    takes the option's own values.
    """

    name: str
    values: Mapping[Any, Any] | None = None

    def read(self, value: Any) -> Any:
        """Return the option's value. Raises ParameterError for a value that the alias does not have."""
        if self.values is None:
            return value
        try:
            return self.values[value]
        except (KeyError, TypeError):
            known = ", ".join(map(str, self.values))
            raise ParameterError(
                f"{{{self.name}}} must be one of {known}, not {shown(value)}", param=self.name, value=value
            ) from None

    def from_text(self, text: str) -> Any:
        """Parse a text to one of the alias's own `values`. Raises ParameterError for any other text."""
        assert self.values is not None
        texts = {str(value).lower(): value for value in self.values}
        value = texts.get(text.strip().lower(), text)
        self.read(value)
        return value


class Named(Protocol):
    """A `transept.options.DeclaredOption`."""

    @property
    def name(self) -> str:
        """The option's own name."""

    @property
    def aliases(self) -> tuple[Alias, ...]:
        """Other names that the option may be given by."""


def by_own_names(given: Mapping[str, Any], options: Iterable[Named]) -> dict[str, Any]:
    """Return keywords with aliases replaced by the options' own names.

    An alias may stand for several options, each of which takes its part of the value. Raises ParameterError if an
    option is given twice.
    """
    found, spelt = dict(given), dict[str, str]()
    for option in options:
        for alias in option.aliases:
            if alias.name not in given:
                continue
            found.pop(alias.name, None)
            value = alias.read(given[alias.name])
            if value is None and alias.values is not None:
                continue
            if option.name in found:
                other = spelt.get(option.name, option.name)
                raise ParameterError(
                    f"{{{other}}} and {{{alias.name}}} are the same option: give one of them",
                    param=other,
                    value=given[other],
                    others={alias.name: given[alias.name]},
                )
            found[option.name], spelt[option.name] = value, alias.name
    return found


def refuses_unknown(what: str) -> Callable[[type[Options]], type[Options]]:
    """Decorate a dataclass of options, so that its constructor raises ParameterError for an unknown keyword.

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
    """Return a number as a float; infinity if it is too large for a float."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def made_of(cls: type[Options], what: str, given: Mapping[str, Any]) -> Options:
    """Make options from a mapping. Raises ParameterError for an unknown name. what: see `refuses_unknown`."""
    refuse_unknown(what, given, [each.name for each in dataclasses.fields(cls)])  # type: ignore[arg-type]
    return cls(**given)


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ParameterError for the first unknown name. The message suggests the equivalent or nearest known name."""
    known = list(known)
    for name in given:
        if name not in known:
            message = f"{what} {name!r}.{hint(str(name), known) or suggest(str(name), known)}"
            raise ParameterError(message, param=str(name))


def refuse_misplaced(given: Iterable[str], known: Mapping[str, Named], others: Mapping[str, Named], where: str) -> None:
    """Raise ParameterError for the first unknown name that is, or stands for, an option of another call.

    where: the other call, with NAME in place of the option, such as ``"Transcriber(model, NAME=...)"``.
    """
    from transept.foreign_options import ELSEWHERE

    aliases = {alias.name: name for name, each in others.items() for alias in each.aliases}
    for name in given:
        stands_for = (aliases[name],) if name in aliases else ELSEWHERE.get(name, ())
        if name not in known and not any(ours in known for ours in stands_for):
            for ours in (name, *stands_for):
                if ours in others:
                    message = f"{name} is not set here, but by {where.replace('NAME', ours)}"
                    raise ParameterError(message, param=name)


def hint(name: str, known: Iterable[str], shown: Callable[[str], str] = repr) -> str:
    """Return the end of a message about an unknown option: our name for another program's option, or the nearest name.

    known: the valid names. shown: formats one of them. Empty if no name is near.
    """
    from transept.foreign_options import ELSEWHERE, SENTENCES

    known, dashes = list(known), "-" if name.startswith("-") else ""
    plain = dashes + name.lower().replace("-", "_").lstrip("_")

    def note(theirs: str, ours: str) -> str:
        return f" {SENTENCES[theirs, ours]}" if (theirs, ours) in SENTENCES else ""

    if ours := next((each for each in ELSEWHERE.get(plain, ()) if each in known), None):
        return f" Here that is {shown(ours)}.{note(plain, ours)}"
    if (plain, "") in SENTENCES:
        return note(plain, "")
    if dashes:
        return ""
    if near := nearest(name, known):
        return f" Did you mean {shown(near)}?"
    if plain in ELSEWHERE:
        return ""
    found = ((theirs, each) for theirs, ours in ELSEWHERE.items() for each in ours if each in known)
    meant = {theirs: ours for theirs, ours in found if not theirs.startswith("-")}
    misspelt = nearest(name, meant) or ""
    if len(misspelt) >= SHORTEST_MISSPELT and abs(len(misspelt) - len(plain)) <= MOST_LETTERS_MORE:
        return f" Did you mean {shown(meant[misspelt])}?{note(misspelt, meant[misspelt])}"
    return ""


def shows_options(*of: Callable[..., Any], without: Iterable[str] = ()) -> Callable[[Call], Call]:
    """Decorate a call with ``**options``, so that ``help`` and notebooks show a signature that names each option.

    The call receives options under their own names, even if they were given by aliases. of: the dataclasses and
    functions whose keywords the options are. without: keywords of theirs that are not options of this call.
    """
    options: list[Named] = [each for taker in of for each in getattr(taker, "declared_options", ())]

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)
        shown = {name: each for name, each in signature.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        for taker in of:
            for name, each in inspect.signature(taker).parameters.items():
                if each.kind is not Parameter.VAR_KEYWORD and name not in without:
                    shown.setdefault(name, each.replace(kind=Parameter.KEYWORD_ONLY))

        @functools.wraps(call)
        def by_names(*args: Any, **given: Any) -> Any:
            return call(*args, **by_own_names(given, options))

        found: Any = by_names
        found.__signature__ = signature.replace(parameters=[*shown.values()])
        found.declared_options = options
        return cast("Call", found)

    return decorate
