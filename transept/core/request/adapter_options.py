"""The engine's options of LoRA adapters, and the field by which a request chooses one. No torch here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from transept.errors import ParameterError
from transept.options import Option, refuse_lone_surrogates

MOST_ADAPTERS, MOST_RANK = 1024, 4096


def _adapters(name: str, given: Any) -> Any:
    """Return a dict of names and folders. given: a mapping, or texts ``NAME=PATH``, also as one with commas."""
    if isinstance(given, str):
        given = [part for part in map(str.strip, given.split(",")) if part]
    if isinstance(given, Iterable) and not isinstance(given, Mapping):
        pairs = [str(part).partition("=") for part in given]
        given = {key.strip(): path.strip() if equals else "" for key, equals, path in pairs}
    if not isinstance(given, Mapping):
        return given
    folders = {key: os.fspath(path) if isinstance(path, os.PathLike) else path for key, path in given.items()}
    for key, path in folders.items():
        check_adapter_name(name, key)
        if not isinstance(path, str) or not path:
            message = f"{{{name}}} needs a folder for each name, as NAME=PATH, and {key!r} has {path!r}"
            raise ParameterError(message, param=name, value=given)
    return folders


def check_adapter_name(option: str, name: Any) -> None:
    """Raise ParameterError for a name that is not a text or is empty. option: the option with this name."""
    if not isinstance(name, str) or not name.strip():
        message = f"{{{option}}} must have names that are texts and not empty, not {name!r}. An example is 'legal'"
        raise ParameterError(message, param=option, value=name)
    refuse_lone_surrogates(option, name)


NAMED_ADAPTERS = Option(
    "LoRA adapters that requests may choose by name",
    "Folders that PEFT saved, by the name that a request gives as `lora`.",
    metavar="NAME=PATH",
    default="",
    wanted="a dict of names and folders",
    flag="adapter",
    parse=_adapters,
)
MAX_ADAPTERS = Option(
    "adapters that requests may use at a time",
    "Their factors are beside the weights. Requests with further adapters wait; any number may be loaded by name.",
    metavar="N",
    aliases=("max_loras",),
    ge=1,
    le=MOST_ADAPTERS,
)
MAX_ADAPTER_RANK = Option("largest rank of an adapter", metavar="N", aliases=("max_lora_rank",), ge=1, le=MOST_RANK)
MERGE_ADAPTER = Option(
    "add a LoRA adapter to the weights while they are loaded",
    "A folder that PEFT saved. Every request uses it, at no cost.",
    metavar="PATH",
    wanted="a folder or None",
    parse=lambda _, given: os.fspath(given) if isinstance(given, os.PathLike) else given,
    also="os.PathLike[str]",
)
LORA = Option(
    "LoRA adapter to compute with",
    "A name in the engine's adapters.",
    metavar="NAME",
    default="none",
    wanted="the name of an adapter or None",
)
