"""Whisper on a CPU: Transept beside OpenVINO, ONNX Runtime, whisper.cpp and CTranslate2.

    make peers
    python -m benchmarks.peers.export
    python -m benchmarks.peers.whisper [--runs 5] [--models tiny.en base] [--sets librivox prompts-en]
        [--engines transept openvino ...] [--alone] [--unchecked]

All engines go from waveforms to token ids on the same weights, greedily, without timestamps, features included. Where
one computes in less than float32, its word error rate of prompts-en is taken first, and if it is more than 1.5
points above Transept's in float32, it is not timed; --unchecked leaves that out. "same tokens" counts the windows whose
tokens are those of Transept in float32. --alone gives them one window after the other. The engines take turns, each in
a process of its own; ratios are medians over the turns, to Transept in the same precision where that takes part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path

import torch
from tokenizers import Tokenizer

from benchmarks import whisper
from benchmarks.elsewhere import Elsewhere
from benchmarks.peers import ours_beside
from benchmarks.peers.environment import interpreter
from benchmarks.peers.versions import versions
from benchmarks.peers.workers import onnx_whisper, openvino_whisper, whisper_cpp
from benchmarks.text import CACHE
from benchmarks.transcripts import clips, word_error_rate
from benchmarks.turns import Engines, Record, Runner, Turns, add_json_option, print_table, take_turns

CHECKED = "prompts-en"  # the set of the check: 556 words
POINTS = 1.5  # percentage points of the word error rate that an engine may lose; 8 words of the set


def of_transept(weights: str, checkpoint: Path, model: Path) -> Callable[[], Runner]:
    """weights: float32, bfloat16 or int8."""
    return partial(whisper.transept_runner, checkpoint, weights)


def of_ctranslate2(weights: str, checkpoint: Path, model: Path) -> Callable[[], Runner]:
    return partial(whisper.ctranslate2_runner, checkpoint, weights)


def of_openvino(load: Callable[..., Runner], kind: str, hint: str | None, checkpoint: Path, model: Path) -> Elsewhere:
    """hint: of the precision to compute in; None: what OpenVINO takes by itself, bfloat16 where a processor has it."""
    settings: openvino_whisper.Settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    if hint:
        settings["INFERENCE_PRECISION_HINT"] = hint
    return Elsewhere(interpreter(), partial(load, model, kind, settings))


def of_threads(load: Callable[[Path, str, int], Runner], kind: str, checkpoint: Path, model: Path) -> Elsewhere:
    """kind: what the engine's files are called."""
    return Elsewhere(interpreter(), partial(load, model, kind, torch.get_num_threads()))


EXACT = "transept"
# name -> makes the engine from the CTranslate2 folder and the peers' folder of a model
ENGINES: dict[str, Callable[[Path, Path], Callable[[], Runner] | Elsewhere]] = {
    EXACT: partial(of_transept, "float32"),
    "transept-bfloat16": partial(of_transept, "bfloat16"),
    "transept-int8": partial(of_transept, "int8"),
    "openvino-float32": partial(of_openvino, openvino_whisper.runtime_runner, "float32", "f32"),
    "openvino": partial(of_openvino, openvino_whisper.runtime_runner, "float32", None),
    "openvino-int8": partial(of_openvino, openvino_whisper.runtime_runner, "int8", None),
    "openvino-int8-encoder": partial(of_openvino, openvino_whisper.runtime_runner, "int8-encoder", None),
    "optimum-intel-float32": partial(of_openvino, openvino_whisper.optimum_runner, "float32", "f32"),
    "optimum-intel": partial(of_openvino, openvino_whisper.optimum_runner, "float32", None),
    "openvino-genai-float32": partial(of_openvino, openvino_whisper.genai_runner, "float32", "f32"),
    "openvino-genai": partial(of_openvino, openvino_whisper.genai_runner, "float32", None),
    "openvino-genai-int8": partial(of_openvino, openvino_whisper.genai_runner, "int8", None),
    "onnxruntime": partial(of_threads, onnx_whisper.runner, "float32"),
    "onnxruntime-int8": partial(of_threads, onnx_whisper.runner, "int8"),
    "whisper.cpp-f16": partial(of_threads, whisper_cpp.runner, "f16"),
    "whisper.cpp-q8_0": partial(of_threads, whisper_cpp.runner, "q8_0"),
    "ctranslate2": partial(of_ctranslate2, "float32"),
    "ctranslate2-int8": partial(of_ctranslate2, "int8"),
}
IN_FLOAT32 = {name for name in ENGINES if name.endswith("float32")} | {
    EXACT,
    "onnxruntime",
    "ctranslate2",
}  # need no check


