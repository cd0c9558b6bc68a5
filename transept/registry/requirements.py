"""Requirements of a ModelSpec on config.json besides the name of an architecture: `ModelSpec.requires`.

A requirement is a dotted key, such as ``"encoder.model_type"``, and its value, or several valid values: strings,
numbers, True, False, and None for a missing key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transept.errors import shown

Requires = Mapping[str, Any]


def requires_problem(requires: Any) -> str | None:
    """Return the problem with a ModelSpec's `requires`, or None."""
    if not isinstance(requires, Mapping):
        return f'must be a dict, such as {{"decoder.model_type": "mbart"}}, not {type(requires).__name__}'
    for key, required in requires.items():
        if not (isinstance(key, str) and all(key.split("."))):
            return (
                f'has the key {key!r}; write keys of config.json with dots between them, such as "encoder.model_type"'
            )
        values = _values(required)
        if not values or not all(isinstance(value, str | int | float | None) for value in values):
            return f"has {required!r} for {key}; write a string, a number, True, False, None, or a set of these"
    return None


def is_met(requires: Requires, config: Mapping[str, Any]) -> bool:
    """True if a config.json meets the requirements. config: its content."""
    return all(_among(_value_at(config, key), required) for key, required in requires.items())


def can_both_be_met(one: Requires, other: Requires) -> bool:
    """True if one config.json could meet both: unless they require different values of the same key."""
    return all(any(_among(value, other[key]) for value in _values(one[key])) for key in one.keys() & other.keys())


def required_values(requires: Requires) -> dict[str, list[Any]]:
    """Return key -> its valid values, in a fixed order."""
    return {key: _values(required) for key, required in requires.items()}


def in_words(requires: Requires) -> str:
    """Return ``encoder.model_type 'deit' or 'vit' and decoder.model_type 'trocr'``."""
    parts = [f"{key} {' or '.join(map(_shown, _values(required)))}" for key, required in requires.items()]
    return " and ".join(parts)


def found_in_words(requires: Requires, config: Mapping[str, Any]) -> list[str]:
    """Return the value of each required key in a config.json: ``encoder.model_type 'swin'``."""
    return [f"{key} {_shown(_value_at(config, key))}" for key in requires]


def _values(required: Any) -> list[Any]:
    if isinstance(required, set | frozenset):
        return sorted(required, key=_shown)
    return list(required) if isinstance(required, tuple | list) else [required]


def _among(value: Any, required: Any) -> bool:
    """True if a value is one of those required. True differs from 1, as in JSON."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in _values(required))


def _value_at(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None without the key."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _shown(value: Any) -> str:
    return "missing" if value is None else shown(value)
