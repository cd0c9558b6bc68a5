"""Whole recordings on a CPU in float32: Transept's two modes and faster-whisper's.

    python -m benchmarks.transcription [--runs 5] [--models tiny.en base] [--sets librivox prompts-en] [--modes ...]

Each engine goes from a waveform to segments with times, on the same weights, in English, greedily (beam_size=1), with
its own features and defaults otherwise: sequential with the previous text as prompt and temperature fallback, batched
with windows cut by the same voice-activity model. faster-whisper's batched mode leaves timestamps out by default and
has no previous text as prompt: further rows have it with timestamps, and ours without that prompt. The clips of a set
are joined into one recording. The engines take turns, each in a process of its own; ratios are medians over the turns.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.transcripts import joined, seconds_of, word_error_rate
from benchmarks.turns import Record, Runner, add_json_option, print_table, take_turns
from benchmarks.whisper import SAMPLE_RATE, checkpoint

BATCH = 16  # windows at a time in faster-whisper's batched mode


def transept_runner(directory: Path, options: dict[str, Any]) -> Runner:
    from transept import Transcriber

    transcriber = Transcriber(directory)

    def run(recordings: list[np.ndarray]) -> list[str]:
        transcriber.engine.block_manager.reset()  # else the encoder's output would be there from the turn before
        return [
            transcriber.transcribe((waveform, SAMPLE_RATE), language="en", beam_size=1, **options).text
            for waveform in recordings
        ]

    return run


def faster_whisper(directory: Path) -> Any:
    from faster_whisper import WhisperModel

    return WhisperModel(str(directory), device="cpu", compute_type="float32", cpu_threads=torch.get_num_threads())


def text_of(segments: Any) -> str:
    return "".join(segment.text for segment in segments).strip()


def faster_sequential(directory: Path) -> Runner:
    model = faster_whisper(directory)
    return lambda recordings: [
        text_of(model.transcribe(waveform, language="en", beam_size=1)[0]) for waveform in recordings
    ]


def faster_batched(directory: Path, without_timestamps: bool) -> Runner:
    from faster_whisper import BatchedInferencePipeline

    pipeline = BatchedInferencePipeline(faster_whisper(directory))
    options = {"language": "en", "beam_size": 1, "batch_size": BATCH, "without_timestamps": without_timestamps}
    return lambda recordings: [text_of(pipeline.transcribe(waveform, **options)[0]) for waveform in recordings]


MODES: dict[str, dict[str, Callable[[Path], Runner]]] = {
    "sequential": {
        "transept": partial(transept_runner, options={}),
        "faster-whisper": faster_sequential,
    },
    "batched": {
        "transept": partial(transept_runner, options={"batched": True}),
        "transept, no context": partial(
            transept_runner, options={"batched": True, "condition_on_previous_text": False}
        ),
        "faster-whisper": partial(faster_batched, without_timestamps=True),
        "faster-whisper, timestamps": partial(faster_batched, without_timestamps=False),
    },
}


def compare(model: str, directory: Path, folder: str, mode: str, runs: int, record: Record) -> None:
    """Print and record one table: a row an engine."""
    waveform, spoken = joined(folder)
    engines = {name: partial(load, directory) for name, load in MODES[mode].items()}
    turns = take_turns(engines, [waveform], runs)
    seconds = seconds_of(waveform)
    print(f"\n{model}, {folder}, {mode}: one recording of {seconds:.1f} s, {runs} runs in turn")
    rows = print_table(
        turns, seconds, "audio s", ("word error rate", lambda texts: f"{word_error_rate(spoken, texts[0]):.2f} %")
    )
    record.add(f"{model}, float32, {folder} {mode}", seconds, "audio s", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=("tiny.en", "base"), default=["tiny.en", "base"])
    parser.add_argument("--sets", nargs="+", choices=("librivox", "prompts-en"), default=["librivox", "prompts-en"])
    parser.add_argument("--modes", nargs="+", choices=tuple(MODES), default=list(MODES))
    add_json_option(parser)
    arguments = parser.parse_args()
    versions = {name: __import__(name).__version__ for name in ("torch", "faster_whisper", "ctranslate2")}
    record = Record(arguments.json, f"python -m benchmarks.transcription, {arguments.runs} runs in turn", versions)
    print(f"{torch.get_num_threads()} threads, {json.dumps(versions)}")
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            directory = checkpoint(model, Path(scratch))
            for folder in arguments.sets:
                for mode in arguments.modes:
                    compare(model, directory, folder, mode, arguments.runs, record)


if __name__ == "__main__":
    main()
