"""Writes the TypedDicts that public calls unpack (PEP 692), from the declarations of options: `make option-types`."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import json
import operator
import re
import types
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from transept.core.config import EngineConfig
from transept.core.request.limits import Limits
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import WITHOUT_RESULT
from transept.options import declared
from transept.speech.options import NOT_OF_ALIGNMENT, TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.vad.options import VadOptions
from transept.text.options import TextOptions, TranslationOptions
from transept.vision.options import ReadingOptions

PACKAGE = Path(__file__).parent.parent / "transept"
HEAD = '''"""Types of the keywords of public calls, for type checkers and editors; nothing imports them as it runs.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

'''
LINE = 120


@dataclass(frozen=True)
class Keywords:
    """One TypedDict. of: declares its keys. bases: TypedDicts that it takes over. without: options that it lacks."""

    name: str
    about: str
    of: Any = None
    bases: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()

    @property
    def options(self) -> list[str]:
        """Names of its own options."""
        return [] if self.of is None else [name for name in declared(self.of) if name not in self.without]


FILES = {
    "core": (
        Keywords("LimitKeywords", "The options of Limits.", Limits),
        Keywords("EngineKeywords", "The options of an Engine.", EngineConfig, without=frozenset({"model"})),
        Keywords(
            "SingleTextKeywords",
            "The options of SamplingParams that a call with one text as its result takes.",
            SamplingParams,
            without=frozenset(WITHOUT_RESULT),
        ),
    ),
    "speech": (
        Keywords("VadKeywords", "The options of VadOptions.", VadOptions),
        Keywords("SubtitleKeywords", "The options of SubtitleLayout.", SubtitleLayout),
        Keywords(
            "AlignmentKeywords",
            "The options of a forced alignment.",
            TranscriptionOptions,
            without=frozenset(NOT_OF_ALIGNMENT),
        ),
        Keywords(
            "TranscriptionKeywords",
            "The options of a transcription.",
            TranscriptionOptions,
            ("AlignmentKeywords",),
            frozenset(declared(TranscriptionOptions)) - {*NOT_OF_ALIGNMENT},
        ),
        Keywords(
            "TranscriptionAndEngineKeywords",
            "The options of a transcription with an engine of its own.",
            bases=("TranscriptionKeywords", "EngineKeywords"),
        ),
    ),
    "text": (
        Keywords("TextKeywords", "The options of a text task.", TextOptions, ("SingleTextKeywords",)),
        Keywords(
            "TranslationKeywords",
            "The options of a translation.",
            TranslationOptions,
            ("TextKeywords",),
            frozenset(declared(TextOptions)),
        ),
        Keywords(
            "TextAndEngineKeywords",
            "The options of a text task with an engine of its own.",
            bases=("TextKeywords", "EngineKeywords"),
        ),
        Keywords(
            "TranslationAndEngineKeywords",
            "The options of a translation with an engine of its own.",
            bases=("TranslationKeywords", "EngineKeywords"),
        ),
    ),
    "vision": (
        Keywords("ReadingKeywords", "The options of reading images.", ReadingOptions, ("SingleTextKeywords",)),
        Keywords(
            "ReadingAndEngineKeywords",
            "The options of reading images with an engine of its own.",
            bases=("ReadingKeywords", "EngineKeywords"),
        ),
    ),
}
MADE_OF = {each.of: each.name for file in FILES.values() for each in file if not each.bases and each.of is not None}
HOMES = {each.name: f"transept.{folder}.option_types" for folder, file in FILES.items() for each in file}


def main() -> None:
    """Write the files."""
    for path, text in files().items():
        path.write_text(text)


def files() -> dict[Path, str]:
    """Return the text of each file."""
    return {PACKAGE / folder / "option_types.py": _text(folder) for folder in FILES}


def _text(folder: str) -> str:
    imports: dict[str, str] = {}  # name -> module
    classes = ["".join(f"{line}\n" for line in _class(each, imports)) for each in FILES[folder]]
    groups: dict[str, list[str]] = {"standard": [], "torch": [], "transept": []}
    for module in sorted({*imports.values()}, key=lambda module: (module not in imports, module)):
        names = ", ".join(sorted(name for name, home in imports.items() if home == module))
        line = f"import {module}" if module in imports else f"from {module} import {names}"
        if module != f"transept.{folder}.option_types":
            groups.get(module.partition(".")[0], groups["standard"]).append(line)
    return HEAD + "\n\n".join("\n".join(group) for group in groups.values() if group) + "\n\n\n" + "\n\n".join(classes)


def _class(each: Keywords, imports: dict[str, str]) -> Iterator[str]:
    bases = each.bases or ("TypedDict",)
    imports.update((base, HOMES.get(base, "typing")) for base in bases)
    yield f"class {each.name}({', '.join(bases)}, total=False):"
    yield f'    """{each.about}"""'
    if each.options:
        yield ""
    hints = typing.get_type_hints(each.of, include_extras=True) if each.options else {}
    aliases: dict[str, list[str]] = {}
    for name in each.options:
        option = declared(each.of)[name]
        parts = _parts(hints[name], option.option.also, imports)
        yield from _field(name, parts)
        for alias in option.aliases:
            of_alias = parts if alias.values is None else _parts(_type_of(alias.values), "", imports)
            aliases[alias.name] = list(dict.fromkeys([*aliases.get(alias.name, []), *of_alias]))
    for name, parts in aliases.items():
        yield from _field(name, parts)


def _field(name: str, parts: list[str]) -> list[str]:
    line = f"    {name}: {' | '.join(parts)}"
    if len(line) <= LINE:
        return [line]
    if len(parts) > 1:
        return [f"    {name}: (", f"        {' | '.join(parts)}", "    )"]
    outer, _, inner = parts[0].partition("[")
    return [f"    {name}: {outer}[", f"        {inner.removesuffix(']')}", "    ]"]


def _parts(hint: Any, also: str, imports: dict[str, str]) -> list[str]:
    """Return the members of a union: of the declared type, and of what `parse` accepts besides."""
    given = [_source(each, imports) for each in _members(hint)]
    for name in re.findall(r"\b[a-zA-Z_.]+\b", also):
        module, _, _ = name.rpartition(".")
        if module:
            imports[module] = module
        elif not hasattr(builtins, name):
            imports[name] = "typing" if name == "Any" else "collections.abc"
    every = list(dict.fromkeys([*given, *(also.split(" | ") if also else [])]))
    return [*(each for each in every if each != "None"), *(["None"] if "None" in every else [])]


def _type_of(values: Iterable[Any]) -> Any:
    """Return the type of an alias that has values of its own."""
    words = tuple(value for value in values if isinstance(value, str))
    kinds = dict.fromkeys(type(value) for value in values if not isinstance(value, str))
    return functools.reduce(operator.or_, kinds, Literal[words]) if words else functools.reduce(operator.or_, kinds)


def _members(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is Annotated:
        return _members(typing.get_args(hint)[0])
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _source(hint: Any, imports: dict[str, str]) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None):
        return "None"
    if origin is Literal:
        imports["Literal"] = "typing"
        return f"Literal[{', '.join(json.dumps(word) for word in arguments)}]"
    if hint is Any or isinstance(hint, list):
        imports["Any"] = "typing"
        return "Any" if hint is Any else f"[{', '.join(_source(each, imports) for each in hint)}]"
    if origin is not None:
        several = origin is tuple and arguments[-1:] == (...,)  # lists are accepted as well
        name = "Sequence" if several else origin.__name__
        if not hasattr(builtins, name):
            imports[name] = "collections.abc"
        inner = [" | ".join(_parts(each, "", imports)) for each in (arguments[:1] if several else arguments)]
        return f"{name}[{', '.join(inner)}]"
    if not hasattr(builtins, hint.__name__):
        imports[hint.__name__] = hint.__module__
    if dataclasses.is_dataclass(hint) and hint in MADE_OF:
        imports[MADE_OF[hint]] = HOMES[MADE_OF[hint]]
        return f"{hint.__name__} | {MADE_OF[hint]}"
    return hint.__name__


if __name__ == "__main__":
    main()
