"""Two hours in batched mode: peak memory, speed, and whether every clip that was put in is found exactly once.

    python -m benchmarks.long_recording [--model tiny.en] [--times 10] [--minutes 120] [--sequential]

The clips of prompts-en, tiled, with silence between them; --times 1 --minutes 6 is a short version. Exits with 1 when a
clip is lost or doubled.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import jiwer
import numpy as np
import soundfile

from benchmarks.transcripts import Clip, clips, normalize, word_error_rate
from benchmarks.whisper import SAMPLE_RATE, checkpoint

FOUND = 0.5  # of a clip's words: lost when fewer are there, doubled when as many are there that nobody said


@dataclass(frozen=True)
class Tiling:
    """A recording and the clips that it was made of, in order."""

    path: Path
    placed: list[Clip]
    seconds: float


def tile(folder: str, times: int, minutes: float, directory: Path) -> Tiling:
    """Write all clips of a set, the given times over, with silence of one length after each, to one file."""
    placed = clips(folder) * times
    spoken = sum(len(clip.waveform) for clip in placed)
    gap = (int(minutes * 60 * SAMPLE_RATE) - spoken) // len(placed)
    if gap < 0:
        raise SystemExit(f"{len(placed)} clips are {spoken / SAMPLE_RATE / 60:.1f} minutes; ask for more --minutes")
    path, silence = directory / "tiled.wav", np.zeros(gap, np.float32)
    with soundfile.SoundFile(path, "w", SAMPLE_RATE, channels=1, subtype="PCM_16") as file:
        for clip in placed:
            file.write(clip.waveform)
            file.write(silence)
    return Tiling(path, placed, (spoken + gap * len(placed)) / SAMPLE_RATE)


def lost_and_doubled(placed: list[Clip], written: str) -> tuple[list[int], list[int]]:
    """Places in the tiling whose clips are missing from the text, and those after which their words come again."""
    spoken = [normalize(clip.text).split() for clip in placed]
    owners = [place for place, words in enumerate(spoken) for _ in words]
    hits, extra = [0] * len(placed), [0] * len(placed)
    alignment = jiwer.process_words(" ".join(word for words in spoken for word in words), normalize(written))
    for chunk in alignment.alignments[0]:
        if chunk.type == "equal":
            for word in range(chunk.ref_start_idx, chunk.ref_end_idx):
                hits[owners[word]] += 1
        elif chunk.type == "insert":
            extra[owners[max(chunk.ref_start_idx - 1, 0)]] += chunk.hyp_end_idx - chunk.hyp_start_idx
    lost = [place for place, words in enumerate(spoken) if hits[place] < FOUND * len(words)]
    doubled = [place for place, words in enumerate(spoken) if extra[place] >= max(FOUND * len(words), 2)]
    return lost, doubled


def memory_mib(field: str) -> float:
    """VmRSS, what this process holds, or VmHWM, the most it ever held."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0]) / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("tiny.en", "base"), default="tiny.en")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--sequential", action="store_true")
    arguments = parser.parse_args()
    from transept import Transcriber

    with tempfile.TemporaryDirectory() as scratch:
        tiling = tile("prompts-en", arguments.times, arguments.minutes, Path(scratch))
        transcriber = Transcriber(checkpoint(arguments.model, Path(scratch)))
        loaded = memory_mib("VmRSS")
        begin = time.perf_counter()
        transcript = transcriber.transcribe(tiling.path, language="en", batched=not arguments.sequential)
        work = time.perf_counter() - begin
    rising = all(one.end <= other.start for one, other in pairwise(transcript.segments))
    lost, doubled = lost_and_doubled(tiling.placed, transcript.text)
    rate = word_error_rate(" ".join(clip.text for clip in tiling.placed), transcript.text)
    print(f"{tiling.seconds / 60:.1f} minutes, {len(tiling.placed)} clips, {len(transcript.segments)} segments")
    print(f"{work:.1f} s, {tiling.seconds / work:.1f} times real time; segments rise in time: {rising}")
    print(f"memory: {loaded:.0f} MiB with the model loaded, {memory_mib('VmHWM'):.0f} MiB at its peak")
    print(f"word error rate {rate:.2f} %; {len(lost)} clips lost, {len(doubled)} doubled")
    for name, places in (("lost", lost), ("doubled", doubled)):
        for place in places:
            print(f"{name}: {tiling.placed[place].name}, number {place}: {tiling.placed[place].text}")
    return 1 if lost or doubled or not rising else 0


if __name__ == "__main__":
    raise SystemExit(main())
