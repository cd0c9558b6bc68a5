"""Large models on one GPU in half precision: Transept beside its bounds, and transformers for Whisper.

    python -m benchmarks.gpu [--models whisper-large-v3 bart-large-cnn flan-t5-xl] [--runs 3] [--device cuda] [--toy]
        [--quantization int8|fp8] [--kv-cache-dtype fp8] [--profile]

Models of the published shapes with random weights; the end-of-sequence token is forbidden, so that the work is the same
every time. Whisper goes from features to token ids, the others from token ids to token ids, greedily. At first all
requests have as many new tokens, and end together; then each has another number, and as they end others join, as in a
server. --toy takes shapes so small that the script can be tried on a CPU. Bounds are those of weights and caches in
half precision.
--profile lists the kernels of an encoder pass and of a decode step, those that take longest first.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import best_seconds
from benchmarks.text import BART_LARGE_CNN
from transept import Engine, SamplingParams

TOY = {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
TOY_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 1, "num_heads": 4}
WINDOWS = 16  # that the encoder takes at a time
NEW_TOKENS = 128
STRETCH = 8  # steps that are timed at once: while one is computed, the host schedules the next
PASSES = 4  # of the encoder that are timed at once, likewise


@dataclass(frozen=True)
class Case:
    """A model and how much it is given.

    shape, toy: settings of its config class in transformers. concurrent: requests that run at a time.
    """

    family: str
    shape: dict[str, Any]
    toy: dict[str, Any]
    concurrent: int
    start: int
    eos: int


CASES = {
    "whisper-large-v3": Case(
        "Whisper",
        {
            "vocab_size": 51866, "num_mel_bins": 128, "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
            "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
        },
        {**TOY, "encoder_attention_heads": 4, "decoder_attention_heads": 4}, 64, 50258, 50257,
    ),
    "bart-large-cnn": Case(
        "Bart",
        BART_LARGE_CNN,
        {**TOY, "encoder_attention_heads": 4, "decoder_attention_heads": 4}, 128, 2, 2,
    ),
    "flan-t5-xl": Case(
        "T5",
        {
            "d_model": 2048, "d_kv": 64, "d_ff": 5120, "num_layers": 24, "num_heads": 32,
            "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0,
        },
        TOY_T5, 128, 0, 1,
    ),
}  # fmt: skip


def checkpoint(case: Case, toy: bool, dtype: torch.dtype, device: str, scratch: Path) -> Path:
    """A directory of random weights."""
    import transformers

    config = getattr(transformers, f"{case.family}Config")(**{**case.shape, **(case.toy if toy else {})})
    torch.manual_seed(0)
    with torch.device(device):
        network = getattr(transformers, f"{case.family}ForConditionalGeneration")(config).to(dtype)
    network.generation_config = transformers.GenerationConfig(
        decoder_start_token_id=case.start, eos_token_id=case.eos, pad_token_id=case.eos
    )
    network.save_pretrained(scratch)
    return scratch


def rates(device: str, dtype: torch.dtype) -> tuple[float, float]:
    """Floating-point operations a second of a large product, and bytes a second of a large copy, read and written."""
    size = 8192 if device != "cpu" else 1024
    a, b = torch.randn(2, size, size, device=device, dtype=dtype)
    array = torch.empty(1 << (30 if device != "cpu" else 26), device=device, dtype=torch.uint8)
    product = best_seconds(lambda: finish(device, a @ b))
    copy = best_seconds(lambda: finish(device, array.clone()))
    return 2 * size**3 / product, 2 * array.numel() / copy


def finish(device: str, value: Any) -> Any:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()
    return value


def median_ms(function: Callable[[], object], repeats: int) -> float:
    """Median time of a call, after two that are not timed."""
    times = []
    for _ in range(repeats + 2):
        begin = time.perf_counter()
        function()
        times.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[2:])


def params(case: Case) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, suppress_tokens=[case.eos])


def num_bytes(module: torch.nn.Module) -> int:
    """Of its parameters, each counted once."""
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def whisper_prompts(engine: Engine, case: Case, count: int, device: str) -> list[Any]:
    """Windows of random features, which lie on the device, as those of recordings do."""
    torch.manual_seed(0)
    frames = 2 * engine.model_config.max_source_positions
    start = {"prompt_tokens": [case.start]}
    return [
        {
            "encoder_prompt": {
                "multi_modal_data": {
                    "audio_features": torch.randn(engine.model_config.num_mel_bins, frames, device=device)
                }
            },
            "decoder_prompt": start,
        }
        for _ in range(count)
    ]


def text_prompts(case: Case, count: int) -> list[Any]:
    """Documents of 260 to 440 random tokens."""
    draws = random.Random(0)
    start = {"prompt_tokens": [case.start]}
    return [
        {
            "encoder_prompt": {"prompt_tokens": [draws.randrange(4, 30000) for _ in range(draws.randint(260, 440))]},
            "decoder_prompt": start,
        }
        for _ in range(count)
    ]


def seconds_of(engine: Engine, prompts: list[Any], case: Case, device: str) -> float:
    """Time of all prompts."""
    engine.block_manager.reset()
    begin = time.perf_counter()
    finish(device, engine.generate(prompts, params(case), progress=False))
    return time.perf_counter() - begin


def joining_rate(engine: Engine, prompts: list[Any], case: Case, device: str, runs: int) -> float:
    """New tokens a second where requests have 24 to 200 of them, so that others join as they end."""
    draws = random.Random(1)
    counts = [draws.randint(24, 200) for _ in prompts]
    every = [replace(params(case), max_tokens=count) for count in counts]

    def run() -> float:
        engine.block_manager.reset()
        begin = time.perf_counter()
        finish(device, engine.generate(prompts, every, progress=False))
        return time.perf_counter() - begin

    run()  # which records the steps' shapes
    return sum(counts) / min(run() for _ in range(runs))


def encoder_ms(engine: Engine, prompts: list[Any], device: str, runs: int) -> float:
    """Milliseconds that the encoder takes for one window of WINDOWS."""
    inputs = [engine.preprocess(prompt).encoder for prompt in prompts[:WINDOWS]]
    runner = engine.executor.worker.runner
    with torch.inference_mode():
        passes = median_ms(lambda: finish(device, [runner.encoder.encode(inputs) for _ in range(PASSES)]), max(runs, 5))
    return passes / PASSES / len(inputs)


@contextmanager
def decoding(engine: Engine, prompts: list[Any], case: Case) -> Iterator[Callable[[], Any]]:
    """A step in which all prompts decode."""
    engine.block_manager.reset()
    for index, prompt in enumerate(prompts):
        engine.add_request(str(index), prompt, params(case))
    try:
        while engine.scheduler.queue:
            engine.step()
        yield engine.step
    finally:
        for index in range(len(prompts)):
            engine.abort_request(str(index))


def decode_step_ms(engine: Engine, prompts: list[Any], case: Case, device: str) -> float:
    """Milliseconds of a step in which all prompts decode, one step after the other."""
    with decoding(engine, prompts, case) as step:
        return median_ms(lambda: finish(device, [step() for _ in range(STRETCH)]), NEW_TOKENS // STRETCH // 2) / STRETCH


def print_profiles(engine: Engine, prompts: list[Any], case: Case, device: str) -> None:
    """Print where the time of an encoder pass and of a decode step goes."""
    inputs = [engine.preprocess(prompt).encoder for prompt in prompts[:WINDOWS]]
    with torch.inference_mode():
        print_profile("encoder", lambda: engine.executor.worker.runner.encoder.encode(inputs), device)
    with decoding(engine, prompts, case) as step:
        print_profile("decode step", step, device)


def print_profile(name: str, function: Callable[[], Any], device: str) -> None:
    """Print the kernels of a call that was made before."""
    finish(device, function())
    begin = time.perf_counter()
    finish(device, function())
    seconds = time.perf_counter() - begin
    with torch.profiler.profile() as profile:
        finish(device, function())
    print(f"{name}: {seconds * 1000:.2f} ms without the profiler")
    order = "self_device_time_total" if device != "cpu" else "self_cpu_time_total"
    print(profile.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=60))


def transformers_seconds(directory: Path, case: Case, device: str, features: torch.Tensor, batch: int) -> float:
    """Time of transformers' generate on windows of features, with SDPA in float16."""
    import transformers

    network = transformers.WhisperForConditionalGeneration.from_pretrained(
        directory, dtype=torch.float16 if device != "cpu" else torch.float32, attn_implementation="sdpa"
    ).to(device)
    start = torch.full((batch, 1), case.start, device=device)

    @torch.inference_mode()
    def run(windows: torch.Tensor) -> None:
        network.generate(
            windows.to(device, network.dtype),
            decoder_input_ids=start[: len(windows)],
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
        )

    run(features[:batch])
    begin = time.perf_counter()
    for first in range(0, len(features), batch):
        run(features[first : first + batch])
    finish(device, None)
    return time.perf_counter() - begin


