"""Each mode on recordings with pauses and on continuous ones: word errors, lost sentences, words in pauses, CPU time.

    python -m benchmarks.modes [--models tiny.en base] [--seeds 0 1 2] [--modes auto sequential vad batched]
        [--kinds pauses continuous] [--texts es=FOLDER fr=FOLDER] [--faster-whisper]

A recording with pauses is made of 84 clips of the test data, in an order that its seed draws, with 0.3 to 20 s
between them: digital silence, a faint noise or a hum, by seed. Continuous ones are the reading of *Sense and
Sensibility*, and the prompts in their order, joined to recordings of 20 s to 10 minutes; with --texts also those of
other folders, for the multilingual model. A clip without a transcript counts as the model hears it by itself, with
five beams.

A sentence is lost when fewer than half of its words are there. Words are in a pause when their whole segment lies
there, at least 0.3 s from any sound. A cue is early by the seconds between its start and the first sound after it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jiwer
import numpy as np
import torch
from whisper.normalizers import BasicTextNormalizer, EnglishTextNormalizer

from benchmarks.long_recording import FOUND
from benchmarks.transcripts import Clip, clips
from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber
from transept.multimodal.audio import load_audio

NUM_SENTENCES = 84
PAUSES = (0.3, 20.0)  # seconds
SHORT_PAUSES = (0.1, 0.6)  # seconds, between the clips of a continuous recording
LENGTHS = (20.0, 45.0, 70.0, 180.0, 600.0)  # seconds of continuous recordings
MARGIN = 0.3  # seconds around sound in which a word may lie
LOUD = 0.01  # of full scale: sound
MIN_CLIP, MAX_CLIP = 2.6, 12.0  # seconds of clips without a transcript
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "sequential": {"mode": "sequential"},
    "vad": {"mode": "sequential", "vad": True},
    "batched": {"mode": "batched"},
}


@dataclass(frozen=True)
class Recording:
    """What is transcribed. sounds: (begin, end) in seconds of each clip's sound; none where nobody asks for pauses."""

    name: str
    language: str
    waveform: np.ndarray
    texts: list[str]
    sounds: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class Heard:
    """One way's results on some recordings."""

    spoken: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    lost: int = 0
    in_pauses: int = 0
    earliest: float = 0.0
    missed: int = 0
    cpu: float = 0.0


def with_pauses(seed: int) -> Recording:
    """A recording of NUM_SENTENCES clips with pauses."""
    draw = random.Random(seed)
    known = clips("librivox") + clips("prompts-en")
    placed = [draw.choice(known) for _ in range(NUM_SENTENCES)]
    parts, sounds, position = [], [], 0
    for clip in placed:
        pause = int(draw.uniform(*PAUSES) * SAMPLE_RATE)
        loud = np.flatnonzero(np.abs(clip.waveform) > LOUD)
        begin = position + pause
        sounds.append(((begin + loud[0]) / SAMPLE_RATE, (begin + loud[-1]) / SAMPLE_RATE))
        parts += [np.zeros(pause, np.float32), clip.waveform]
        position = begin + len(clip.waveform)
    waveform = np.concatenate(parts)
    if seed % 3 == 1:
        waveform += np.random.default_rng(seed).normal(0, 0.001, len(waveform)).astype(np.float32)
    elif seed % 3 == 2:
        waveform += (0.002 * np.sin(2 * np.pi * 50 / SAMPLE_RATE * np.arange(len(waveform)))).astype(np.float32)
    return Recording(f"pauses {seed}", "en", waveform, [clip.text for clip in placed], sounds)


def continuous(name: str, language: str, known: list[Clip], seconds: float, seed: int) -> Recording:
    """Clips in their order, from one that the seed draws, with short pauses, until there are so many seconds."""
    draw = random.Random(seed)
    first, placed, total = draw.randrange(len(known)), [], 0.0
    while total < seconds:
        clip = known[(first + len(placed)) % len(known)]
        pause = np.zeros(int(draw.uniform(*SHORT_PAUSES) * SAMPLE_RATE), np.float32)
        placed.append((clip, pause))
        total += (len(clip.waveform) + len(pause)) / SAMPLE_RATE
    waveform = np.concatenate([part for clip, pause in placed for part in (clip.waveform, pause)])
    return Recording(name, language, waveform, [clip.text for clip, _ in placed])


def book() -> Recording:
    """The reading of the test data, in the order of the book."""
    parts = clips("librivox")
    return Recording("book", "en", np.concatenate([clip.waveform for clip in parts]), [clip.text for clip in parts])


def clips_of(model: Any, language: str, folder: Path) -> list[Clip]:
    """Audio files as clips. Their texts: a file of the same name that ends in .txt, or else what the model hears."""
    found = []
    for file in sorted(each for each in folder.iterdir() if each.suffix != ".txt"):
        waveform, known = load_audio(str(file)), file.with_suffix(".txt")
        if known.exists():
            text = known.read_text()
        elif MIN_CLIP < len(waveform) / SAMPLE_RATE < MAX_CLIP:
            text = model.transcribe(waveform, language=language, mode="sequential", beam_size=5, temperature=0.0).text
        else:
            continue
        found.append(Clip(file.name, waveform, text))
    return found


