"""docs/authoring.md describes `transept.authoring`: all of its names and no other, with their signatures."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from transept import authoring

REFERENCE = (Path(__file__).parents[1] / "docs" / "authoring.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^### `(.*)`$", REFERENCE, re.M)


def test_every_name_has_a_heading_and_no_heading_names_another() -> None:
    assert sorted(HEADINGS) == sorted(authoring.__all__)
    assert len(re.findall("^###", REFERENCE, re.M)) == len(HEADINGS)


@pytest.mark.parametrize("signature", re.findall(r"^### `\w+`\n\n`(\w+\(.*?\)(?: -> [^`]*)?)`", REFERENCE, re.M | re.S))
def test_signatures_are_those_of_the_code(signature: str) -> None:
    (function,) = ast.parse(f"def {signature}: ...").body
    arguments = function.args
    documented = {argument.arg: None for argument in (*arguments.args, *arguments.kwonlyargs)}
    defaults = zip(reversed(arguments.args), reversed(arguments.defaults), strict=False)
    for argument, default in (*defaults, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
        documented[argument.arg] = default and ast.unparse(default)
    if arguments.kwarg:
        documented[arguments.kwarg.arg] = None
    parameters = inspect.signature(getattr(authoring, function.name)).parameters.values()
    real = {each.name: None if each.default is each.empty else repr(each.default) for each in parameters}
    assert list(documented.items()) == list(real.items())


def section(name: str) -> str:
    """What the page says of a name."""
    return re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", REFERENCE, re.M | re.S)[1]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in authoring.__all__
        if dataclasses.is_dataclass(getattr(authoring, name)) and name != "AttentionMetadata"  # nobody reads it
    ],
)
def test_every_field_is_described(name: str) -> None:
    written = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", section(name)))))
    fields = {field.name for field in dataclasses.fields(getattr(authoring, name)) if not field.name.startswith("_")}
    assert fields - written == set()
