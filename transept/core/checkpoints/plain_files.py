"""PlainFiles: config.json and generation_config.json of a Hugging Face checkpoint, read without transformers.

Families declare the contents of their files; `hf_configs` reads them. For contents that transformers would refuse,
convert or process further, functions here return None, and transformers reads the file. So results and errors are the
same either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import torch

from transept.core.checkpoints.checkpoint import Checkpoint
from transept.registry.checkpoint_view import GENERATION_SETTINGS
from transept.registry.plain_config import PlainConfig

if TYPE_CHECKING:
    from transept.core.checkpoints.plain_tokenizer import PlainTokenizer

# Fields of transformers' base class. It drops or overwrites the fields in DROPPED, unless a family declares them.
_OF_EVERY_CONFIG = {
    "architectures": None,
    "chunk_size_feed_forward": 0,
    "output_attentions": False,
    "output_hidden_states": False,
    "problem_type": None,
    "return_dict": True,
}
DROPPED = ("_name_or_path", "transformers_version", *GENERATION_SETTINGS)

_TOKEN = int | None
_TOKENS = list[int] | None
_OF_EVERY_GENERATION_CONFIG: dict[str, Any] = {  # name -> type, of settings that transformers does not change
    "_from_model_config": bool,
    "begin_suppress_tokens": _TOKENS,
    "bos_token_id": _TOKEN,
    "decoder_start_token_id": _TOKEN,
    "do_sample": bool | None,
    "early_stopping": bool | None,
    "eos_token_id": int | list[int] | None,
    "forced_bos_token_id": _TOKEN,
    "forced_eos_token_id": int | list[int] | None,
    "length_penalty": float | int | None,
    "max_length": int | None,
    "min_length": int | None,
    "no_repeat_ngram_size": int | None,
    "num_beams": int | None,
    "pad_token_id": _TOKEN,
    "suppress_tokens": _TOKENS,
    "transformers_version": str | None,
    "use_cache": bool | None,
}


@dataclass(frozen=True)
class PlainFiles:
    """The contents of the small files of a family's checkpoints, which then load without importing transformers.

    Importing transformers takes about a second. Declare a family's files only if tests compare the results with
    transformers'. A file with undeclared contents is read by transformers.

    model_type: the one that config.json must have.
    config: a dataclass with the fields of transformers' config class, their types and defaults. Types are bool, int,
        float, str, None, list[...], and unions of them.
    aliases: (other name, field), the config class's ``attribute_map``.
    extras: names in config.json that are not fields of the class; their values are kept.
    derived: (values of fields and extras by name, without aliases) -> the values that the config class computes, which
        replace them; None if transformers must read the file.
    generation_extras: names in generation_config.json that only this family has; their values are kept.
    tokenizer: makes a tokenizer from a directory with a tokenizer_config.json, with the same results as transformers'
        tokenizer; returns None if transformers must read it.
    """

    model_type: str
    config: type
    aliases: tuple[tuple[str, str], ...] = ()
    extras: tuple[str, ...] = ()
    derived: Callable[[Mapping[str, Any]], dict[str, Any] | None] | None = None
    generation_extras: tuple[str, ...] = ()
    tokenizer: Callable[[Path], PlainTokenizer | None] | None = None


def plain_config(checkpoint: Checkpoint, files: PlainFiles) -> PlainConfig | None:
    """Read the config in config.json, with defaults, aliases and dtype as in transformers' config class.

    It has no labels of a classifier (``id2label``, ``label2id``). Returns None if transformers must read it.
    """
    given = dict(checkpoint.config_dict)
    dtype = _dtype(given.pop("torch_dtype", None), given.pop("dtype", None))
    labels = given.pop("id2label", None), given.pop("label2id", None)
    if given.pop("model_type", None) != files.model_type or not isinstance(dtype, torch.dtype | None):
        return None
    kinds, aliases = get_type_hints(files.config), dict(files.aliases)
    dropped = set(DROPPED).difference(kinds, files.extras)
    kinds |= {name: kinds[target] for name, target in files.aliases}
    kinds |= {"architectures": list[str] | None, **dict.fromkeys((*files.extras, *dropped), Any)}
    if not _all_fit(given, kinds) or not _are_labels(*labels):
        return None
    values = {**_OF_EVERY_CONFIG, "dtype": dtype, "model_type": files.model_type, **vars(files.config())}
    values |= {name: value for name, value in given.items() if name not in dropped}
    derived = files.derived(values) if files.derived else {}
    if derived is None:
        return None
    values |= derived
    values |= {aliases[name]: value for name, value in given.items() if name in aliases}  # transformers sets them last
    return PlainConfig(**{**values, **{name: values[target] for name, target in files.aliases}})


def plain_generation_config(settings: Mapping[str, Any], files: PlainFiles) -> PlainConfig | None:
    """Make a generation config of checked settings. Returns None as `plain_config` does."""
    if not _all_fit(settings, {**dict.fromkeys(files.generation_extras, Any), **_OF_EVERY_GENERATION_CONFIG}):
        return None
    if settings.get("_from_model_config") and not settings.keys().isdisjoint(files.generation_extras):
        return None  # transformers drops the family's settings
    if settings.get("suppress_tokens") and (settings.keys() & {"forced_bos_token_id", "forced_eos_token_id"}):
        return None  # transformers refuses contradictory ones
    return PlainConfig(**settings)


def _dtype(old: object, new: object) -> object:
    """Return the dtype from the values of ``torch_dtype`` and ``dtype``; return an invalid value unchanged."""
    name = old if new is None else new
    return getattr(torch, name, name) if isinstance(name, str) else name


def _are_labels(names: object, numbers: object) -> bool:
    """True if both tables of a classifier's labels are valid or missing: number -> name, name -> number."""
    if not isinstance(names, dict | None) or not isinstance(numbers, dict | None):
        return False
    keys = all(key.isascii() and key.isdigit() for key in names or ())
    return (
        keys
        and all(type(name) is str for name in (names or {}).values())
        and all(type(number) is int for number in (numbers or {}).values())
    )


def _all_fit(values: Mapping[str, Any], kinds: Mapping[str, Any]) -> bool:
    return all(name in kinds and _fits(value, kinds[name]) for name, value in values.items())


def _fits(value: object, kind: Any) -> bool:
    """True if a JSON value has a type. A bool is not an int here, and an int is not a float."""
    origin = get_origin(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if origin is list:
        return isinstance(value, list) and all(_fits(each, get_args(kind)[0]) for each in value)
    return type(value) is kind
