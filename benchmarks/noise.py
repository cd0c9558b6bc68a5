"""Word errors on degraded speech, without and with treatments of the audio.

    python -m benchmarks.noise [--models tiny.en base] [--half report] [--conditions clean reverb] [--seeds 1]
        [--treatments none WPE "even loudness"] [--mode auto] [--threads 1]

The clips of the test data, with pauses of half a second, make a few recordings, which `benchmarks.degraded` degrades.
Parameters are chosen on one half of the clips ("choose"), and reported on the other ("report"). --conditions takes
beginnings of names: "babble" is all its levels. Random degradations are drawn --seeds times. CPU seconds are for a
minute of audio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import jiwer
import numpy as np

from benchmarks.degraded import CONDITIONS, RANDOM, scaled
from benchmarks.transcripts import Clip, clips, normalize
from benchmarks.treatments import TREATMENTS, Treatment
from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber, Transcript

PAUSE = 0.5  # seconds between clips
NUM_RECORDINGS = 4
Mode: TypeAlias = Literal["auto", "sequential", "batched"]
CHOOSE, REPORT = HALVES = ("choose", "report")


@dataclass(frozen=True)
class Recording:
    """A degraded recording and its reference text. waveform: float32 [num_samples] at 16 kHz."""

    waveform: np.ndarray
    text: str


@dataclass(frozen=True)
class Result:
    """Word errors in percent, and CPU seconds of treatment and of transcription for a minute of audio."""

    word_errors: float
    treatment: float
    transcription: float


def half_of_clips(half: str) -> list[Clip]:
    """Every other clip, shuffled."""
    known = (clips("prompts-en") + clips("librivox"))[HALVES.index(half) :: 2]
    return [known[index] for index in np.random.default_rng(5).permutation(len(known))]


def clean_recordings(half: str) -> list[Recording]:
    """The clips of a half, joined to NUM_RECORDINGS recordings of about the same length."""
    parts = half_of_clips(half)
    ends = np.cumsum([len(clip.waveform) for clip in parts])
    groups = np.minimum((ends - 1) * NUM_RECORDINGS // ends[-1], NUM_RECORDINGS - 1)
    gap = np.zeros(int(PAUSE * SAMPLE_RATE), np.float32)
    recordings = []
    for group in range(NUM_RECORDINGS):
        own = [clip for clip, number in zip(parts, groups, strict=True) if number == group]
        waveforms = [piece for clip in own for piece in (scaled(clip.waveform), gap)]
        recordings.append(Recording(np.concatenate([gap, *waveforms]), " ".join(clip.text for clip in own)))
    return recordings


def degraded_recordings(half: str, condition: str, seeds: int) -> list[Recording]:
    """The recordings of a half under a condition; the other half's clips are the babble."""
    other = next(each for each in HALVES if each != half)
    others = np.concatenate([scaled(clip.waveform) for clip in half_of_clips(other)])
    degrade, recordings = CONDITIONS[condition], clean_recordings(half)
    return [
        Recording(degrade(each.waveform, others, np.random.default_rng([seed, number])), each.text)
        for seed in range(seeds if condition.startswith(RANDOM) else 1)
        for number, each in enumerate(recordings)
    ]


def measure(transcriber: Transcriber, recordings: list[Recording], treatment: Treatment, mode: Mode) -> Result:
    """Treat and transcribe recordings."""
    language = None if transcriber.model.is_english_only else "en"
    begin = time.process_time()
    treated = [treatment(each.waveform) for each in recordings]
    middle = time.process_time()
    found = list(transcriber.transcribe_many(treated, mode=mode, language=language))
    end = time.process_time()
    texts = []
    for each in found:
        if not isinstance(each, Transcript):
            raise each
        texts.append(normalize(each.text))
    errors = 100 * jiwer.wer([normalize(each.text) for each in recordings], texts)
    minutes = sum(len(each.waveform) for each in recordings) / SAMPLE_RATE / 60
    return Result(errors, (middle - begin) / minutes, (end - middle) / minutes)


def main() -> None:
    """Print a row for each model, condition and treatment."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--half", choices=HALVES, default=REPORT)
    parser.add_argument("--conditions", nargs="+", metavar="NAME", default=[""])
    parser.add_argument("--treatments", nargs="+", choices=TREATMENTS, default=list(TREATMENTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--mode", choices=get_args(Mode), default="auto")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    conditions = [name for name in CONDITIONS if name.startswith(tuple(arguments.conditions))]
    print("| model | condition | treatment | word errors % | CPU s/min, treatment | CPU s/min, transcription |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            transcriber = Transcriber(str(checkpoint(name, Path(scratch))), threads=arguments.threads)
            for condition in conditions:
                recordings = degraded_recordings(arguments.half, condition, arguments.seeds)
                for treatment in arguments.treatments:
                    result = measure(transcriber, recordings, TREATMENTS[treatment], arguments.mode)
                    cells = f"{result.word_errors:.2f} | {result.treatment:.2f} | {result.transcription:.2f}"
                    print(f"| {name} | {condition} | {treatment} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
