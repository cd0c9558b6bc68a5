"""Two ranks or stages of one thread each beside one process of two threads: throughput, and a process's peak memory.

    python -m benchmarks.tensor_parallel [--models tiny.en base bart-large-cnn] [--engines ranks stages "ranks, gloo"]
        [--runs 9]

The engines take turns, one at a time, at the five LibriVox clips or at five documents, all of them at once and, for a
step's latency, the first alone. `bart-large-cnn` is that shape with random weights. Memory is what the system says of
a process after its first two inputs, the largest of several: the whole, and what is beyond that of a process which has
only imported what a worker imports.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import text, whisper
from transept import Engine, SamplingParams

ENGINES = {"ranks": "tensor_parallel_size", "stages": "pipeline_parallel_size"}
NEW_TOKENS = 64  # of each input, whatever its end would be
MAIN = """
import sys
import transept.core.execution.worker_main, transformers
from transformers import PretrainedConfig, GenerationConfig
"""
PEAK = """
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
ALONE = """
import pickle
from transept import Engine, SamplingParams
directory, prompts, tokens = pickle.loads(sys.stdin.buffer.read())
engine = Engine(directory, device="cpu", dtype="float32", num_threads=2)
engine.generate(prompts, SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=tokens), progress=False)
"""


def peak_mib(program: str, given: bytes = b"") -> float:
    """Of a process that runs a program, which reads what it is given."""
    run = subprocess.run([sys.executable, "-c", MAIN + program + PEAK], input=given, stdout=subprocess.PIPE, check=True)
    return int(run.stdout.split()[-1]) / 1024


def workers() -> set[int]:
    """Process ids of this process's workers."""
    children = psutil.Process().children()
    return {child.pid for child in children if any("worker_main" in part for part in child.cmdline())}


def peak_of_workers_mib(pids: set[int]) -> float:
    """The largest one's."""
    statuses = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return max(int(status.split("VmHWM:")[1].split()[0]) / 1024 for status in statuses)


def seconds(engine: Engine, prompts: list[Any]) -> float:
    """Of a turn, in which nothing is found in the cache."""
    engine.block_manager.reset()
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=NEW_TOKENS)
    begin = time.perf_counter()
    engine.generate(prompts, params, progress=False)
    return time.perf_counter() - begin


def compare(model: str, scratch: Path, names: list[str], runs: int) -> None:
    """Print a table: a row an engine."""
    import pickle

    if model in text.MODELS:
        directory = text.checkpoint(model)
        prompts: list[Any] = [{"prompt_tokens": tokens} for tokens in text.documents(model, 5)]
    else:
        directory = whisper.checkpoint(model, scratch)
        prompts = [{"multi_modal_data": {"audio": (each, 16_000)}} for each in whisper.windows("librivox")[:5]]
    imported = peak_mib("")
    peaks = {"one process": peak_mib(ALONE, pickle.dumps((directory, prompts[:2], NEW_TOKENS)))}
    engines = {"one process": Engine(directory, device="cpu", dtype="float32", num_threads=2)}
    seconds(engines["one process"], prompts[:2])
    for name in names:
        kind, _, exchange = name.partition(", ")
        os.environ["TRANSEPT_EXCHANGE"] = exchange
        others = workers()
        engines[name] = Engine(directory, device="cpu", dtype="float32", num_threads=2, **{ENGINES[kind]: 2})
        seconds(engines[name], prompts[:2])
        peaks[name] = peak_of_workers_mib(workers() - others)
    tasks = {"all": prompts, "alone": prompts[:1]}
    turns: dict[tuple[str, str], list[float]] = {}
    for _ in range(runs):
        for task, given in tasks.items():
            for name, engine in engines.items():
                turns.setdefault((name, task), []).append(seconds(engine, given))
    print(f"\n{model}: {len(prompts)} inputs, {NEW_TOKENS} tokens each, float32; imports alone take {imported:.0f} MiB")
    print("| engine | all: median s | min s | throughput | alone: median s | min s | throughput | peak MiB | beyond |")
    for name, engine in engines.items():
        columns = []
        for task in tasks:
            own, one = turns[name, task], turns["one process", task]
            ratio = statistics.median(other / mine for other, mine in zip(one, own, strict=True))
            columns += [f"{statistics.median(own):.2f}", f"{min(own):.2f}", f"{ratio:.2f}"]
        shares = [peaks[name], (peaks[name] - imported) / (peaks["one process"] - imported)]
        print(f"| {name} | {' | '.join(columns)} | {shares[0]:.0f} | {shares[1]:.2f} |", flush=True)
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base", "bart-large-cnn"])
    parser.add_argument("--engines", nargs="+", default=["ranks", "stages"])
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            compare(model, Path(scratch), arguments.engines, arguments.runs)


if __name__ == "__main__":
    main()