def whisper(case: Case, engine: Engine, directory: Path, device: str, toy: bool, runs: int) -> None:
    """Print Whisper's figures."""
    model, config = engine.executor.worker.runner.model, engine.model_config
    rate, bandwidth = rates(device, model.encoder.embed_positions.dtype)
    prompts = whisper_prompts(engine, case, 4 if toy else 256, device)
    concurrent = min(case.concurrent, len(prompts))
    length, d = config.max_source_positions, config.d_model
    layer = 2 * length * (4 * d * d + 2 * d * config.encoder_ffn_dim) + 4 * length * length * d
    bound = config.encoder_layers * layer / rate * 1000
    print(f"encoder: {encoder_ms(engine, prompts, device, runs):.2f} ms a window; bound {bound:.2f} (arithmetic)")
    keys = 2 * config.decoder_layers * length * d * model.encoder.embed_positions.element_size()
    bound = (num_bytes(model.decoder) + concurrent * keys) / bandwidth * 1000
    step = decode_step_ms(engine, prompts[:concurrent], case, device)
    print(f"decode step, {concurrent} sequences: {step:.2f} ms; bound {bound:.2f} (memory)")
    ours = min(seconds_of(engine, prompts, case, device) for _ in range(runs))
    features = torch.stack([prompt["encoder_prompt"]["multi_modal_data"]["audio_features"] for prompt in prompts])
    theirs = transformers_seconds(directory, case, device, features, concurrent)
    print(f"{len(prompts)} windows: {ours:.2f} s, transformers {theirs:.2f} s: {theirs / ours:.2f}x")
    print(f"windows that end one by one: {joining_rate(engine, prompts, case, device, runs):.0f} new tokens/s")


