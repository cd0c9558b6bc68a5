"""Whisper base on recordings in which the language changes: how much is lost of what is heard of each clip by itself.

    python -m benchmarks.languages en=FOLDER fr=FOLDER es=FOLDER [--mixes 6]

A folder holds short clips in one language. Each recording is of 50 to 110 s, in turns of 3 to 25 s, each in another
language than the one before, with pauses of 0.35 to 0.9 s. The reference is what the model hears of each clip, told its
language: what is left is what mixing costs. With faster-whisper's ``multilingual`` beside it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import jiwer
import numpy as np
from faster_whisper import BatchedInferencePipeline, WhisperModel
from whisper.normalizers import BasicTextNormalizer

from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber
from transept.multimodal.audio import load_audio

normalize = BasicTextNormalizer()  # case and punctuation do not count
TURNS = (3, 8, 15, 25)  # seconds, at least
PAUSES = (0.35, 0.9)  # seconds
SHORTEST_CLIP, LONGEST_CLIP = 1.5, 9.0  # seconds


def mixed(clips: dict[str, list[np.ndarray]], seed: int) -> list[tuple[str, int]]:
    """The clips of one recording, in order: language, and place in the language's list."""
    draw, found = random.Random(seed), []
    total, seconds, code = draw.uniform(50, 90), 0.0, ""
    while seconds < total:
        code = draw.choice([each for each in clips if each != code])
        turn, said = draw.choice(TURNS), 0.0
        while said < turn:
            place = draw.randrange(len(clips[code]))
            found.append((code, place))
            said += len(clips[code][place]) / SAMPLE_RATE
        seconds += said
    return found


def recording(clips: dict[str, list[np.ndarray]], placed: list[tuple[str, int]], seed: int) -> np.ndarray:
    """float32 [samples] at 16 kHz: the clips with pauses after them."""
    draw = random.Random(seed)
    pauses = (np.zeros(int(draw.uniform(*PAUSES) * SAMPLE_RATE), np.float32) for _ in placed)
    return np.concatenate(
        [part for (code, place), pause in zip(placed, pauses, strict=True) for part in (clips[code][place], pause)]
    )


def main() -> None:
    """Print a row for each way of transcribing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="LANGUAGE=FOLDER")
    parser.add_argument("--mixes", type=int, default=6)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model = checkpoint("base", Path(scratch))
        ours = Transcriber(str(model))
        theirs = WhisperModel(str(model), device="cpu", compute_type="float32")
    clips: dict[str, list[np.ndarray]] = {}
    for code, folder in (each.split("=", 1) for each in arguments.folders):
        loaded = [load_audio(str(file)) for file in sorted(Path(folder).iterdir()) if file.is_file()]
        clips[code] = [each for each in loaded if SHORTEST_CLIP < len(each) / SAMPLE_RATE < LONGEST_CLIP]
    batched = BatchedInferencePipeline(theirs)
    ways: dict[str, Callable[[np.ndarray], str]] = {
        "Transept": lambda sound: ours.transcribe(sound, multilingual=True, beam_size=1).text,
        "Transept, batched": lambda sound: ours.transcribe(sound, multilingual=True, batched=True).text,
        "faster-whisper": lambda sound: " ".join(
            each.text for each in theirs.transcribe(sound, multilingual=True, beam_size=1)[0]
        ),
        "faster-whisper, batched": lambda sound: " ".join(
            each.text for each in batched.transcribe(sound, multilingual=True, beam_size=1)[0]
        ),
    }
    references: list[str] = []
    heard: dict[str, list[str]] = {way: [] for way in ways}
    for seed in range(arguments.mixes):
        placed = mixed(clips, seed)
        alone = [ours.transcribe(clips[code][place], language=code, temperature=0.0).text for code, place in placed]
        references.append(normalize(" ".join(alone)))
        sound = recording(clips, placed, seed)
        for way, transcribe in ways.items():
            heard[way].append(normalize(transcribe(sound)))
            rate = jiwer.wer(references[-1], heard[way][-1])
            print(f"recording {seed}, {len(sound) / SAMPLE_RATE:.0f} s, {way}: {100 * rate:.1f} %", flush=True)
    for way in ways:
        print(f"| {way} | {100 * jiwer.wer(references, heard[way]):.1f} % |")


if __name__ == "__main__":
    main()
