"""Where the time of the encoder and of a decoding step goes on a CPU, beside what arithmetic and memory allow.

    python -m benchmarks.steps [--model tiny.en] [--weights float32 bfloat16 int8] [--sequences 1 5 32] [--runs 30]

Whisper hears noise, BART and T5 read random tokens; no sequence ends. A part's bound is its arithmetic at the rate of
a large matrix product in float32 (in 8 and 16 bits twice that), or what it reads at the rate of a large read. Times are
medians.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import text, whisper
from benchmarks.machine import gemm_rate, read_bandwidth
from benchmarks.weights import TRANSEPT
from transept import Engine, SamplingParams
from transept.core.layers.linear import EncoderDecoderQKVParallelLinear, Linear
from transept.core.layers.transformer import DecoderLayer, EncoderLayer

DOCUMENT = 512  # tokens of BART's and T5's inputs
STEPS_BEFORE = 16  # tokens that every sequence has when steps are timed

Seconds = dict[str, list[float]]  # part -> its time, one a run


class Clock:
    """Times of functions, of one run after the other."""

    def __init__(self) -> None:
        self.runs: Seconds = defaultdict(list)
        self.now: dict[str, float] = defaultdict(float)

    def finish_run(self) -> None:
        """Keep what was counted as one run."""
        for part, seconds in self.now.items():
            self.runs[part].append(seconds)
        self.now.clear()

    @contextmanager
    def timing(self, functions: list[tuple[Any, str, str]]) -> Iterator[None]:
        """Count each call of an object's method, (object, method, part)."""
        for owner, name, part in functions:
            setattr(owner, name, self._timed(getattr(owner, name), part))
        try:
            yield
        finally:
            for owner, name, _ in functions:
                delattr(owner, name)  # what is left is the class's own

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            result = function(*arguments, **options)
            self.now[part] += time.perf_counter() - begin
            return result

        return timed


def load(model: str, weights: str, sequences: int, scratch: Path) -> Engine:
    directory = text.checkpoint(model) if model in text.MODELS else whisper.checkpoint(model, scratch)
    return Engine(directory, **TRANSEPT[weights], max_num_seqs=max(sequences, 1), kv_cache_bytes=4 << 30)


def add_requests(engine: Engine, count: int) -> None:
    """Requests that none of the others shares an encoder run with."""
    draws, noise = random.Random(0), np.random.default_rng(0)
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=200)
    engine.block_manager.reset()
    for index in range(count):
        prompt: Any = {"prompt_tokens": [draws.randrange(4, 30_000) for _ in range(DOCUMENT)]}
        if not engine.shape.encoder_takes_text:
            waveform = noise.normal(0.0, 0.1, whisper.WINDOW).astype(np.float32)
            prompt = {"multi_modal_data": {"audio": (waveform, whisper.SAMPLE_RATE)}}
        engine.add_request(str(index), prompt, params)


def drop_requests(engine: Engine, count: int) -> None:
    for index in range(count):
        engine.abort_request(str(index))


def packed_bytes(layer: Any, outputs: int | None = None) -> int:
    """Of a layer's weight, or of its first outputs."""
    rows, columns = layer.weight.shape
    return layer.packed.panels.values.dtype.itemsize * (rows if outputs is None else outputs) * columns


def encoder(engine: Engine, runs: int, rate: float) -> None:
    """Print the parts of one input's run through the encoder."""
    add_requests(engine, 1)
    inputs = engine.scheduler.schedule().step.encodes[0].inputs
    runner = engine.executor.worker.runner
    layers = [module for module in runner.model.modules() if isinstance(module, EncoderLayer)]
    attention = [(layer.self_attn.attn, "forward", "attention") for layer in layers]
    linear = [(layer.self_attn.qkv_proj, "forward", "qkv, out") for layer in layers]
    linear += [(layer.self_attn.out_proj, "forward", "qkv, out") for layer in layers]
    linear += [(layer.ffn, "add_to" if layer.pre_norm else "forward", "feed-forward") for layer in layers]
    clock = Clock()
    with torch.inference_mode(), clock.timing([*attention, *linear, (runner.encoder, "encode", "in all")]):
        for run in range(runs + 1):
            runner.encoder.encode([inputs])
            if run:  # the first one warms up
                clock.finish_run()
            clock.now.clear()
    drop_requests(engine, 1)
    tokens, layer = inputs.num_tokens, layers[0]
    times = 1 if layer.ffn.fc1.packed.panels.dtype in (torch.float32, torch.float16) else 2
    inner = layer.self_attn.out_proj.in_features
    projections, network = (
        sum(
            2 * tokens * module.weight.shape[0] * module.weight.shape[1]
            for module in part.modules()
            if isinstance(module, Linear)
        )
        for part in (layer.self_attn, layer.ffn)
    )
    bounds = {
        "attention": len(layers) * 4 * tokens * tokens * inner / rate / times,
        "qkv, out": len(layers) * projections / rate / times,
        "feed-forward": len(layers) * network / rate / times,
    }
    print_parts(f"encoder, {tokens} tokens", clock.runs, {**bounds, "in all": sum(bounds.values())})