def rate(folder: str, model: Path, outputs: list[list[int]]) -> float:
    """The word error rate of a set in percent. outputs: token ids of each window."""
    tokenizer = Tokenizer.from_file(str(model / "huggingface" / "tokenizer.json"))
    written = " ".join(tokenizer.decode(row).strip() for row in outputs)
    return word_error_rate(" ".join(clip.text for clip in clips(folder)), written)


def made(names: list[str], checkpoint: Path, model: Path) -> Engines:
    return {name: ENGINES[name](checkpoint, model) for name in names}


def without_losses(names: list[str], checkpoint: Path, model: Path) -> list[str]:
    """The engines that may be timed. Prints the word error rate of each that computes in less than float32."""
    doubtful = [name for name in names if name not in IN_FLOAT32]
    if not doubtful:
        return names
    waveforms = whisper.windows(CHECKED)
    rates = {
        name: rate(CHECKED, model, take_turns(made([name], checkpoint, model), waveforms, runs=1)[name].outputs)
        for name in [EXACT, *doubtful]
    }
    lost = [name for name in doubtful if rates[name] > rates[EXACT] + POINTS]
    print(f"\n{model.name}, word error rates of {CHECKED}: ", end="")
    print(", ".join(f"{name} {percent:.2f} %" for name, percent in rates.items()))
    if lost:
        print(f"not timed, more than {POINTS} points above {EXACT}: {', '.join(lost)}")
    return [name for name in names if name not in lost]


def compare(
    names: list[str], model: Path, checkpoint: Path, folder: str, alone: bool, runs: int, record: Record
) -> None:
    """Print and record one table: a row an engine."""
    waveforms = whisper.windows(folder)
    seconds = sum(map(len, waveforms)) / whisper.SAMPLE_RATE
    turns: dict[str, Turns] = take_turns(made(names, checkpoint, model), waveforms, runs, alone, warm_up=len(waveforms))
    exact = turns[EXACT].outputs

    def say(outputs: list[list[int]]) -> str:
        return f"{sum(map(eq, exact, outputs))}/{len(outputs)}, {rate(folder, model, outputs):.2f} %"

    task = f"{len(waveforms)} windows of {folder}{', one by one' * alone}"
    print(f"\n{model.name}, {task}, {seconds:.1f} s of audio, {runs} runs in turn")
    rows = print_table(turns, seconds, "audio s", ("same tokens, word error rate", say), ours_beside)
    record.add(f"{model.name}, {task}", seconds, "audio s", rows)


def main() -> None:
    """Print a table a model and set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=("tiny.en", "base"), default=["tiny.en", "base"])
    parser.add_argument("--sets", nargs="+", choices=("librivox", "prompts-en"), default=["librivox", "prompts-en"])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--unchecked", action="store_true")
    add_json_option(parser)
    arguments = parser.parse_args()
    names = list(dict.fromkeys([EXACT, *arguments.engines]))
    record = Record(arguments.json, f"python -m benchmarks.peers.whisper, {arguments.runs} runs in turn", versions())
    print(f"{torch.get_num_threads()} threads, {json.dumps(record.versions)}")
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            checkpoint = whisper.checkpoint(model, Path(scratch))
            chosen = names if arguments.unchecked else without_losses(names, checkpoint, CACHE / model)
            for folder in arguments.sets:
                compare(chosen, CACHE / model, checkpoint, folder, arguments.alone, arguments.runs, record)


if __name__ == "__main__":
    main()
