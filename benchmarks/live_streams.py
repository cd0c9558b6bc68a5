"""Live streams at real pace over WebSockets, served by `transept serve` in a process of its own: lags and flatness.

    python -m benchmarks.live_streams [--model tiny.en] [--streams 6 8] [--seconds 180] [OPTION=VALUE ...]

All streams play the same five minutes of the test data, each from another place, in packets of 100 ms. OPTION=VALUE
are options of the server, such as ``threads=1``.

The lag of a word is the time from its end in the audio until the final text reaches it, as the times of words in the
events say. Each row has the lags in the first and in the last third of the run, the events of streams that skip
passes, and whether the streams are held: the median of the last third is at most FLAT seconds above the first third's,
and its 95th percentile is within the bound of the model. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import websockets

from benchmarks.modes import continuous
from benchmarks.serving import start, transept_command
from benchmarks.transcripts import clips, word_error_rate
from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber, Word

PACKET = SAMPLE_RATE // 10  # samples
REACHED = 0.2  # seconds by which the time of a word may be early, since models disagree
FLAT = 0.5  # seconds that a median may grow
BOUNDS = {"tiny.en": 2.0, "base": 2.5}  # seconds, of the 95th percentile
GAP = 0.3  # seconds between two words at which a stream may begin
AFTER = 3.0  # seconds of silence at the end of a stream
SILENCE = np.zeros(int(AFTER * SAMPLE_RATE), np.float32)


@dataclass(frozen=True)
class Speech:
    """The audio of a stream. ends: seconds at which its words end, by auto mode's times. text: auto mode's text."""

    waveform: np.ndarray
    ends: np.ndarray
    text: str


@dataclass
class Heard:
    """The text of a stream. reached: (seconds from its beginning, seconds of audio that its text reaches)."""

    reached: list[tuple[float, float]] = field(default_factory=list)
    text: str = ""

    def lags(self, ends: np.ndarray) -> np.ndarray:
        """Seconds from the end of each word until the text reaches it; infinity if it never does."""
        if not self.reached:
            return np.full(len(ends), np.inf)
        times, places = (np.array(column) for column in zip(*self.reached, strict=True))
        first = np.searchsorted(np.maximum.accumulate(places), ends - REACHED)
        return np.append(times, np.inf)[first] - ends


@cache
def timed_recording(directory: Path) -> tuple[np.ndarray, list[Word]]:
    """All clips of the test data as one recording, and its words. directory: of the model that times them."""
    known = clips("librivox") + clips("prompts-en")
    recording = continuous("clips", "en", known, sum(len(clip.waveform) for clip in known) / SAMPLE_RATE, 5)
    transcriber = Transcriber(directory, quantization="int8")
    language = None if transcriber.model.is_english_only else "en"
    transcript = transcriber.transcribe(recording.waveform, word_timestamps=True, language=language)
    return recording.waveform, [word for segment in transcript.segments for word in segment.words]


def speeches(directory: Path, num: int, seconds: float) -> list[Speech]:
    """Return `num` parts of the same recording, each of `seconds`. directory: see `timed_recording`."""
    waveform, words = timed_recording(directory)
    period = len(waveform) / SAMPLE_RATE
    gaps = [(one.end + other.start) / 2 for one, other in pairwise(words) if other.start - one.end > GAP]
    times = max(1, round(seconds / period + 0.5)) + 1
    ends = np.concatenate([np.array([word.end for word in words]) + number * period for number in range(times)])
    texts = [word.word for word in words] * times
    found = []
    for number in range(num):
        begin = min(gaps, key=lambda gap: abs(gap - number * period / num))
        chosen = (ends > begin) & (ends < begin + seconds)
        text = "".join(word for word, is_chosen in zip(texts, chosen, strict=True) if is_chosen)
        at = (np.arange(int(seconds * SAMPLE_RATE)) + int(begin * SAMPLE_RATE)) % len(waveform)
        found.append(Speech(np.concatenate([waveform[at], SILENCE]), ends[chosen] - begin, text))
    return found


async def pace(speech: Speech, begin: float, send: Any) -> None:
    """Send a waveform in packets, each when its last sample is spoken. begin: second of time.monotonic."""
    for position in range(0, len(speech.waveform), PACKET):
        await asyncio.sleep(max(0.0, begin + (position + PACKET) / SAMPLE_RATE - time.monotonic()))
        await send(speech.waveform[position : position + PACKET])


async def speak(url: str, speech: Speech, begin: float) -> Heard:
    """Play a speech to `/v1/realtime`."""
    heard = Heard()
    of_item = "conversation.item.input_audio_transcription"
    settings = {
        "type": "transcription",
        "include": [f"{of_item.removeprefix('conversation.')}.words"],
        "audio": {"input": {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}, "transcription": {"language": "en"}}},
    }

    async def read(connection: Any) -> None:
        async for message in connection:
            event = json.loads(message)
            if event["type"] == f"{of_item}.delta":
                heard.reached.append((time.monotonic() - begin, event["words"][-1]["end"]))
                heard.text += event["delta"]
            elif event["type"] == "error":
                raise RuntimeError(event["error"]["message"])

    async with websockets.connect(url.replace("http", "ws") + "/v1/realtime?intent=transcription") as connection:
        await connection.send(json.dumps({"type": "session.update", "session": settings}))
        reading = asyncio.create_task(read(connection))

        async def send(samples: np.ndarray) -> None:
            audio = base64.b64encode((samples * 32767).astype("<i2").tobytes()).decode()
            await connection.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))

        await pace(speech, begin, send)
        await asyncio.sleep(AFTER)
        if reading.done():
            reading.result()  # raises the server's error
            raise RuntimeError("the server closed the stream")
        reading.cancel()
    return heard


async def play(url: str, spoken: Sequence[Speech], speak: Any = speak) -> list[Heard]:
    """Play all speeches at once."""
    begin = time.monotonic() + 0.5
    return list(await asyncio.gather(*(speak(url, each, begin) for each in spoken)))


@dataclass(frozen=True)
class Lags:
    """Lags of all words of some streams, in the thirds of a run: p50 and p95 of each."""

    first: tuple[float, float]
    last: tuple[float, float]
    whole: tuple[float, float]
    errors: float  # in percent, against the same model's offline text

    @classmethod
    def of(cls, spoken: Sequence[Speech], heard: Sequence[Heard], seconds: float) -> Lags:
        """Measure streams."""
        ends = np.concatenate([each.ends for each in spoken])
        lags = np.concatenate([each.lags(speech.ends) for speech, each in zip(spoken, heard, strict=True)])
        errors = [word_error_rate(speech.text, each.text) for speech, each in zip(spoken, heard, strict=True)]
        thirds = (ends < seconds / 3, ends >= 2 * seconds / 3, ends >= 0)
        first, last, whole = (_percentiles(lags[third]) for third in thirds)
        return cls(first, last, whole, float(np.mean(errors)))

    def is_held(self, bound: float) -> bool:
        """True if lags do not grow, and are within the bound in seconds."""
        return self.last[0] <= self.first[0] + FLAT and self.last[1] <= bound

    def row(self, bound: float) -> str:
        """Cells of a table."""
        cells = (f"{p50:.2f} / {p95:.2f}" for p50, p95 in (self.first, self.last))
        return " | ".join([*cells, f"{self.errors:.1f} %", "yes" if self.is_held(bound) else "no"])


def _percentiles(lags: np.ndarray) -> tuple[float, float]:
    p50, p95 = np.percentile(lags, (50, 95), method="higher") if len(lags) else (np.nan, np.nan)
    return float(p50), float(p95)


HEAD = """| model | streams | lag of the first third: p50, p95 | of the last third | errors | held | skips |
| --- | --- | --- | --- | --- | --- | --- |"""


def skips(url: str) -> int:
    """Number of times so far that a stream of the server had so much unread audio that it skipped passes."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("transept_live_lagging_total")))


def serve(directory: Path, options: Sequence[str] = ()) -> str:
    """Start `transept serve` with int8 weights. Returns its URL. options: such as ``threads=1``."""

    def command(*given: Any) -> list[str]:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in (each.split("=", 1) for each in options)]
        return [*transept_command(*given), "--max-streams", "1000", *flags]

    return start(command, directory, "int8")


def main() -> None:
    """Print a row for each number of streams."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny.en", choices=BOUNDS)
    parser.add_argument("--streams", type=int, nargs="+", default=[6])
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = checkpoint(arguments.model, Path(scratch))
        url = serve(directory, arguments.options)
        print(HEAD)
        for num in arguments.streams:
            streams, before = speeches(directory, num, arguments.seconds), skips(url)
            heard = asyncio.run(play(url, streams))
            lags = Lags.of(streams, heard, arguments.seconds)
            row = lags.row(BOUNDS[arguments.model])
            print(f"| {arguments.model} int8 | {num} | {row} | {skips(url) - before} |", flush=True)


if __name__ == "__main__":
    main()
