"""How long one waits at a busy `transept serve`: for /health at full load, for a clip while an hour is read.

    python -m benchmarks.serving_latency [--clients 16] [--probes 100] [--model tiny.en]

An hour of audio is uploaded, and clips are sent one after the other until its first segment comes: in that time it is
stored, decoded and made features of, beside the engine. What a clip waits longer than alone is told in steps of the
engine, whose mean time is read from /metrics.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import soundfile

from benchmarks.serving import CLIPS, PATIENCE, quieter, start, transept_command
from benchmarks.whisper import checkpoint

HOUR = 3600  # seconds
ENDPOINT = "/v1/audio/transcriptions"


def hour(file: Path) -> None:
    """Write an hour of speech."""
    waveform = np.concatenate([soundfile.read(clip, dtype="float32")[0] for clip in CLIPS])
    soundfile.write(file, np.resize(waveform, HOUR * 16_000), 16_000)


def transcribe(client: httpx.Client, wav: bytes) -> float:
    """Seconds until a clip is answered."""
    begin = time.perf_counter()
    client.post(ENDPOINT, files={"file": wav}).raise_for_status()
    return time.perf_counter() - begin


def step_seconds(client: httpx.Client) -> tuple[float, float]:
    """All steps' seconds so far, and their number."""
    lines = dict(
        line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines() if line.startswith("transept_step")
    )
    found = {key.partition("{")[0]: float(value) for key, value in lines.items()}
    return found["transept_step_duration_seconds_sum"], found["transept_step_duration_seconds_count"]


def health_at_full_load(client: httpx.Client, url: str, wavs: list[bytes], clients: int, probes: int) -> None:
    """Print how long /health takes while so many clients send clips."""
    over = threading.Event()

    def keep_busy(index: int) -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE) as own:
            while not over.is_set():
                transcribe(own, wavs[index])

    threads = [threading.Thread(target=keep_busy, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    seconds = []
    for _ in range(probes):
        begin = time.perf_counter()
        client.get("/health").raise_for_status()
        seconds.append(time.perf_counter() - begin)
        time.sleep(0.1)
    over.set()
    for thread in threads:
        thread.join()
    told = [1000 * each for each in (statistics.median(seconds), max(seconds))]
    print(f"/health with {clients} clients: median {told[0]:.1f} ms, at most {told[1]:.1f} ms ({probes} times)")


def beside_an_hour(client: httpx.Client, url: str, wavs: list[bytes], long: Path) -> None:
    """Print how long clips take alone, and while an hour is read."""
    alone = [transcribe(client, wav) for wav in wavs[:25]]
    total, count = step_seconds(client)
    begun = threading.Event()

    def upload() -> None:
        fields = {"stream": "true"}
        with (
            httpx.Client(base_url=url, timeout=PATIENCE) as own,
            long.open("rb") as file,
            own.stream("POST", ENDPOINT, files={"file": file}, data=fields) as answer,
        ):
            next(line for line in answer.iter_lines() if "transcript.text" in line)
            begun.set()

    thread = threading.Thread(target=upload)
    begin = time.perf_counter()
    thread.start()
    beside: list[float] = []
    while not begun.is_set():
        beside.append(transcribe(client, wavs[25 + len(beside) % (len(wavs) - 25)]))
    spent = time.perf_counter() - begin
    thread.join()
    later, more = step_seconds(client)
    step = (later - total) / (more - count)
    waits = statistics.median(beside) - statistics.median(alone)
    print(
        f"clips alone: median {statistics.median(alone):.2f} s; while an hour is read ({spent:.1f} s): median "
        f"{statistics.median(beside):.2f} s of {len(beside)}, {waits / step:.1f} steps of {1000 * step:.0f} ms more"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--probes", type=int, default=100)
    parser.add_argument("--model", default="tiny.en", choices=("tiny.en", "base"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wavs = quieter(CLIPS * 20, 0)
        hour(folder / "hour.flac")
        url = start(transept_command, checkpoint(arguments.model, folder), "float32")
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            beside_an_hour(client, url, wavs, folder / "hour.flac")
            health_at_full_load(client, url, wavs, arguments.clients, arguments.probes)


if __name__ == "__main__":
    main()
