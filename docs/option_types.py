"""Writes the TypedDicts that public calls unpack (PEP 692), from the declarations of options: `make option-types`."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import json
import operator
import re
import typing
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transept.compat.whisper import Whisper
from transept.core.config import EngineConfig
from transept.core.request.limits import Limits
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import WITHOUT_RESULT
from transept.multimodal.audio_limits import AudioLimits
from transept.options import declared, members_of
from transept.speech.live_options import NOT_OF_LIVE, LiveOptions
from transept.speech.options import NOT_OF_ALIGNMENT, TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.vad.options import VadOptions
from transept.text.options import EmbeddingOptions, ScoringOptions, TextOptions, TranslationOptions
from transept.vision.options import ReadingOptions

PACKAGE = Path(__file__).parent.parent / "transept"
HEAD = '''"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

'''
LINE = 120


@dataclass(frozen=True)
class Keywords:
    """A TypedDict. about: what its options are of. kind: the class that declares its keys. bases: its base classes.

    without: options of `kind` that are not its keys.
    """

    name: str
    about: str
    kind: Any = None
    bases: tuple[str, ...] = ()
    without: Collection[str] = ()

    @property
    def options(self) -> list[str]:
        """Names of the options that it adds to its bases."""
        return [] if self.kind is None else [name for name in declared(self.kind) if name not in self.without]


def _with_engine(name: str, about: str, tasks: str) -> Keywords:
    return Keywords(name, f"{about} and of its engine", bases=(tasks, "EngineKeywords"))


FILES = {
    "multimodal": (Keywords("AudioLimitKeywords", "AudioLimits", AudioLimits),),
    "core": (
        Keywords("LimitKeywords", "Limits", Limits),
        Keywords("EngineKeywords", "an Engine", EngineConfig, without=["model"]),
    ),
    "core/request": (
        Keywords(
            "SingleTextKeywords",
            "SamplingParams for a call that returns one text",
            SamplingParams,
            without=WITHOUT_RESULT,
        ),
        Keywords(
            "SamplingKeywords",
            "SamplingParams",
            SamplingParams,
            bases=("SingleTextKeywords",),
            without=set(declared(SamplingParams)) - {*WITHOUT_RESULT},
        ),
    ),
    "speech": (
        Keywords("VadKeywords", "VadOptions", VadOptions),
        Keywords("SubtitleKeywords", "SubtitleLayout", SubtitleLayout),
        Keywords("AlignmentKeywords", "a forced alignment", TranscriptionOptions, without=NOT_OF_ALIGNMENT),
        Keywords(
            "TranscriptionKeywords",
            "a transcription",
            TranscriptionOptions,
            bases=("AlignmentKeywords",),
            without=set(declared(TranscriptionOptions)) - {*NOT_OF_ALIGNMENT},
        ),
        Keywords("LiveOptionKeywords", "LiveOptions", LiveOptions),
        Keywords(
            "LiveKeywords",
            "a live transcription",
            TranscriptionOptions,
            bases=("LiveOptionKeywords",),
            without=NOT_OF_LIVE,
        ),
        _with_engine("TranscriptionAndEngineKeywords", "a transcription", "TranscriptionKeywords"),
    ),
    "text": (
        Keywords("TextKeywords", "a text task", TextOptions, ("SingleTextKeywords",)),
        Keywords(
            "TranslationKeywords", "a translation", TranslationOptions, ("TextKeywords",), declared(TextOptions).keys()
        ),
        Keywords("ScoringKeywords", "a score", ScoringOptions, without=["chunk", "decoder_prompt"]),
        _with_engine("ScoringAndEngineKeywords", "a score", "ScoringKeywords"),
        Keywords("EmbeddingKeywords", "an embedding", EmbeddingOptions, without=["chunk", "decoder_prompt"]),
        _with_engine("EmbeddingAndEngineKeywords", "an embedding", "EmbeddingKeywords"),
        _with_engine("TextAndEngineKeywords", "a text task", "TextKeywords"),
        _with_engine("TranslationAndEngineKeywords", "a translation", "TranslationKeywords"),
    ),
    "compat": (
        Keywords(
            "FasterWhisperKeywords",
            "a transcription in faster-whisper's interface",
            TranscriptionOptions,
            without=("language", "task", "batch_size"),
        ),
        Keywords(
            "OpenaiWhisperKeywords",
            "a transcription in openai-whisper's interface, without those in its signature",
            TranscriptionOptions,
            without=inspect.signature(Whisper.transcribe).parameters.keys(),
        ),
    ),
    "vision": (
        Keywords("ReadingKeywords", "reading images", ReadingOptions, ("SingleTextKeywords",)),
        _with_engine("ReadingAndEngineKeywords", "reading images", "ReadingKeywords"),
    ),
}
MADE_OF = {each.kind: each.name for file in FILES.values() for each in file if not each.bases}
HOMES = {
    each.name: f"transept.{folder.replace('/', '.')}.option_types" for folder, file in FILES.items() for each in file
}


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
        if module != HOMES[FILES[folder][0].name]:
            groups.get(module.partition(".")[0], groups["standard"]).append(line)
    return HEAD + "\n\n".join("\n".join(group) for group in groups.values() if group) + "\n\n\n" + "\n\n".join(classes)


def _class(each: Keywords, imports: dict[str, str]) -> Iterator[str]:
    bases = each.bases or ("TypedDict",)
    imports.update((base, HOMES.get(base, "typing")) for base in bases)
    yield f"class {each.name}({', '.join(bases)}, total=False):"
    yield f'    """The options of {each.about}."""'
    if each.options:
        yield ""
    aliases: dict[str, list[str]] = {}
    for name in each.options:
        option = declared(each.kind)[name]
        parts = _parts(option.kind, option.option.also, imports)
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
    """Return the members of a union: those of the declared type, and `also`."""
    given = [_source(each, imports) for each in members_of(hint)]
    for name in re.findall(r"\b[a-zA-Z_.]+\b", also):
        module, _, _ = name.rpartition(".")
        if module:
            imports[module] = module
        elif not hasattr(builtins, name):
            imports[name] = "typing" if name == "Any" else "collections.abc"
    every = list(dict.fromkeys([*given, *(also.split(" | ") if also else [])]))
    return [*(each for each in every if each != "None"), *(["None"] if "None" in every else [])]


def _type_of(values: Iterable[Any]) -> Any:
    """Return the type of an alias that has its own values."""
    words = tuple(value for value in values if isinstance(value, str))
    kinds = dict.fromkeys(type(value) for value in values if not isinstance(value, str))
    return functools.reduce(operator.or_, kinds, Literal[words]) if words else functools.reduce(operator.or_, kinds)


def _source(hint: Any, imports: dict[str, str]) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is type(None) or hint is Ellipsis:
        return "..." if hint is Ellipsis else "None"
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