def judge(heard: Heard, recording: Recording, transcript: Any) -> None:
    """Add what one transcript says of a recording."""
    normalize = EnglishTextNormalizer() if recording.language == "en" else BasicTextNormalizer()
    spoken = [normalize(text).split() for text in recording.texts]
    written = normalize(transcript.text)
    heard.spoken.append(" ".join(word for words in spoken for word in words))
    heard.written.append(written)
    heard.missed += len(transcript.missed_speech)
    owners = [place for place, words in enumerate(spoken) for _ in words]
    hits = [0] * len(spoken)
    for chunk in jiwer.process_words(heard.spoken[-1], written).alignments[0]:
        if chunk.type == "equal":
            for word in range(chunk.ref_start_idx, chunk.ref_end_idx):
                hits[owners[word]] += 1
    lost = [place for place, words in enumerate(spoken) if hits[place] < FOUND * len(words)]
    heard.lost += len(lost)
    if not recording.sounds:
        return
    begins, ends = (np.array(times) for times in zip(*recording.sounds, strict=True))
    for segment in transcript.segments:
        if not np.any((begins - MARGIN < segment.end) & (ends + MARGIN > segment.start)):
            heard.in_pauses += len(segment.text.split())
        if not np.any((begins <= segment.start) & (ends >= segment.start)):
            following = begins[begins > segment.start]
            early = float(following[0] - segment.start) if len(following) and segment.end > following[0] else 0.0
            heard.earliest = max(heard.earliest, early)


def transept_ways(directory: Path, modes: list[str]) -> dict[str, Callable[[Recording], Any]]:
    """Ways of transcribing with Transept, by mode."""
    transcriber = Transcriber(str(directory))

    def way(options: dict[str, Any], recording: Recording) -> Any:
        transcriber.engine.block_manager.reset()  # else the encoder's output would be there from another mode
        language = None if transcriber.model.is_english_only else recording.language
        return transcriber.transcribe(recording.waveform, language=language, **options)

    return {mode: partial(way, WAYS[mode]) for mode in modes}


def faster_whisper_way(directory: Path) -> Callable[[Recording], Any]:
    """faster-whisper's batched pipeline, greedily, as a transcript."""
    from faster_whisper import BatchedInferencePipeline, WhisperModel

    model = WhisperModel(str(directory), device="cpu", compute_type="float32", cpu_threads=torch.get_num_threads())
    pipeline = BatchedInferencePipeline(model)

    def way(recording: Recording) -> Any:
        segments = list(pipeline.transcribe(recording.waveform, language=recording.language, beam_size=1)[0])
        text = "".join(segment.text for segment in segments)
        return SimpleNamespace(text=text, segments=segments, missed_speech=[])

    return way


def main() -> None:
    """Print a row for each way of transcribing, model and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--modes", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--kinds", nargs="+", choices=("pauses", "continuous"), default=["pauses", "continuous"])
    parser.add_argument("--texts", nargs="*", default=[], metavar="LANGUAGE=FOLDER")
    parser.add_argument("--faster-whisper", action="store_true")
    arguments = parser.parse_args()
    print("| model | kind | mode | word errors | lost | words in pauses | earliest cue | missed | CPU |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            directory = checkpoint(name, Path(scratch))
            ways = transept_ways(directory, arguments.modes)
            if arguments.faster_whisper:
                ways["faster-whisper, batched"] = faster_whisper_way(directory)
            for kind in arguments.kinds:
                recordings = [with_pauses(seed) for seed in arguments.seeds]
                if kind == "continuous":
                    sets = [("en", "prompts", clips("prompts-en"))]
                    for code, folder in (each.split("=", 1) for each in arguments.texts if name == "base"):
                        sets.append(
                            (code, Path(folder).name, clips_of(Transcriber(str(directory)), code, Path(folder)))
                        )
                    recordings = [book()]
                    for code, of, known in sets:
                        recordings += [continuous(f"{of} {s:.0f} s", code, known, s, int(s)) for s in LENGTHS]
                for way, transcribe in ways.items():
                    print_row(name, kind, way, transcribe, recordings)


def print_row(
    model: str, kind: str, way: str, transcribe: Callable[[Recording], Any], recordings: list[Recording]
) -> None:
    """Transcribe all recordings one way, and print what it costs and what it gets wrong."""
    heard = Heard()
    for recording in recordings:
        begin = time.process_time()
        transcript = transcribe(recording)
        heard.cpu += time.process_time() - begin
        judge(heard, recording, transcript)
    rate = 100 * jiwer.wer(heard.spoken, heard.written)
    print(
        f"| {model} | {kind} | {way} | {rate:.2f} % | {heard.lost} | {heard.in_pauses} | {heard.earliest:.2f} s | "
        f"{heard.missed} | {heard.cpu:.1f} s |",
        flush=True,
    )


if __name__ == "__main__":
    main()
