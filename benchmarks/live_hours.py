"""Hours of one live stream: the lag of its words and the process's memory, at the beginning and at the end.

    python -m benchmarks.live_hours [--model tiny.en] [--hours 2] [--threads 1] [OPTION=VALUE ...]

The clips of the test data, about five minutes, are played again and again, so every repetition has the same words at
the same places. The clock is that of `benchmarks.live`: it advances by the processor time of the stream's work. A row
has the lag of each word, as its event says, from the arrival of the word's end until the event; resident memory at the
end; and processor time for a second of audio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.live import parsed_options, simulate
from benchmarks.long_recording import memory_mib
from benchmarks.modes import continuous
from benchmarks.transcripts import clips
from benchmarks.whisper import SAMPLE_RATE, checkpoint
from transept import Transcriber
from transept.speech.live.events import Committed, Lagging

MINUTE = 60.0  # seconds
CACHE = 128 << 20  # bytes, which the first minutes fill; a larger cache would seem to be memory that grows
HEAD = """| audio | words | lag: p50, p95, most | unread | memory, MiB | processor time |
| --- | --- | --- | --- | --- | --- |"""


class Rows:
    """Prints a row for the first minute, for the same minute of the last repetition, and for each repetition.

    period: seconds of a repetition.
    """

    def __init__(self, period: float, num: int) -> None:
        self.period, self.num, self.number = period, num, 0
        self.lags: list[tuple[float, float]] = []  # of this repetition: (second in it, seconds of lag)
        self.unread = 0.0
        self.begun = time.process_time()

    def add(self, now: float, event: Any) -> None:
        """Take an event of the stream."""
        if isinstance(event, Lagging):
            self.unread = max(self.unread, event.seconds)
        if isinstance(event, Committed):
            spoken = event.words[-1].end
            while spoken >= (self.number + 1) * self.period:
                self.print()
            self.lags += [(word.end - self.number * self.period, now - word.end) for word in event.words]

    def print(self) -> None:
        """Print the rows of a repetition, and begin another."""
        seconds = time.process_time() - self.begun
        if self.number in (0, self.num - 1):
            lags = [lag for at, lag in self.lags if at < MINUTE]
            print(f"| minute 1 of repetition {self.number + 1} | {len(lags)} | {_shares(lags)} | | | |", flush=True)
        lags = [lag for _, lag in self.lags]
        minutes = f"{self.number * self.period / 60:.0f} to {(self.number + 1) * self.period / 60:.0f} min"
        print(
            f"| {minutes} | {len(lags)} | {_shares(lags)} | {self.unread:.1f} | {memory_mib('VmRSS'):.0f} | "
            f"{seconds / self.period:.2f} |",
            flush=True,
        )
        self.number, self.lags, self.unread, self.begun = self.number + 1, [], 0.0, time.process_time()


def _shares(lags: list[float]) -> str:
    return " / ".join(f"{np.percentile(lags, share):.2f}" for share in (50, 95, 100)) if lags else "-"


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny.en", choices=("tiny.en", "base"))
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    arguments = parser.parse_args()
    known = clips("librivox") + clips("prompts-en")
    once = continuous("clips", "en", known, sum(len(clip.waveform) for clip in known) / SAMPLE_RATE, 5).waveform
    period = len(once) / SAMPLE_RATE
    num = max(1, round(arguments.hours * 3600 / period))
    with tempfile.TemporaryDirectory() as scratch:
        transcriber = Transcriber(
            checkpoint(arguments.model, Path(scratch)),
            quantization="int8",
            threads=arguments.threads,
            kv_cache_bytes=CACHE,
        )
    options = parsed_options(arguments.options)
    if not transcriber.model.is_english_only:
        options = {"language": "en", **options}
    print(f"{arguments.model} int8, {arguments.threads} threads, {num} repetitions of {period:.0f} s")
    print(HEAD)
    rows = Rows(period, num)
    simulate(transcriber, np.tile(once, num), options, rows.add)
    rows.print()


if __name__ == "__main__":
    main()
