"""Errors of word times, on speech whose word boundaries are known.

    python -m benchmarks.word_times [--models tiny.en base] [--ways auto align] [--noise 20] [--seed 0]
        [--kinds espeak-ng flite clips] [--sentences 60] [--as-attended]

Sentences of the test data's transcripts, spoken by espeak-ng and flite with a new voice for each, and the test data's
own clips, where only the start of the first word and the end of the last one are known. Silence of 0.3 to 2.5 s
separates them. --noise adds white noise, this many decibels below the speech. --as-attended turns refine_word_times
off. Only correctly transcribed words count.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.spoken_words import SYNTHESIZERS, SpokenWord, Utterance, written_words
from benchmarks.transcripts import Clip, clips
from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber

PAUSES = (0.3, 2.5)  # seconds
RATES = (130, 160, 190)  # words per minute
PEAK = 0.5  # of full scale
FRAME = 80  # samples, 5 ms
QUIET = 30.0  # decibels below a clip's loudest frame: silence
KINDS = ("espeak-ng", "flite", "clips")


def synthetic(kind: str, text: str, number: int, draw: random.Random) -> Utterance:
    """Speak a sentence with the next of a synthesizer's voices."""
    speak, voices = SYNTHESIZERS[kind]
    voice = voices[number % len(voices)]
    return speak(text, voice, draw.choice(RATES)) if kind == "espeak-ng" else speak(text, voice)


def recorded(clip: Clip) -> Utterance:
    """Return a clip as an utterance. Only the start of its first word and the end of its last one are known."""
    frames = clip.waveform[: len(clip.waveform) // FRAME * FRAME].reshape(-1, FRAME)
    decibels = 10 * np.log10(np.square(frames).mean(axis=1) + 1e-10)
    (loud,) = np.nonzero(decibels > decibels.max() - QUIET)
    texts = written_words(clip.text)
    starts = [loud[0] * FRAME / SAMPLE_RATE, *[None] * (len(texts) - 1)]
    ends = [*[None] * (len(texts) - 1), (loud[-1] + 1) * FRAME / SAMPLE_RATE]
    return Utterance(clip.waveform, [SpokenWord(*each) for each in zip(texts, starts, ends, strict=True)])


def recording(kind: str, sentences: int, noise: float | None, seed: int) -> tuple[Utterance, list[str]]:
    """Return one utterance of several with silence between them, and the text of each."""
    draw = random.Random(seed)
    known = clips("prompts-en") + clips("librivox")
    draw.shuffle(known)
    parts, words, texts, position = [], list[SpokenWord](), [], 0
    for number, clip in enumerate(islice(cycle(known), sentences)):
        spoken = recorded(clip) if kind == "clips" else synthetic(kind, clip.text, number, draw)
        pause = np.zeros(int(draw.uniform(*PAUSES) * SAMPLE_RATE), np.float32)
        parts += [pause, spoken.waveform * (PEAK / np.abs(spoken.waveform).max())]
        shift = (position + len(pause)) / SAMPLE_RATE
        for word in spoken.words:
            start, end = (None if time is None else time + shift for time in (word.start, word.end))
            words.append(SpokenWord(word.text, start, end))
        texts.append(clip.text)
        position += len(pause) + len(spoken.waveform)
    waveform = np.concatenate([*parts, np.zeros(SAMPLE_RATE, np.float32)])
    if noise is not None:
        level = np.sqrt(np.square(np.concatenate(parts[1::2])).mean()) * 10 ** (-noise / 20)
        waveform += np.random.default_rng(seed).normal(0, level, len(waveform)).astype(np.float32)
    return Utterance(waveform, words), texts


def errors(known: Sequence[SpokenWord], heard: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the errors of the starts and of the ends in seconds, positive if late. heard: words of a transcript."""
    spoken = [(text, word) for word in known for text in written_words(word.text)[:1]]
    written = [(text[0] if len(text) == 1 else "", word) for word in heard for text in [written_words(word.word)]]
    blocks = SequenceMatcher(None, [text for text, _ in spoken], [text for text, _ in written], False)
    starts, ends = [], []
    for first, second, size in blocks.get_matching_blocks():
        for (text, one), (_, other) in zip(spoken[first : first + size], written[second : second + size], strict=True):
            if text and one.start is not None:
                starts.append(other.start - one.start)
            if text and one.end is not None:
                ends.append(other.end - one.end)
    return np.array(starts), np.array(ends)


def faults(words: Sequence[Any]) -> tuple[int, int]:
    """Return the number of words of a transcript without a length, and of words that begin before another one ends."""
    return sum(word.end <= word.start for word in words), sum(b.start < a.end for a, b in pairwise(words))


def describe(values: np.ndarray) -> str:
    """Cells: number, mean, median and 95th percentile of the distances, and the median with its sign, in ms."""
    distances = 1000 * np.abs(values)
    cells = (distances.mean(), np.median(distances), np.percentile(distances, 95), 1000 * np.median(values))
    return " | ".join([str(len(values)), *(f"{cell:.0f}" for cell in cells)])


def main() -> None:
    """Print a row for each model, way of timing words, and kind of speech."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--ways", nargs="+", choices=("auto", "batched", "align"), default=["auto", "align"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--noise", type=float, metavar="DECIBELS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sentences", type=int, default=60)
    parser.add_argument("--as-attended", action="store_true")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    of = "mean | median | p95 | bias"
    print(f"| model | way | speech | starts | {of} | ends | {of} | words | zero length | overlaps |")
    print("| --- | --- | --- |" + " --- |" * 13)
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            transcriber = Transcriber(str(checkpoint(name, Path(scratch))), threads=arguments.threads)
            for kind in arguments.kinds:
                spoken, texts = recording(kind, arguments.sentences, arguments.noise, arguments.seed)
                for way in arguments.ways:
                    options = {"refine_word_times": False} if arguments.as_attended else {}
                    if not transcriber.model.is_english_only:
                        options["language"] = "en"
                    if way == "align":
                        transcript = transcriber.align(spoken.waveform, "\n".join(texts), **options)
                    else:
                        transcript = transcriber.transcribe(spoken.waveform, mode=way, word_timestamps=True, **options)
                    words = [word for segment in transcript.segments for word in segment.words or ()]
                    starts, ends = errors(spoken.words, words)
                    cells = (name, way, kind, describe(starts), describe(ends), len(words), *faults(words))
                    print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