def decoder(engine: Engine, count: int, runs: int, bandwidth: float) -> None:
    """Print the parts of a step in which so many sequences decode."""
    add_requests(engine, count)
    while engine.scheduler.queue:
        engine.step()
    for _ in range(STEPS_BEFORE):
        engine.step()
    runner, clock = engine.executor.worker.runner, Clock()
    sampler = runner.sampler
    functions = [
        (engine, "step", "in all"),
        (engine.executor, "issue", "runner"),
        (runner.model, "decode", "layers"),
        (runner.model, "compute_logits", "vocabulary"),
    ]
    timed_sampler = clock._timed(sampler, "sampling")
    runner.sampler = timed_sampler
    with clock.timing(functions):
        for _ in range(runs):
            engine.step()
            clock.finish_run()
    runner.sampler = sampler
    encoder_tokens = len(engine.block_manager.cross_block_tables) and sum(
        group.encoder_seq.num_tokens for group in engine.scheduler.running
    )
    self_tokens = sum(seq.num_tokens for group in engine.scheduler.running for seq in group.seqs)
    drop_requests(engine, count)
    parts = {part: [*seconds] for part, seconds in clock.runs.items()}
    inside = ("layers", "vocabulary", "sampling")
    parts["rest of the runner"] = [
        whole - sum(some) for whole, *some in zip(parts["runner"], *(parts[part] for part in inside), strict=True)
    ]
    parts["scheduling, books"] = [
        whole - part for whole, part in zip(parts["in all"], parts.pop("runner"), strict=True)
    ]
    shape = engine.shape
    read = 0
    for layer in (module for module in runner.model.modules() if isinstance(module, DecoderLayer)):
        for module in layer.modules():
            if isinstance(module, Linear):
                cross = isinstance(module, EncoderDecoderQKVParallelLinear)
                read += packed_bytes(module, module.q_size if cross else None)
    size = engine.executor.worker.cache.layers[0].itemsize
    keys = 2 * shape.num_decoder_layers * shape.num_kv_heads * shape.head_dim * size * (encoder_tokens + self_tokens)
    bounds = {
        "layers": (read + keys) / bandwidth,
        "vocabulary": packed_bytes(runner.model.head) / bandwidth,
    }
    title = f"a step of {count} sequences ({(read + keys) / 1e6 + bounds['vocabulary'] * bandwidth / 1e6:.0f} MB)"
    print_parts(title, parts, {**bounds, "in all": sum(bounds.values())})


def print_parts(title: str, parts: Seconds, bounds: dict[str, float]) -> None:
    print(f"\n| {title} | ms | bound ms | times |\n| --- | --- | --- | --- |")
    ordered = sorted(parts, key=lambda part: (part == "in all", -statistics.median(parts[part])))
    for part in ordered:
        seconds = statistics.median(parts[part])
        bound = bounds.get(part)
        cells = "| |" if bound is None else f"| {bound * 1e3:.2f} | {seconds / bound:.1f} |"
        print(f"| {part} | {seconds * 1e3:.2f} {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("tiny.en", "base", *text.MODELS), default="tiny.en")
    parser.add_argument("--weights", nargs="+", choices=[*TRANSEPT], default=["float32", "int8"])
    parser.add_argument("--sequences", nargs="+", type=int, default=[1, 5, 32])
    parser.add_argument("--runs", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for weights in arguments.weights:
            engine = load(arguments.model, weights, max(arguments.sequences), Path(scratch))
            rate, bandwidth = gemm_rate(), read_bandwidth()
            print(f"\n{arguments.model}, {weights}: {rate / 1e9:.0f} GFLOP/s, {bandwidth / 1e9:.1f} GB/s")
            encoder(engine, max(arguments.runs // 3, 3), rate)
            for count in arguments.sequences:
                decoder(engine, count, arguments.runs, bandwidth)


if __name__ == "__main__":
    main()
