"""Resolve the names of options: accept aliases, and refuse unknown names with a suggestion.

Used by the dataclasses of options and by the calls that take them as ``**options``. Declares no option itself.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Protocol, TypeVar, cast

from transept.errors import OPTION, ParameterError, TranseptError, either, nearest, suggest

Call = TypeVar("Call", bound=Callable[..., Any])

SHORTEST_MISSPELT = 5  # letters; shorter names are similar to many words, so no typo of them is corrected
MOST_LISTED = 25  # names in the message about an unknown one
MOST_LETTERS_MORE = 2  # difference in length between such a name and a typo of it


@dataclass(frozen=True)
class Alias:
    """Another program's name for an option.

    values: maps each of its values to the option's value; None leaves the option unchanged. Without `values`, the alias
    takes the option's own values. convert: function from its value to the option's. help: of its flag; by default,
    ``--help`` omits it.
    """

    name: str
    values: Mapping[Any, Any] | None = None
    convert: Callable[[Any], Any] | None = None
    help: str = ""

    def read(self, value: Any) -> Any:
        """Return the option's value. Raises ParameterError for a value that the alias does not have."""
        if self.values is None:
            return value if self.convert is None else self.convert(value)
        try:
            return self.values[value]
        except (KeyError, TypeError):
            message = (
                f"{{{self.name}}} must be {either(self.values)}, not {{{self.name}!}}{near_value(value, self.values)}"
            )
            raise ParameterError(message, param=self.name, value=value) from None

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


def own_keywords(positional: Mapping[str, Any], given: Mapping[str, Any], options: Iterable[Named]) -> dict[str, Any]:
    """Return a call's keywords as `by_own_names` does. positional: its other arguments, which no alias may repeat."""
    found = by_own_names({**positional, **given}, options)
    return {name: value for name, value in found.items() if name in given or name not in positional}


def aliases_in(given: Container[str], options: Iterable[Named]) -> dict[str, str]:
    """Map options to the aliases by which they are given. Omits aliases with separate values."""
    pairs = ((each.name, alias) for each in options for alias in each.aliases)
    return {name: alias.name for name, alias in pairs if alias.name in given and alias.values is None}


@contextlib.contextmanager
def errors_as_given(
    given: Container[str], options: Iterable[Named], renamed: Mapping[str, str] | None = None
) -> Iterator[None]:
    """In errors from the body, replace names of options with those that the caller used.

    renamed: names that the call takes besides the aliases -> the options that they set.
    """
    try:
        yield
    except TranseptError as error:
        others = {own: name for name, own in (renamed or {}).items() if name in given}
        if not (spelt := aliases_in(given, options) | others):
            raise
        raise error.spelling(spelt) from error.__cause__


def near_value(value: Any, known: Iterable[Any]) -> str:
    """Return the end of a message about a wrong value: the nearest valid word, or nothing."""
    near = nearest(value, (each for each in known if isinstance(each, str))) if isinstance(value, str) else None
    return f'. Did you mean "{near}"?' if near else ""


def finite(value: Any) -> float:
    """Return a number as a float; infinity if it is too large for a float."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ParameterError for the first unknown name. The message suggests the equivalent or nearest known name."""
    known = list(known)
    for name in given:
        if name not in known:
            listed = f" docs/options.md lists all {len(known)} names." if len(known) > MOST_LISTED else ""
            message = f"{what} {name!r}.{hint(str(name), known) or listed or suggest(str(name), known)}"
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
        sentence = SENTENCES.get((theirs, ours), "")
        text = OPTION.sub(lambda found: shown(found[1]) if found[1] in known else found[1], sentence)
        return text and f" {text}"

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
        arguments = [name for name, each in signature.parameters.items() if each.kind is not Parameter.VAR_KEYWORD]
        shown = {name: each for name, each in signature.parameters.items() if each.kind is not Parameter.VAR_KEYWORD}
        for taker in of:
            for name, each in inspect.signature(taker).parameters.items():
                if each.kind is not Parameter.VAR_KEYWORD and name not in without:
                    shown.setdefault(name, each.replace(kind=Parameter.KEYWORD_ONLY))

        known = {*shown, *(alias.name for each in options for alias in each.aliases)}

        def own(args: tuple[Any, ...], given: Mapping[str, Any]) -> dict[str, Any]:
            for name in given:
                if name not in known and hint(name, known) in (f" Did you mean {each!r}?" for each in arguments):
                    raise ParameterError(f"{call.__name__} has no argument {name!r}.{hint(name, known)}", param=name)
            return own_keywords(dict(zip(arguments, args, strict=False)), given, options)

        def by_names(*args: Any, **given: Any) -> Any:
            keywords = own(args, given)
            with errors_as_given(given, options):
                return call(*args, **keywords)

        async def by_names_async(*args: Any, **given: Any) -> Any:
            keywords = own(args, given)
            with errors_as_given(given, options):
                return await call(*args, **keywords)

        found: Any = functools.wraps(call)(by_names_async if inspect.iscoroutinefunction(call) else by_names)
        found.__signature__ = signature.replace(parameters=[*shown.values()])
        found.declared_options = options
        return cast("Call", found)

    return decorate
