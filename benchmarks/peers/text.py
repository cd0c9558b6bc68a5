"""BART and T5 on a CPU: Transept beside OpenVINO and CTranslate2.

    make peers
    python -m benchmarks.peers.export --models bart-large-cnn t5-base
    python -m benchmarks.peers.text [--runs 3] [--models bart-large-cnn t5-base] [--documents 32]
        [--engines transept openvino ...] [--alone]

The models and documents of benchmarks.text. Their weights are random, so there is no word error rate: "same tokens"
counts the documents that came out as Transept's in float32, and how many of all tokens came before the first that
differs. Each engine's runs are in turn, in a process of its own; ratios are medians over the turns,
to Transept in the same precision where that takes part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path

import torch

from benchmarks import text
from benchmarks.elsewhere import Elsewhere
from benchmarks.peers import ours_beside
from benchmarks.peers.environment import interpreter
from benchmarks.peers.versions import versions
from benchmarks.peers.workers import openvino_text
from benchmarks.peers.workers.openvino_whisper import Settings
from benchmarks.turns import Record, Runner, add_json_option, print_table, take_turns

EXACT = "transept"


def of_project(load: Callable[[str, Path, str], Runner], weights: str, name: str) -> Callable[[], Runner]:
    """An engine of benchmarks.text."""
    return partial(load, name, text.CACHE / name, weights)


def of_openvino(kind: str, hint: str | None, name: str) -> Elsewhere:
    """hint: of the precision to compute in; None: what OpenVINO takes by itself."""
    settings: Settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    if hint:
        settings["INFERENCE_PRECISION_HINT"] = hint
    model, folder = text.MODELS[name], text.CACHE / name / "openvino" / kind
    return Elsewhere(
        interpreter(),
        partial(openvino_text.runner, folder, settings, model.start, model.eos, model.pad, text.NEW_TOKENS),
    )


# name -> makes the engine for a model
ENGINES: dict[str, Callable[[str], Callable[[], Runner] | Elsewhere]] = {
    EXACT: partial(of_project, text.transept_runner, "float32"),
    "transept-bfloat16": partial(of_project, text.transept_runner, "bfloat16"),
    "transept-int8": partial(of_project, text.transept_runner, "int8"),
    "openvino-float32": partial(of_openvino, "float32", "f32"),
    "openvino": partial(of_openvino, "float32", None),
    "openvino-int8": partial(of_openvino, "int8", None),
    "ctranslate2": partial(of_project, text.ctranslate2_runner, "float32"),
    "ctranslate2-int8": partial(of_project, text.ctranslate2_runner, "int8"),
}


def same_tokens(exact: list[list[int]], outputs: list[list[int]]) -> str:
    """How many documents are the same, and how many tokens in a hundred come before each one's first difference."""
    common = 0
    for ours, theirs in zip(exact, outputs, strict=True):
        differ = [index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
        common += differ[0] if differ else len(ours)
    return f"{sum(map(eq, exact, outputs))}/{len(outputs)}, {100 * common / sum(map(len, exact)):.0f} %"


def compare(names: list[str], model: str, count: int, alone: bool, runs: int, record: Record) -> None:
    """Print and record one table: a row an engine."""
    inputs = text.documents(model, count)
    turns = take_turns({name: ENGINES[name](model) for name in names}, inputs, runs, alone, warm_up=count)
    task = f"{count} documents{', one by one' * alone}"
    print(f"\n{model}, {task}, {sum(map(len, inputs))} tokens, {text.NEW_TOKENS} new ones each, {runs} runs in turn")
    judge = ("same tokens", partial(same_tokens, turns[EXACT].outputs))
    rows = print_table(turns, count * text.NEW_TOKENS, "new tokens", judge, ours_beside)
    record.add(f"{model}, {task}", count * text.NEW_TOKENS, "new tokens", rows)


def main() -> None:
    """Print a table a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=text.MODELS, default=list(text.MODELS))
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--alone", action="store_true")
    add_json_option(parser)
    arguments = parser.parse_args()
    names = list(dict.fromkeys([EXACT, *arguments.engines]))
    record = Record(arguments.json, f"python -m benchmarks.peers.text, {arguments.runs} runs in turn", versions())
    print(f"{torch.get_num_threads()} threads, {json.dumps(record.versions)}")
    for model in arguments.models:
        compare(names, model, arguments.documents, arguments.alone, arguments.runs, record)


if __name__ == "__main__":
    main()
