"""Diarization errors of mixtures of known voices.

    python -m benchmarks.speakers VOICES [VOICES ...] [--seconds 60] [--seeds 1] [--seed 0] [--kinds clean overlap ...]

VOICES: a folder with one folder of clips for each voice. Debian's asterisk-core-sounds-{en,fr,it,ru}-g722, unpacked and
turned into FLAC, are such voices (es is spoken by the voice of en).

Mixtures have two to four voices in turn: with pauses of 0.2 to 1 s (clean), without pauses (joined), with turns that
begin 0.4 to 1.2 s (overlap) or 0.6 to 2 s (long overlap) before the end of the previous one, or with pauses and white
noise or babble of other voices, 20 and 15 dB below the speech. Every mixture is diarized twice: with an unknown and
with the given number of speakers. The error rate has a collar of 0.25 s; it counts missed, false and wrongly assigned
speech, also where voices overlap.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from transept.multimodal.audio import SAMPLE_RATE, load_audio
from transept.registry.diarizers import find_diarizer
from transept.registry.plugins import discover

Waveform = npt.NDArray[np.float32]
Turn = tuple[float, float, str]  # start, end, speaker

KINDS = ("clean", "joined", "overlap", "long overlap", "white 20", "white 15", "babble 20", "babble 15")
OVERLAPS = {"overlap": (0.4, 1.2), "long overlap": (0.6, 2.0)}  # seconds, of two turns
FRAME = SAMPLE_RATE // 100  # samples
COLLAR = 25  # frames on both sides of each boundary that do not count
PAUSE = 0.5  # seconds; shorter pauses within a clip count as speech
LOUDNESS = 0.05  # root mean square of each clip's speech
LONGEST_CLIP = 8  # seconds
BABBLE_VOICES = 8


@dataclass
class Clip:
    """A clip without silence at its ends. speech: stretches in seconds."""

    waveform: Waveform
    speech: list[tuple[float, float]]


@dataclass
class Mixture:
    """A recording of several voices, and when each speaks."""

    kind: str
    voices: list[str]
    waveform: Waveform
    turns: list[Turn]


@dataclass
class Errors:
    """Shares of the speech of one recording. found: number of speakers."""

    missed: float
    false: float
    confused: float
    found: int

    @property
    def rate(self) -> float:
        """The diarization error rate."""
        return self.missed + self.false + self.confused


def read_clip(file: Path) -> Clip | None:
    """Return a clip whose speech has the usual loudness; None if it is shorter than a second."""
    waveform = load_audio(file, SAMPLE_RATE)[: LONGEST_CLIP * SAMPLE_RATE]
    frames = waveform[: len(waveform) // FRAME * FRAME].reshape(-1, FRAME)
    if len(frames) < 100:
        return None
    decibels = np.convolve(10 * np.log10(np.square(frames).mean(axis=1) + 1e-10), np.ones(3) / 3, "same")
    loudest = decibels.max()
    floor = min(float(np.percentile(decibels, 5)) + 10, loudest - 20)
    (loud,) = np.nonzero(decibels > max(loudest - 35, -70, floor))
    frames = frames[loud[0] : loud[-1] + 1]
    (breaks,) = np.nonzero(np.diff(loud) > PAUSE * 100)
    starts, ends = [0, *(loud[breaks + 1] - loud[0])], [*(loud[breaks] + 1 - loud[0]), len(frames)]
    scale = LOUDNESS / float(np.sqrt(np.square(frames[loud - loud[0]]).mean()))
    speech = [(float(start) / 100, float(end) / 100) for start, end in zip(starts, ends, strict=True)]
    return Clip((frames * np.float32(scale)).reshape(-1), speech)


def mix(kind: str, voices: Mapping[str, list[Clip]], count: int, seconds: float, seed: int) -> Mixture:
    """Return a recording of `count` voices, of about `seconds`."""
    draw = random.Random(f"{kind} {count} {seed}")
    names = draw.sample(sorted(voices), count)
    waveform = np.zeros(int((seconds + 30) * SAMPLE_RATE), np.float32)
    turns: list[Turn] = []
    end, last = 0, ""
    while end < seconds * SAMPLE_RATE:
        for name in draw.sample(names, count):
            if name == last:
                continue
            start = max(end + int(_gap(kind, draw) * SAMPLE_RATE), 0)
            wanted, last = start + draw.uniform(1.5, 7) * SAMPLE_RATE, name
            while start < wanted:
                clip = draw.choice(voices[name])
                waveform[start : start + len(clip.waveform)] += clip.waveform
                turns += [(start / SAMPLE_RATE + begin, start / SAMPLE_RATE + to, name) for begin, to in clip.speech]
                end = max(end, start + len(clip.waveform))
                start += len(clip.waveform) + SAMPLE_RATE // 5
            if end >= seconds * SAMPLE_RATE:
                break
    waveform = waveform[: end + SAMPLE_RATE // 3]
    sort, _, level = kind.partition(" ")
    if level.isdigit():
        others = [clip for name in sorted(voices) if name not in names for clip in voices[name]]
        noise = white(len(waveform), seed) if sort == "white" else babble(others, len(waveform), draw)
        waveform += noise * np.float32(LOUDNESS * 10 ** (-float(level) / 20) / noise.std())
    return Mixture(kind, names, waveform * np.float32(0.5 / np.abs(waveform).max()), turns)


def _gap(kind: str, draw: random.Random) -> float:
    """Return the seconds between two turns; negative if they overlap."""
    overlap, pause = draw.random(), draw.random()  # both for every kind, so that turns have the same lengths
    if kind in OVERLAPS:
        shortest, longest = OVERLAPS[kind]
        return -(shortest + (longest - shortest) * overlap)
    return 0.0 if kind == "joined" else 0.2 + 0.8 * pause


def white(length: int, seed: int) -> Waveform:
    """Return white noise."""
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


def babble(clips: Sequence[Clip], length: int, draw: random.Random) -> Waveform:
    """Return several sequences of clips at once."""
    noise = np.zeros(length, np.float32)
    for _ in range(BABBLE_VOICES):
        start = 0
        while start < length:
            part = draw.choice(clips).waveform[: length - start]
            noise[start : start + len(part)] += part
            start += len(part)
    return noise


def errors(expected: Sequence[Turn], found: Sequence[Turn]) -> Errors:
    """Return the errors of turns, after the best assignment of found to expected speakers."""
    length = int(max((end for _, end, _ in [*expected, *found]), default=0) * 100) + 1
    truth, guess = _activity(expected, length), _activity(found, length)
    counted = np.ones(length, bool)
    for row in truth:
        for boundary in np.flatnonzero(np.diff(row, prepend=False, append=False)):
            counted[max(0, boundary - COLLAR) : boundary + COLLAR] = False
    truth, guess = truth[:, counted], guess[:, counted]
    rows, columns = linear_sum_assignment(-(truth.astype(int) @ guess.T.astype(int)))
    right = (truth[rows] & guess[columns]).sum(axis=0)
    speaking, heard = truth.sum(axis=0), guess.sum(axis=0)
    total = speaking.sum()
    return Errors(
        missed=float(np.maximum(speaking - heard, 0).sum() / total),
        false=float(np.maximum(heard - speaking, 0).sum() / total),
        confused=float((np.minimum(speaking, heard) - right).sum() / total),
        found=len(guess),
    )


def _activity(turns: Sequence[Turn], length: int) -> npt.NDArray[np.bool_]:
    """Return who speaks when, [speakers, frames]."""
    names = sorted({name for *_, name in turns})
    active = np.zeros((len(names), length), bool)
    for start, end, name in turns:
        active[names.index(name), round(start * 100) : round(end * 100)] = True
    return active


def mixtures(voices: Mapping[str, list[Clip]], arguments: argparse.Namespace) -> Iterator[Mixture]:
    """Yield a mixture for each kind, number of voices and seed."""
    for kind in arguments.kinds:
        for count in range(2, min(4, len(voices)) + 1):
            for seed in range(arguments.seed, arguments.seed + arguments.seeds):
                yield mix(kind, voices, count, arguments.seconds, seed)


def main() -> None:
    """Print a line for each mixture, and means for an unknown and for a given number of speakers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("voices", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=1, help="mixtures of each kind and number of voices")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments = parser.parse_args()
    folders = sorted(each for folder in arguments.voices for each in folder.iterdir() if each.is_dir())
    voices = {
        folder.name: [clip for file in sorted(folder.iterdir()) if (clip := read_clip(file))] for folder in folders
    }
    diarizer = find_diarizer(discover())
    results: dict[str, list[tuple[Mixture, Errors]]] = {"unknown": [], "given": []}
    cpu = length = 0.0
    for mixture in mixtures(voices, arguments):
        for known, done in results.items():
            number = len(mixture.voices) if known == "given" else None
            start = time.process_time()
            found = diarizer(mixture.waveform, SAMPLE_RATE, number, number)
            cpu += time.process_time() - start
            length += len(mixture.waveform) / SAMPLE_RATE
            done.append((mixture, errors(mixture.turns, found)))
        line = f"{mixture.kind:<10} {len(mixture.voices)} voices"
        for known, done in results.items():
            got = done[-1][1]
            parts = f"{got.missed:.1%} missed, {got.false:.1%} false, {got.confused:.1%} confused"
            line += f" | {known}: {got.rate:.1%} ({parts}), {got.found} found"
        print(line, flush=True)
    for known, done in results.items():
        rates = [got.rate for _, got in done]
        right = sum(got.found == len(mixture.voices) for mixture, got in done)
        print(f"{known}: mean {np.mean(rates):.2%}, worst {max(rates):.1%}, number right in {right} of {len(done)}")
    print(f"{cpu / length * 60:.2f} CPU seconds per minute")


if __name__ == "__main__":
    main()
