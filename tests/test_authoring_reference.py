"""The reference of `transept.authoring` is made from docstrings: they describe every name, field and argument."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from pathlib import Path

import pytest

from transept import authoring

CLASSES = [name for name in authoring.__all__ if inspect.isclass(getattr(authoring, name))]
DATACLASSES = [name for name in CLASSES if dataclasses.is_dataclass(getattr(authoring, name))]
PRIVATE = {"AttentionMetadata": {"block_size", "plan"}}  # fields that only the engine and its backends use


def words(name: str) -> set[str]:
    return set(re.findall(r"\w+", inspect.getdoc(getattr(authoring, name)) or ""))


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_and_method_has_a_docstring(name: str) -> None:
    found = getattr(authoring, name)
    assert found.__doc__
    methods = {
        method: getattr(each, "__func__", getattr(each, "fget", each))
        for method, each in vars(found).items()
        if not method.startswith("_") and isinstance(each, staticmethod | classmethod | property)
    }
    methods |= {method: each for method, each in vars(found).items() if inspect.isfunction(each) and method[0] != "_"}
    assert [method for method, each in methods.items() if not each.__doc__] == []


@pytest.mark.parametrize("name", DATACLASSES)
def test_a_dataclass_describes_every_field(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(getattr(authoring, name)) if not field.name.startswith("_")}
    assert fields - PRIVATE.get(name, set()) - words(name) == set()


def test_an_enum_describes_every_member() -> None:
    for name in CLASSES:
        if issubclass(getattr(authoring, name), enum.Enum):
            assert set(getattr(authoring, name).__members__) - words(name) == set()


@pytest.mark.parametrize("name", ["hookimpl", "AttentionBias"])
def test_a_value_has_a_docstring_in_its_module(name: str) -> None:
    sources = Path(inspect.getsourcefile(authoring)).parent.rglob("*.py")
    assert any(re.search(rf'^{name}\b.* = .*\n"""', source.read_text(encoding="utf-8"), re.M) for source in sources)
