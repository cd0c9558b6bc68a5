"""Live streams beside the upload of a long recording: how much later their words come.

    python -m benchmarks.live_upload [--model tiny.en] [--streams 4] [--seconds 120] [--runs 2] [OPTION=VALUE ...]

The streams are those of `benchmarks.live_streams`, in turn alone and beside a recording of half an hour, which is
uploaded again once it is transcribed. The ratio compares the 95th percentiles of the lag. OPTION=VALUE are
options of the server. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import tempfile
import threading
from pathlib import Path

import httpx
import numpy as np
import soundfile

from benchmarks.live_streams import BOUNDS, SILENCE, Heard, Lags, Speech, play, serve, speeches
from benchmarks.serving import PATIENCE
from benchmarks.whisper import SAMPLE_RATE, checkpoint

UPLOADED = 1800  # seconds of audio


class Uploads:
    """Uploads a recording again and again while a ``with`` block runs. num_events: of its text, so far."""

    def __init__(self, url: str, waveform: np.ndarray) -> None:
        self.url, self.num_events = url, 0
        self._waveform = waveform
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._upload)

    def _upload(self) -> None:
        number = 0
        with httpx.Client(base_url=self.url, timeout=PATIENCE) as client:
            while not self._ends.is_set():
                number += 1  # each a little quieter, since Transept caches encoder outputs
                file = io.BytesIO()
                soundfile.write(file, self._waveform * (1 - 1e-3 * number), SAMPLE_RATE, format="FLAC")
                form = {"stream": "true", "response_format": "json"}
                with client.stream(
                    "POST", "/v1/audio/transcriptions", files={"file": file.getvalue()}, data=form
                ) as got:
                    got.raise_for_status()
                    for line in got.iter_lines():
                        self.num_events += line.startswith("data: ")
                        if self._ends.is_set():
                            return

    def __enter__(self) -> Uploads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()


def row(name: str, spoken: list[Speech], heard: list[Heard], seconds: float) -> float:
    """Print the lags of a run. Returns the 95th percentile."""
    p50, p95 = Lags.of(spoken, heard, seconds).whole
    most = max(float(each.lags(speech.ends).max()) for speech, each in zip(spoken, heard, strict=True))
    print(f"| {name} | {p50:.2f} | {p95:.2f} | {most:.2f} |", flush=True)
    return p95


def main() -> None:
    """Print a row for each run, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny.en", choices=BOUNDS)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = checkpoint(arguments.model, Path(scratch))
        spoken = speeches(directory, arguments.streams, arguments.seconds)
        url = serve(directory, arguments.options)
        long = np.resize(spoken[0].waveform[: -len(SILENCE)], UPLOADED * SAMPLE_RATE)
        print(f"{arguments.model} int8, {arguments.streams} streams of {arguments.seconds:.0f} s")
        print("| run | lag: p50 | p95 | most |\n| --- | --- | --- | --- |")
        p95s: list[tuple[float, float]] = []
        for _ in range(arguments.runs):
            alone = row("alone", spoken, asyncio.run(play(url, spoken)), arguments.seconds)
            with Uploads(url, long) as uploads:
                beside = row("beside an upload", spoken, asyncio.run(play(url, spoken)), arguments.seconds)
            print(f"events of the upload's text meanwhile: {uploads.num_events}")
            p95s.append((alone, beside))
        ratio = np.mean([beside for _, beside in p95s]) / np.mean([alone for alone, _ in p95s])
        print(f"p95 beside an upload: {ratio:.2f} times that of streams alone")


if __name__ == "__main__":
    main()