def text(case: Case, engine: Engine, device: str, toy: bool, runs: int) -> None:
    """Print a text model's figure."""
    model = engine.executor.worker.runner.model
    prompts = text_prompts(case, 4 if toy else 4 * case.concurrent)
    seconds = min(seconds_of(engine, prompts, case, device) for _ in range(runs))
    _, bandwidth = rates(device, next(model.parameters()).dtype)
    steps = NEW_TOKENS * -(-len(prompts) // case.concurrent)
    shape = engine.shape
    numbers = 2 * shape.num_decoder_layers * shape.num_kv_heads * shape.head_dim  # that a token leaves in the cache
    a_token = numbers * next(model.parameters()).element_size()
    keys = sum(len(prompt["encoder_prompt"]["prompt_tokens"]) + NEW_TOKENS // 2 for prompt in prompts) * a_token
    bound = (steps * num_bytes(torch.nn.ModuleList([model.decoder, model.head])) + NEW_TOKENS * keys) / bandwidth
    rate = len(prompts) * NEW_TOKENS / seconds
    print(
        f"{len(prompts)} documents, {case.concurrent} at a time: {seconds:.2f} s, {rate:.0f} new tokens/s; "
        f"decoding's bound {len(prompts) * NEW_TOKENS / bound:.0f} new tokens/s (memory)"
    )
    print(f"documents that end one by one: {joining_rate(engine, prompts, case, device, runs):.0f} new tokens/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--quantization", choices=("int8", "fp8"))
    parser.add_argument("--kv-cache-dtype", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    device, dtype = arguments.device, torch.bfloat16 if arguments.device != "cpu" else torch.float32
    name = torch.cuda.get_device_name() if device != "cpu" else "a CPU"
    versions = {module: __import__(module).__version__ for module in ("torch", "transformers")}
    print(f"{name}, {dtype}, {json.dumps(versions)}")
    for model in arguments.models:
        case = CASES[model]
        with tempfile.TemporaryDirectory() as scratch:
            directory = checkpoint(case, arguments.toy, dtype, device, Path(scratch))
            engine = Engine(
                directory,
                device=device,
                max_num_seqs=case.concurrent,
                quantization=arguments.quantization,
                kv_cache_dtype=arguments.kv_cache_dtype,
                gpu_memory_utilization=0.5,  # more than these requests need; transformers runs beside it
            )
            backend, count = engine.executor.worker.runner.decoder.backend.name, 4 if arguments.toy else case.concurrent
            print(
                f"\n{model}, weights {arguments.quantization or dtype}, cache {arguments.kv_cache_dtype}, by {backend}"
            )
            if case.family == "Whisper":
                whisper(case, engine, directory, device, arguments.toy, arguments.runs)
            else:
                text(case, engine, device, arguments.toy, arguments.runs)
            if arguments.profile:
                speech = case.family == "Whisper"
                prompts = whisper_prompts(engine, case, count, device) if speech else text_prompts(case, count)
                print_profiles(engine, prompts, case, device)
            del engine
            gc.collect()  # memory, for the next model to find


if __name__ == "__main__":
    main()
