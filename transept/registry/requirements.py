"""What a ModelSpec requires of a config.json beside the name of an architecture: `ModelSpec.requires`, read here.

A requirement is a dotted key, such as ``"encoder.model_type"``, and the value, or the several values, one of which
config.json has there: texts, numbers, true or false, and None for a key that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transept.errors import shown

Requires = Mapping[str, Any]


def requires_problem(requires: Any) -> str | None:
    """What is wrong with a ModelSpec's `requires`, or None."""
    if not isinstance(requires, Mapping):
        return f'must be a dict, such as {{"decoder.model_type": "mbart"}}, not {type(requires).__name__}'
    for key, required in requires.items():
        if not (isinstance(key, str) and all(key.split("."))):
            return (
                f'has the key {key!r}; write keys of config.json with dots between them, such as "encoder.model_type"'
            )
        values = _values(required)
        if not values or not all(isinstance(value, str | int | float | None) for value in values):
            return f"wants {key} to be {required!r}; write a text, a number, True, False, None, or a set of such"
    return None


def is_met(requires: Requires, config: Mapping[str, Any]) -> bool:
    """Whether a config.json has what is required. config: as read."""
    return all(_among(_value_at(config, key), required) for key, required in requires.items())


def can_both_be_met(one: Requires, other: Requires) -> bool:
    """Whether a config.json could have what each of two requires: unless they want other values of the same key."""
    return all(any(_among(value, other[key]) for value in _values(one[key])) for key in one.keys() & other.keys())


def required_values(requires: Requires) -> dict[str, list[Any]]:
    """Key -> the values that it may have, in a fixed order."""
    return {key: _values(required) for key, required in requires.items()}


def in_words(requires: Requires) -> str:
    """``encoder.model_type 'deit' or 'vit' and decoder.model_type 'trocr'``."""
    parts = [f"{key} {' or '.join(map(_shown, _values(required)))}" for key, required in requires.items()]
    return " and ".join(parts)


def found_in_words(requires: Requires, config: Mapping[str, Any]) -> list[str]:
    """For each required key what a config.json has there: ``encoder.model_type 'swin'``."""
    return [f"{key} {_shown(_value_at(config, key))}" for key in requires]


def _values(required: Any) -> list[Any]:
    if isinstance(required, set | frozenset):
        return sorted(required, key=_shown)
    return list(required) if isinstance(required, tuple | list) else [required]


def _among(value: Any, required: Any) -> bool:
    """True is no 1 here, as in JSON."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in _values(required))


def _value_at(config: Mapping[str, Any], key: str) -> Any:
    """None where there is no such key."""
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _shown(value: Any) -> str:
    return "missing" if value is None else shown(value)
