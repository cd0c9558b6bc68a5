"""Live transcription: word errors, lag, erasure, and the number of streams that a machine keeps up with.

    python -m benchmarks.live [--models tiny.en base] [--seconds 600] [--kinds continuous book pauses silence]
        [--streams 6] [--threads 2] [OPTION=VALUE ...]

Without --streams, one stream plays on a simulated clock: audio arrives every 100 ms, and the clock advances by the
processor time that the job's work took, divided by the number of threads. So other programs hardly change the lag, and
no time is spent waiting. With --streams, so many streams play at real pace on one engine, each from another place of
the recording. OPTION=VALUE sets options of the streams, such as ``policy=agreement``.

Lag is the time at which a word was committed minus the time at which it was spoken, as word times of auto mode say.
Erasure is the number of tentative words that were taken back or changed, for each word of the final text. ``silence``
has 30 minutes of silence, noise, hum and music, in which every word is wrong.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import torch

from benchmarks.modes import Recording, book, continuous, with_pauses
from benchmarks.transcripts import clips, normalize
from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber
from transept.core.jobs.job import Offload, Signal, Submit
from transept.speech.live.events import Committed, Lagging, Tentative, UtteranceEnded
from transept.speech.live.stream import LiveStream

CHUNK = 1600  # samples; 100 ms
SILENCE_SECONDS = 450.0  # of each of four kinds


@dataclass
class Played:
    """The events of one stream, each with its time in seconds from the stream's beginning. seconds: at its end."""

    events: list[tuple[float, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """The committed text."""
        return "".join(event.text for _, event in self.events if isinstance(event, Committed))

    def words(self) -> list[tuple[str, float]]:
        """Committed words, each with the time of its event."""
        return [(word.word, at) for at, event in self.events if isinstance(event, Committed) for word in event.words]

    def erasure(self) -> float:
        """Tentative words taken back, for each word of the final text."""
        erased, shown = 0, list[str]()  # words after those that are committed
        for _, event in self.events:
            if isinstance(event, Committed):
                new = _plain(event.text)
                shown = shown[len(new) :] if shown[: len(new)] == new else ["\0", *shown[len(new) :]]
            elif isinstance(event, Tentative):
                new = _plain(event.text)
                common = next(
                    (at for at, (one, other) in enumerate(zip(shown, new, strict=False)) if one != other),
                    min(len(shown), len(new)),
                )
                erased += len(shown) - common
                shown = new
        return erased / max(1, len(self.words()))


def _plain(text: str) -> list[str]:
    return ["".join(filter(str.isalnum, word)).lower() for word in text.split()]


class SimulatedClock:
    """Seconds that pass only by computing, or by waiting for audio."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the current second."""
        return self.now


def simulated(transcriber: Transcriber, waveform: np.ndarray, options: dict[str, Any]) -> Played:
    """Play a waveform to one stream on a simulated clock."""
    played = Played()
    played.seconds = simulate(transcriber, waveform, options, lambda *event: played.events.append(event))
    return played


def simulate(
    transcriber: Transcriber, waveform: np.ndarray, options: dict[str, Any], tell: Callable[[float, Any], None]
) -> float:
    """Play a waveform to one stream on a simulated clock. Returns its seconds. tell: called with (seconds, event)."""
    clock, threads = SimulatedClock(), torch.get_num_threads()
    transcription = transcriber.live_transcription(**options)
    feed = transcription.feed
    feed.clock = clock
    position = 0

    def push_arrived() -> None:
        nonlocal position
        now = clock.now
        while position < len(waveform) and (position + CHUNK) / SAMPLE_RATE <= now + 1e-9:
            clock.now = (position + CHUNK) / SAMPLE_RATE
            feed.push(waveform[position : position + CHUNK])
            position += CHUNK
        clock.now = now

    def job() -> Generator[Any, Any, None]:
        work, answer = transcription.job(), None
        while True:
            try:
                item = work.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(item, Signal):
                if position >= len(waveform):
                    feed.close()
                else:
                    clock.now = max(clock.now, (position + CHUNK) / SAMPLE_RATE)
                    push_arrived()
            elif isinstance(item, Submit | Offload):
                begin = time.process_time()
                answer = yield item
                clock.now += (time.process_time() - begin) / threads
                push_arrived()
            else:
                tell(clock.now, item)

    list(transcriber.engine.runner.run([job()], 1))
    return clock.now


def real(transcriber: Transcriber, waveforms: Sequence[np.ndarray], options: dict[str, Any]) -> list[Played]:
    """Play waveforms at real pace, each to a stream with a thread that reads its events."""
    streams = [transcriber.live_stream(**options) for _ in waveforms]
    found = [Played() for _ in waveforms]
    begin = time.monotonic() + 0.2

    def read(stream: LiveStream, played: Played) -> None:
        for event in stream:
            played.events.append((time.monotonic() - begin, event))
        played.seconds = time.monotonic() - begin

    readers = [threading.Thread(target=read, args=each) for each in zip(streams, found, strict=True)]
    for reader in readers:
        reader.start()
    for position in range(0, max(map(len, waveforms)), CHUNK):
        time.sleep(max(0.0, begin + (position + CHUNK) / SAMPLE_RATE - time.monotonic()))
        for stream, waveform in zip(streams, waveforms, strict=True):
            if position < len(waveform):
                stream.push(waveform[position : position + CHUNK])
    for stream in streams:
        stream.close()
    for reader in readers:
        reader.join()
    return found


def lags(played: Played, spoken: Sequence[tuple[str, float]]) -> list[float]:
    """Seconds from the end of each spoken word to its commit, for words that both texts have. spoken: (word, end)."""
    written = played.words()
    keys = [" ".join("".join(_plain(word)) or "-" for word, _ in words) for words in (spoken, written)]
    return [
        written[chunk.hyp_start_idx + at][1] - spoken[chunk.ref_start_idx + at][1]
        for chunk in jiwer.process_words(*keys).alignments[0]
        if chunk.type == "equal"
        for at in range(chunk.ref_end_idx - chunk.ref_start_idx)
    ]


def no_speech(seconds: float = SILENCE_SECONDS) -> Recording:
    """Silence, noise, hum and music, one after the other, all without a word."""
    draw, num = np.random.default_rng(0), int(seconds * SAMPLE_RATE)
    at = np.arange(num) / SAMPLE_RATE
    hum = sum(0.02 / n * np.sin(2 * np.pi * 50 * n * at) for n in (1, 2, 3, 5))
    parts = [np.zeros(num), draw.normal(0, 0.02, num), hum, music(seconds, draw)]
    return Recording("no speech", "en", np.concatenate(parts).astype(np.float32), [])


def music(seconds: float, draw: np.random.Generator) -> np.ndarray:
    """Chords and a melody of decaying tones with overtones and vibrato, and a drum."""
    rate, sound = SAMPLE_RATE, np.zeros(int(seconds * SAMPLE_RATE) + SAMPLE_RATE)
    scale = np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16])
    beat = 0.4  # seconds
    for number in range(int(seconds / beat)):
        begin = int(number * beat * rate)
        notes = [48 + scale[draw.integers(5)] + step for step in (0, 4, 7)] if number % 4 == 0 else []
        notes.append(60 + scale[draw.integers(len(scale))])
        for note in notes:
            at = np.arange(int(rate * (1.6 if len(notes) > 1 else 0.5))) / rate
            pitch = 440 * 2 ** ((note - 69) / 12)
            phase = 2 * np.pi * pitch * at + 0.3 * np.sin(2 * np.pi * 5 * at)
            tone = sum(np.sin(n * phase) / n**1.5 for n in range(1, 7)) * np.exp(-at * 2.5) * 0.05
            sound[begin : begin + len(tone)] += tone[: len(sound) - begin]
        drum = draw.normal(0, 0.05, rate // 10) * np.exp(-np.arange(rate // 10) / rate * 60)
        sound[begin : begin + len(drum)] += drum
    return sound[: int(seconds * rate)]


def recordings_of(kind: str, seconds: float, seed: int = 5) -> list[Recording]:
    """Recordings of a kind; continuous and pauses are about so many seconds long."""
    if kind == "book":
        return [book()]
    if kind == "silence":
        return [no_speech()]
    if kind == "continuous":
        return [continuous("clips", "en", clips("librivox") + clips("prompts-en"), seconds, seed)]
    return [_cut(with_pauses(seed), seconds) for seed in (0, 1)]


def _cut(recording: Recording, seconds: float) -> Recording:
    """The first sentences of a recording with pauses."""
    number = sum(end < seconds for _, end in recording.sounds)
    waveform = recording.waveform[: int((recording.sounds[number - 1][1] + 1) * SAMPLE_RATE)]
    return Recording(recording.name, "en", waveform, recording.texts[:number])


def describe(
    name: str, played: Sequence[Played], spoken: Sequence[Recording], offline: Sequence[Any], transcription: str
) -> None:
    """Print a row. offline: transcripts of the recordings in sequential and in auto mode."""
    texts = [normalize(" ".join(recording.texts)) for recording in spoken]
    errors = base = float("nan")
    if any(texts):
        errors = 100 * jiwer.wer(texts, [normalize(each.text) for each in played])
        base = 100 * jiwer.wer(texts, [normalize(sequential.text) for sequential, _ in offline])
    delays = [event.delay for each in played for _, event in each.events if isinstance(event, UtteranceEnded)]
    late = [
        lag
        for each, (_, auto) in zip(played, offline, strict=True)
        for lag in lags(each, [(word.word, word.end) for segment in auto.segments for word in segment.words])
    ]
    lagging = [event.seconds for each in played for _, event in each.events if isinstance(event, Lagging)]
    words = sum(len(each.words()) for each in played)
    print(
        f"| {name} | {transcription} | {words} | {base:.2f} % | {errors:.2f} % | {_shares(late)} | {_shares(delays)} | "
        f"{np.mean([each.erasure() for each in played]):.2f} | {max(lagging, default=0):.1f} |",
        flush=True,
    )


def _shares(values: Sequence[float]) -> str:
    if not values:
        return "-"
    return " / ".join(f"{np.percentile(values, share):.2f}" for share in (50, 95, 100))


HEAD = """| model | recordings | words | sequential | live | lag: p50, p95, most | final text | erasure | unread |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> None:
    """Print a row for each model and kind of recording."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["tiny.en", "base"])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kinds", nargs="+", default=["continuous", "pauses", "silence"])
    parser.add_argument("--streams", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--show", action="store_true", help="print all events")
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    arguments = parser.parse_args()
    options = parsed_options(arguments.options)
    print(HEAD)
    for name in arguments.models:
        with tempfile.TemporaryDirectory() as scratch:
            transcriber = Transcriber(checkpoint(name, Path(scratch)), quantization="int8", threads=arguments.threads)
        asked = {} if transcriber.model.is_english_only else {"language": "en"}
        for kind in arguments.kinds:
            recordings = recordings_of(kind, arguments.seconds)
            label = kind
            if arguments.streams:
                label = f"{kind}, {arguments.streams} streams at real pace"
                recordings = [recordings_of(kind, arguments.seconds, seed)[0] for seed in range(arguments.streams)]
            offline = [
                (
                    transcriber.transcribe(each.waveform, mode="sequential", **asked),
                    transcriber.transcribe(each.waveform, word_timestamps=True, **asked),
                )
                for each in recordings
            ]
            transcriber.engine.block_manager.reset()
            if arguments.streams:
                played = real(transcriber, [each.waveform for each in recordings], {**asked, **options})
            else:
                played = [simulated(transcriber, each.waveform, {**asked, **options}) for each in recordings]
            if arguments.show:
                for at, event in (each for stream in played for each in stream.events):
                    print(f"{at:8.2f} {event}")
            describe(f"{name} int8", played, recordings, offline, label)


def parsed_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return options of texts such as ``policy=agreement``."""
    return {name: _value(value) for name, value in (each.split("=", 1) for each in texts)}


def _value(text: str) -> Any:
    if text == "None":
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
