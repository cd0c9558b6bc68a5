"""Option: declares an option once. Python, the command line and the server derive its type, bounds, help and names.

A dataclass of options annotates each field ``Annotated[int | None, Option("Beams of the search.", ge=1)]`` and calls
`take_options` in `__post_init__`. `transept.cli` makes its flags from `declared`, and the server reads its forms with
`DeclaredOption.from_text`. This module declares no option itself, and imports neither NumPy nor torch.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeVar

from transept.errors import OPTION, ParameterError, either, shown, suggest
from transept.option_names import (
    Alias,
    by_own_names,
    errors_as_given,
    finite,
    near_value,
    own_keywords,
    refuse_unknown,
)

Options = TypeVar("Options")

MAX_TEMPERATURE = 1e38  # fits into float32, the dtype of logits
MAX_LENGTH_PENALTY = 32.0  # so that a text's length to this power does not overflow a float
MAX_PATIENCE = 1e6  # so that num_beams times patience does not overflow
MAX_INTEGER = 2**31 - 1  # upper bound of counts, such as beams, samples or tokens; far above any model's
MAX_SEED = 2**64 - 1
LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # half of a UTF-16 pair, as in a truncated text
LARGE_BOUND = 100_000
NOTHING = ("none", "null")  # texts that mean None
TRUTHS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True)
class Option:
    """The declaration of an option, in addition to its field's name, type and default.

    help: one line, for ``--help`` and the API's documentation. more: further sentences, for ``help()`` in Python.
    group: heading under which ``--help`` lists the option. metavar: placeholder for its value in ``--help``.
    default: text for the default in ``--help``; None: the value itself, except for a flag and for the value None.
    aliases: other programs' names for it, accepted wherever its own name is; an `Alias` if their values differ.
    flag: name on the command line, in the environment and in settings files, if it differs from the field's name.
    unset: meaning of None in an error, such as "no limit"; "": not mentioned.
    wanted: description of a valid value in an error; "": derived from the type.
    ge, gt, le, lt: bounds of a number.
    parse: converts every accepted form of a value, including text, to the declared type. Receives the option's name and
        the value; raises ParameterError.
    repeats: True if its flag may be given several times, for a list of values.
    also: types that it accepts beyond the declared one, in Python's syntax, for the TypedDicts of calls with keywords.
    """

    help: str
    more: str = ""
    group: str = ""
    metavar: str = ""
    default: str | None = None
    aliases: tuple[str | Alias, ...] = ()
    flag: str = ""
    unset: str = ""
    wanted: str = ""
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    parse: Callable[[str, Any], Any] | None = None
    repeats: bool = False
    also: str = ""


@dataclass(frozen=True)
class DeclaredOption:
    """An option of a dataclass.

    types: of its values, except None. choices: the only words that it accepts; empty: any value. optional: True if None
    is a valid value. kind: the declared type.
    """

    name: str
    option: Option
    types: tuple[type, ...]
    choices: tuple[str, ...]
    optional: bool
    default: Any
    kind: Any = None

    def taken(self, value: Any) -> Any:
        """Validate a value and convert it to the declared type. Raises ParameterError for a bad type or bound."""
        if self.option.parse is not None:
            value = self.option.parse(self.name, value)
        if value is None and self.optional:
            return None
        if self.choices and not isinstance(value, tuple({*self.types} - {str})):
            if not isinstance(value, str) or value not in self.choices:
                raise self._error(value)
            return value
        if bool in self.types:
            if not isinstance(value, bool):
                raise self._error(value)
            return value
        if not isinstance(value, bool) and isinstance(value, Real) and {int, float} & {*self.types}:
            return self._number(value)
        if not isinstance(value, self.types) or isinstance(value, bool):
            raise self._error(value)
        if isinstance(value, str):
            refuse_lone_surrogates(self.name, value)
        return value

    def from_text(self, text: str) -> Any:
        """Parse a text: return None, a number, a boolean, a dict of a JSON object, or the text itself.

        Raises ParameterError if the text is not valid for the option's type. `taken` checks bounds.
        """
        plain = text.strip().lower()
        if self.optional and plain in NOTHING:
            return None
        if text in self.choices or (self.option.parse is not None and not self.is_object):
            return text
        if self.is_object:
            return parts_of(next(filter(_has_options, self.types)), self.name, text, self.option.wanted)
        try:
            if bool in self.types:
                return TRUTHS[plain]
            if int in self.types:
                return int(text)
            if float in self.types:
                return float(text)
        except (ValueError, KeyError):
            raise self._error(text, "true or false" if self.is_flag else "") from None
        return text

    @property
    def aliases(self) -> tuple[Alias, ...]:
        """Other names that the option may be given by."""
        return tuple(Alias(each) if isinstance(each, str) else each for each in self.option.aliases)

    @property
    def is_flag(self) -> bool:
        """True if its values are True and False."""
        return bool in self.types

    @property
    def is_object(self) -> bool:
        """True if its value is a dataclass of options, for which a mapping is also accepted."""
        return any(map(_has_options, self.types))

    def _number(self, value: Any) -> Any:
        whole, option = float not in self.types, self.option
        number = int(value) if whole and isinstance(value, Integral) else finite(value)
        low = -math.inf if option.ge is None else option.ge  # NaN fails the comparison below
        within = (
            low <= number
            and (option.gt is None or number > option.gt)
            and (option.lt is None or number < option.lt)
            and (number < math.inf or option.le == math.inf)
        )
        is_above = option.le is not None and number > option.le
        if not within or (whole and not isinstance(value, Integral)) or (is_above and self._shows_most):
            raise self._error(value)
        if is_above:
            most = option.le if isinstance(option.le, int) else f"{option.le:g}"
            raise ParameterError(
                f"{{{self.name}}} must be at most {most}, not {{{self.name}!}}", param=self.name, value=value
            )
        kind = int if isinstance(value, Integral) else float
        return value if type(value) is kind else kind(value)  # a NumPy scalar becomes Python's

    def _error(self, value: Any, wanted: str = "") -> ParameterError:
        near = near_value(value, self.choices)
        message = f"{{{self.name}}} must be {wanted or self.wanted}, not {{{self.name}!}}{near}"
        return ParameterError(message, param=self.name, value=value)

    @property
    def wanted(self) -> str:
        """Description of a valid value, for an error."""
        if self.option.wanted:
            return self.option.wanted
        if self.choices or self.is_flag:
            return either([*((True, False) if self.is_flag else ()), *self.choices])
        if self.is_object:
            (kind,) = self.types
            return f"{kind.__name__} or a dict of them"
        if {int, float} & {*self.types}:
            return f"{'a number' if float in self.types else 'an integer'}{self._bounds()}"
        return "text"

    @property
    def _shows_most(self) -> bool:
        """True if every error names the upper bound; bounds of LARGE_BOUND or more are named only when exceeded."""
        return self.option.le is not None and self.option.le < LARGE_BOUND

    def _bounds(self) -> str:
        option, parts = self.option, []
        if option.ge is not None:
            parts.append(f"of at least {option.ge:g}")
        if option.gt is not None:
            parts.append(f"above {option.gt:g}")
        if option.lt is not None:
            parts.append(f"below {option.lt:g}")
        if self._shows_most:
            parts.append(f"at most {option.le:g}")
        unset = f", or None for {option.unset}" if option.unset else ""
        return f" {' and '.join(parts)}{unset}" if parts else ""


def declared(cls: Any) -> Mapping[str, DeclaredOption]:
    """Return the options of a dataclass, by name, in the order of its fields."""
    return _declared(cls)


@functools.cache
def _declared(cls: Any) -> Mapping[str, DeclaredOption]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: _declaration(field.name, hints[field.name], field.default) for field in dataclasses.fields(cls)}


def _declaration(name: str, hint: Any, default: Any) -> DeclaredOption:
    option = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option)), Option(""))
    kind = hint.__origin__ if typing.get_origin(hint) is Annotated else hint
    members = members_of(kind)
    choices = tuple(word for each in members if typing.get_origin(each) is Literal for word in typing.get_args(each))
    kinds = [typing.get_origin(each) or each for each in members if each is not type(None)]
    plain = tuple(str if each is Literal else each for each in kinds)
    return DeclaredOption(name, option, plain, choices, type(None) in members, default, kind)


def members_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, which may include NoneType, or the type itself."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)


def _has_options(kind: type) -> bool:
    """True for a dataclass of options, which `declares_options` decorates."""
    return hasattr(kind, "declared_options")


def refuse_lone_surrogates(name: str, text: str, value: Any = None) -> None:
    """Raise ParameterError for a text that UTF-8 cannot encode. name: of the option. value: its whole value."""
    if LONE_SURROGATE.search(text):
        message = f"{{{name}}} holds half a surrogate pair, which is not valid text: {{{name}!}}"
        raise ParameterError(message, param=name, value=text if value is None else value)


def written(each: DeclaredOption) -> str:
    """Return an option's name on the command line, in the environment (in capitals after TRANSEPT_) and in TOML."""
    return each.option.flag or each.name


