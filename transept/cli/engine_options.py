"""What every command that runs a model may set on its engine."""

from __future__ import annotations

import argparse
from typing import Any

from transept.core.config import DTYPES, QUANTIZATIONS

MODEL = "name (`transept models` lists them), checkpoint directory, package:NAME/folder, or hub name"
NAMES = (
    "plugin",
    "device",
    "dtype",
    "quantization",
    "num_threads",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "model_dir",
    "offline",
)
LIMITS: dict[str, tuple[type, str, str]] = {
    "max_audio_seconds": (float, "S", "refuse longer recordings (default: 24 hours)"),
    "max_text_characters": (int, "N", "refuse longer documents (default: 33554432)"),
}


def add_model_options(parser: argparse.ArgumentParser, default: str | None) -> None:
    """--model, and all of `add_engine_options`. default: None: --model must be given."""
    group = parser.add_argument_group("model")
    about = MODEL + (" (default: %(default)s)" if default else "")
    group.add_argument("--model", default=default, required=default is None, help=about)
    add_engine_options(group)


def add_engine_options(parser: argparse._ActionsContainer) -> None:
    """The options of `NAMES`."""
    parser.add_argument("--device", default="auto", metavar="NAME", help="cpu, cuda or cuda:1 (default: a GPU if any)")
    parser.add_argument(
        "--dtype",
        choices=("auto", *DTYPES),
        default="auto",
        metavar="NAME",
        help="bfloat16, float16 or float32 (default on a CPU)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        metavar="NAME",
        help="round weights: int8 is faster, fp8 for GPUs",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", dest="num_threads", help="of a CPU's work (default: one for each core)"
    )
    parser.add_argument(
        "--tensor-parallel-size", type=int, default=1, metavar="N", help="processes or GPUs that share each layer"
    )
    parser.add_argument(
        "--pipeline-parallel-size",
        type=int,
        default=1,
        metavar="N",
        help="processes or GPUs that layers are divided among",
    )
    parser.add_argument(
        "--model-dir",
        metavar="DIR",
        help="folder of models (default: the hub's cache)",
    )
    parser.add_argument("--model_dir", dest="model_dir", help=argparse.SUPPRESS)  # openai-whisper's
    parser.add_argument("--offline", action="store_true", help="download nothing: take models that are on this machine")
    parser.add_argument("--plugin", metavar="NAME", help="plugin to run the model with, where several could")


def add_limit(parser: argparse._ActionsContainer, name: str) -> None:
    """The option of one of `LIMITS`."""
    kind, metavar, about = LIMITS[name]
    parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=about)


def engine_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options as EngineConfig takes them."""
    limits = {name: getattr(arguments, name) for name in LIMITS if getattr(arguments, name, None) is not None}
    return {"limits": limits, **{name: getattr(arguments, name) for name in NAMES}}
