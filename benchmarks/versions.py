"""The checkout at hand against another one of the project: same machine, inputs and weights, on a CPU.

    python -m benchmarks.versions OTHER_CHECKOUT [--runs 7] [--cases tiny.en-windows base-windows ...] [--set librivox]

The two take turns, each in a process of its own, so that a noisy machine is noisy for both; ratios are medians over the
turns: above 1 the one at hand is faster.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import text, transcription, whisper
from benchmarks.transcripts import joined
from benchmarks.turns import Record, Runner, add_json_option, print_table, take_turns

DOCUMENTS = 6
CASES = (
    "tiny.en-windows",
    "base-windows",
    "tiny.en-sequential",
    "tiny.en-batched",
    "base-batched",
    "bart-large-cnn",
)


def of_checkout(checkout: str, load: Callable[[], Runner]) -> Runner:
    """A runner whose `transept` is that of a checkout. Called in a process that has not imported it yet."""
    assert "transept" not in sys.modules
    sys.path.insert(0, checkout)
    return load()


def case(name: str, clips: str, scratch: Path) -> tuple[Callable[[], Runner], list[Any]]:
    """How an engine is loaded, and its inputs. clips: the folder of recordings."""
    model, _, kind = name.rpartition("-")
    if kind == "cnn":
        return partial(text.transept_runner, name, text.checkpoint(name), "float32"), text.documents(name, DOCUMENTS)
    directory = whisper.checkpoint(model, scratch)
    if kind == "windows":
        return partial(whisper.transept_runner, directory, "float32"), whisper.windows(clips)
    options = {"batched": kind == "batched"}
    return partial(transcription.transept_runner, directory, options), [joined(clips)[0]]


def main() -> None:
    """Print a table a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="folder of the other checkout")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--set", default="prompts-en", choices=("librivox", "prompts-en"), help="of recordings")
    add_json_option(parser)
    arguments = parser.parse_args()
    checkouts = {"this": str(whisper.REPOSITORY), "other": str(Path(arguments.other).resolve())}
    record = Record(arguments.json, f"python -m benchmarks.versions, {arguments.runs} runs in turn")
    print(f"{torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.cases:
            load, inputs = case(name, arguments.set, Path(scratch))
            engines = {version: partial(of_checkout, checkout, load) for version, checkout in checkouts.items()}
            print(f"\n{name}\n")
            rows = print_table(take_turns(engines, inputs, arguments.runs), len(inputs), "inputs")
            record.add(name, len(inputs), "inputs", rows)


if __name__ == "__main__":
    main()
