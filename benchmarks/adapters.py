"""Eight LoRA adapters in a batch of 32 beside none, on a CPU.

    python -m benchmarks.adapters [--shape bart-base] [--rank 16] [--turns 15] [--modules q_proj,v_proj]
        [--quantization int8] [--threads 1] [--churn 1000]

A decoder of BART base's shape (6 layers, 768 wide) or Whisper base's, with random weights. 32 requests decode greedily.
In every other turn each has one of eight adapters, else none. Prints the processor time of decode steps (all threads,
`time.process_time`), minima and medians over the turns, and the ratio. --churn N loads and unloads N adapters while
requests run, and prints the growth of memory and the number of wrong texts.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import BartConfig, BartForConditionalGeneration

from transept import Engine, SamplingParams

NUM_ADAPTERS, BATCH, STEPS = 8, 32, 12
SHAPES = {"bart-base": (768, 6, 12, 3072, 50265), "whisper-base": (512, 6, 8, 2048, 51865)}


def make_model(folder: Path, shape: str) -> Any:
    """Save a model with random weights."""
    width, layers, heads, inner, vocabulary = SHAPES[shape]
    torch.manual_seed(0)
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", layers), ("attention_heads", heads), ("ffn_dim", inner))
    }
    config = BartConfig(vocab_size=vocabulary, d_model=width, max_position_embeddings=512, init_std=0.05, **sides)
    model = BartForConditionalGeneration(config)
    model.generation_config.forced_eos_token_id = None
    model.save_pretrained(folder)
    return model


def save_adapter(model: Any, folder: Path, rank: int, modules: list[str], seed: int) -> str:
    """Save an adapter with random factors. Returns its folder."""
    folder.mkdir(exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": modules}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, layer in model.named_modules():
        if name.rpartition(".")[2] in modules:
            out, width = layer.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, width, generator=generator) * 0.05
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(out, rank, generator=generator) * 0.05
    save_file(tensors, folder / "adapter_model.safetensors")
    return str(folder)


def decode_seconds(engine: Engine, prompts: list[Any], names: list[str | None]) -> float:
    """Return the processor time of a step in which all prompts decode."""
    params = SamplingParams(temperature=0.0, num_beams=1, max_tokens=STEPS + 4, ignore_eos=True, detokenize=False)
    for index, (prompt, name) in enumerate(zip(prompts, names, strict=True)):
        engine.add_request(f"{index}", prompt, params, lora=name)
    engine.step()  # encodes
    engine.step()
    seconds = []
    for _ in range(STEPS):
        begin = time.process_time()
        engine.step()
        seconds.append(time.process_time() - begin)
    while engine.has_unfinished_requests:
        engine.step()
    return min(seconds)


def churn(engine: Engine, folders: list[str], prompt: Any, count: int) -> None:
    """Load and unload adapters while requests run; each text must be its adapter's."""
    params = SamplingParams(temperature=0.0, num_beams=1, max_tokens=4, ignore_eos=True, detokenize=False)
    expected = [
        engine.generate(prompt, params, lora=f"a{index}")[0].outputs[0].token_ids for index in range(len(folders))
    ]
    memory, wrong, outputs = 0, 0, dict[str, Any]()
    for turn in range(count):
        index = turn % len(folders)
        engine.load_adapter(f"turn {turn}", folders[index])
        engine.add_request(f"{turn}", prompt, params, lora=f"turn {turn}")
        engine.unload_adapter(f"turn {turn}")
        outputs |= {each.request_id: each for each in engine.step() if each.finished}
        if turn == count // 10:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while engine.has_unfinished_requests:
        outputs |= {each.request_id: each for each in engine.step() if each.finished}
    for request_id, output in outputs.items():
        wrong += output.outputs[0].token_ids != expected[int(request_id) % len(folders)]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    print(
        f"{count} loads and unloads: {len(outputs)} texts, {wrong} wrong; peak memory grew by {grown / 1024:.1f} MB "
        f"after the first tenth"
    )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="bart-base")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--modules", default="q_proj,v_proj")
    parser.add_argument("--quantization")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--churn", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        model = make_model(Path(made), given.shape)
        modules = given.modules.split(",")
        folders = [save_adapter(model, Path(made) / f"a{i}", given.rank, modules, i) for i in range(NUM_ADAPTERS)]
        del model
        draw = random.Random(0)
        prompts = [{"prompt_tokens": [draw.randrange(4, 50000) for _ in range(48)]} for _ in range(BATCH)]
        adapters = {f"a{index}": folder for index, folder in enumerate(folders)}
        names: list[str | None] = [f"a{index % NUM_ADAPTERS}" for index in range(BATCH)]
        options: dict[str, Any] = {"quantization": given.quantization, "dtype": given.dtype, "threads": given.threads}
        with Engine(made, adapters=adapters, **options) as engine:
            times: dict[str, list[float]] = {"none": [], "eight": []}
            for _ in range(given.turns):
                times["none"].append(decode_seconds(engine, prompts, [None] * BATCH))
                times["eight"].append(decode_seconds(engine, prompts, names))
            for name, each in times.items():
                print(f"{name:6} ms of a step: least {1e3 * min(each):.2f}, median {1e3 * statistics.median(each):.2f}")
            least = min(times["eight"]) / min(times["none"])
            ratios = [eight / none for eight, none in zip(times["eight"], times["none"], strict=True)]
            print(f"eight adapters beside none: {least:.3f} by minima, {statistics.median(ratios):.3f} by medians")
            if given.churn:
                churn(engine, folders, prompts[0], given.churn)


if __name__ == "__main__":
    main()