def take_options(options: Any) -> None:
    """Validate the values of a frozen dataclass of options and convert them to their declared types.

    Called in `__post_init__`. Raises ParameterError for the first value of a wrong type or out of bounds.
    """
    for name, each in declared(type(options)).items():
        object.__setattr__(options, name, each.taken(getattr(options, name)))


def refusal(options: Any, message: str, param: str = "") -> ParameterError:
    """Return a ParameterError. Its message names options of the dataclass in braces.

    param: the option at fault; "": the first one that the message names.
    """
    named = [name for name, *_ in OPTION.findall(message) if name in options.__dataclass_fields__]
    values = {name: getattr(options, name) for name in [*named, *filter(None, [param])]}
    param = param or named[0]
    return ParameterError(message, param=param, value=values[param], others=values)


def parts_of(kind: Any, name: str, text: str, wanted: str = "") -> dict[str, Any]:
    """Return the options of a dataclass in the text ``name=value,...`` or a JSON object.

    name: the option whose value the text is. wanted: description of a valid text. Raises ParameterError.
    """
    found: dict[str, Any] = {}
    try:
        if text.lstrip().startswith(("{", "[")):
            return dict(json.loads(text).items())
        for part in text.split(","):
            key, value = map(str.strip, part.split("="))
            option = declared(kind).get(key.replace("-", "_"))
            found[option.name if option else key] = option.from_text(value) if option else value
    except ParameterError as error:
        raise error.renamed(lambda part: f"{name}.{part}") from None
    except (ValueError, AttributeError, RecursionError):
        message = f"{{{name}}} must be {wanted or 'name=value,... or a JSON object'}, not {shown(text[:100])}"
        raise ParameterError(message, param=name, value=text) from None
    return found


