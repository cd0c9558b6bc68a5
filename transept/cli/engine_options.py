"""The flags of the engine, for every command that runs a model."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from transept.cli.flags import add_flag
from transept.core.config import EngineConfig
from transept.core.request.limits import Limits
from transept.options import declared

MODEL = declared(EngineConfig)["model"].option.help
NAMES = (
    "device",
    "dtype",
    "quantization",
    "threads",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "model_dir",
    "offline",
    "plugin",
    "adapters",
    "max_adapters",
    "max_adapter_rank",
    "merge_adapter",
    "draft_model",
)
ALIASES = sorted({alias.name for name in NAMES for alias in declared(EngineConfig)[name].aliases if alias.values})
LIMITS = ("max_audio_seconds", "max_text_characters")


def add_model_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    """Declare --model and the flags of `add_engine_options`. default: of --model; None: it is required."""
    group = parser.add_argument_group("model")
    about = MODEL + (" (default: %(default)s)" if default else "")
    names = [f"--{alias.name.replace('_', '-')}" for alias in declared(EngineConfig)["model"].aliases]
    group.add_argument("--model", *names, default=default, required=default is None, help=about)
    add_engine_options(group)


def add_engine_options(parser: argparse._ActionsContainer) -> None:
    """Declare the flags of `NAMES`."""
    for name in NAMES:
        each = declared(EngineConfig)[name]
        add_flag(parser, each, default=None if each.default is dataclasses.MISSING else each.default)


def add_limit(parser: argparse._ActionsContainer, name: str) -> None:
    """Declare the flag of one of `LIMITS`."""
    add_flag(parser, declared(Limits)[name], default=None)


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given options as keywords of EngineConfig."""
    given, options = vars(arguments), declared(EngineConfig)
    limits = {name: given[name] for name in LIMITS if given.get(name) is not None}
    own = {name: given[name] for name in NAMES if given.get(name) not in (None, options[name].default)}
    return {"limits": limits, **own, **{name: given[name] for name in ALIASES if name in given}}
