"""CPU seconds of a Conformer encoder for 30 s of audio, beside transformers, in turns in one process.

    python -m benchmarks.conformer [--layers 18] [--hidden 1024] [--turns 5] [--threads 2]

The model is a Canary with random weights and one decoder layer; a request writes one token, so nearly all the time is
the encoder's. transformers runs in float32 and bfloat16, Transept also in int8. Seconds are the process's, summed over
threads, so that other programs disturb them little; ratios are to transformers in float32, medians over turns.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import CanaryConfig, CanaryForConditionalGeneration, ParakeetFeatureExtractor

from benchmarks.weights import TRANSEPT
from transept import Engine, SamplingParams

SECONDS, RATE, VOCABULARY, BINS = 30, 16_000, 512, 128


def canary(layers: int, hidden: int) -> CanaryForConditionalGeneration:
    """Make the model, in float32 with random weights."""
    torch.manual_seed(0)
    encoder = {"model_type": "parakeet_encoder", "hidden_size": hidden, "num_hidden_layers": layers}
    sizes = {"num_hidden_layers": 1, "hidden_size": hidden, "head_dim": hidden // 8, "vocab_size": VOCABULARY}
    config = CanaryConfig(
        encoder_config=encoder | {"intermediate_size": 4 * hidden, "num_mel_bins": BINS, "scale_input": False},
        decoder_config={"model_type": "canary_decoder", "intermediate_size": 4 * hidden, **sizes},
        vocab_size=VOCABULARY,
    )
    return CanaryForConditionalGeneration(config).eval()


def runners(layers: int, hidden: int) -> dict[str, Callable[[np.ndarray], Any]]:
    """Return name -> a function of a waveform."""
    extract, model = ParakeetFeatureExtractor(feature_size=BINS), canary(layers, hidden)
    params = SamplingParams(temperature=0.0, max_tokens=1, num_beams=1)

    def of_transformers(model: Any, dtype: torch.dtype) -> Callable[[np.ndarray], Any]:
        @torch.inference_mode()
        def run(waveform: np.ndarray) -> Any:
            features = extract(waveform, sampling_rate=RATE, return_tensors="pt")
            given = {"input_features": features.input_features.to(dtype), "attention_mask": features.attention_mask}
            return model(**given, decoder_input_ids=torch.tensor([[7]])).logits

        return run

    def of_transept(engine: Engine) -> Callable[[np.ndarray], Any]:
        def run(waveform: np.ndarray) -> Any:
            return engine.generate([{"multi_modal_data": {"audio": (waveform, RATE)}}], params)

        return run

    made: dict[str, Callable[[np.ndarray], Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for name, options in TRANSEPT.items():
            engine = Engine(folder, **options, threads=torch.get_num_threads())
            made[f"transept {name}"] = of_transept(engine)
    made["transformers float32"] = of_transformers(model, torch.float32)
    made["transformers bfloat16"] = of_transformers(canary(layers, hidden).bfloat16(), torch.bfloat16)
    return made


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 18), ("hidden", 1024), ("turns", 5), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"{args.threads} threads")
    made, generator = runners(args.layers, args.hidden), np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(args.turns + 1):
        waveform = generator.normal(0, 0.1, SECONDS * RATE - turn).astype(np.float32)
        for name, run in made.items():
            begin = time.process_time()
            run(waveform)
            if turn:  # the first one warms up
                seconds[name].append(time.process_time() - begin)
    print(
        f"\n{args.layers} layers of {args.hidden}, {SECONDS} s of audio\n\n| engine | CPU s | of transformers float32 |"
    )
    print("| --- | --- | --- |")
    for name, own in seconds.items():
        ratio = statistics.median(map(float.__truediv__, own, seconds["transformers float32"]))
        print(f"| {name} | {statistics.median(own):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
