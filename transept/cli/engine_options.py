"""What every command that runs a model may set on its engine."""

from __future__ import annotations

import argparse
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
    "num_threads",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "model_dir",
    "offline",
    "plugin",
)
LIMITS = ("max_audio_seconds", "max_text_characters")


def add_model_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    """--model, and all of `add_engine_options`. default: None: --model must be given."""
    group = parser.add_argument_group("model")
    about = MODEL + (" (default: %(default)s)" if default else "")
    group.add_argument("--model", default=default, required=default is None, help=about)
    add_engine_options(group)


def add_engine_options(parser: argparse._ActionsContainer) -> None:
    """The options of `NAMES`."""
    for name in NAMES:
        each = declared(EngineConfig)[name]
        add_flag(parser, each, default=each.default)


def add_limit(parser: argparse._ActionsContainer, name: str) -> None:
    """The option of one of `LIMITS`."""
    add_flag(parser, declared(Limits)[name], default=None)


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as EngineConfig takes them."""
    limits = {name: getattr(arguments, name) for name in LIMITS if getattr(arguments, name, None) is not None}
    return {"limits": limits, **{name: getattr(arguments, name) for name in NAMES}}