def made_of(kind: type[Options], name: str, given: Any) -> Any:
    """Make a dataclass of options from a mapping, or from a text as in `parts_of`. Return other values unchanged.

    name: the option whose value the mapping is. Raises ParameterError with ``NAME.PART`` as its parameter.
    """
    if isinstance(given, str):
        given = parts_of(kind, name, given)
    if not isinstance(given, Mapping):
        return given
    for part in given:
        if part not in declared(kind):
            message = f"{{{name}}} has no {part!r}.{suggest(str(part), declared(kind))}"
            raise ParameterError(message, param=f"{name}.{part}", value=given[part], others=[name])
    try:
        return kind(**given)
    except ParameterError as error:
        raise error.renamed(lambda part: f"{name}.{part}") from None


def split_options(
    what: str, given: Mapping[str, Any], *kinds: Any, without: Container[str] = ()
) -> tuple[dict[str, Any], ...]:
    """Split keywords by the dataclass of options that declares each: one dict for each of `kinds`. Accepts aliases.

    what: start of the error's message for a keyword that none of them declares. without: options that the message does
    not suggest, because the call refuses them.
    """
    options = [each for kind in kinds for each in declared(kind).values()]
    given, known = by_own_names(given, options), [each.name for each in options]
    names = [*known, *(alias.name for each in options for alias in each.aliases)]
    refuse_unknown(what, [name for name in given if name not in known], [name for name in names if name not in without])
    parts: list[dict[str, Any]] = [{} for _ in kinds]
    for name, value in given.items():
        next(part for kind, part in zip(kinds, parts, strict=True) if name in declared(kind))[name] = value
    return tuple(parts)


def declares_options(what: str) -> Callable[[type[Options]], type[Options]]:
    """Decorate a dataclass whose fields are declared options, so that ``help()`` lists them below its docstring.

    Its constructor takes aliases and raises ParameterError for an unknown keyword. what: start of the message, such as
    ``"Engine has no option"``.
    """

    def decorate(cls: type[Options]) -> type[Options]:
        make, options = cls.__init__, declared(cls)
        names = [*options, *(alias.name for each in options.values() for alias in each.aliases)]

        @functools.wraps(make)
        def make_known(self: Options, *args: Any, **given: Any) -> None:
            refuse_unknown(what, given, names)
            own = own_keywords(dict(zip(options, args, strict=False)), given, options.values())
            with errors_as_given(given, options.values()):
                make(self, *args, **own)

        parameters = [
            each.replace(annotation=options[name].kind) if name in options else each
            for name, each in inspect.signature(make).parameters.items()
        ]
        make_known.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        cls.__init__ = make_known  # type: ignore[method-assign, assignment]
        cls.declared_options = (*options.values(),)  # type: ignore[attr-defined]  # for `shows_options`
        helps = [(name, each.option) for name, each in options.items() if each.option.help]
        if cls.__doc__ is not None and helps:
            listed = (f"    {name}: {option.help}. {option.more}" for name, option in helps)
            cls.__doc__ = cls.__doc__.rstrip() + "\n\n" + "\n".join(line.rstrip() for line in listed) + "\n"
        return cls

    return decorate
