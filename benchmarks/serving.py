"""Many clients at once: `transept serve` beside a server around faster-whisper, and beside the library itself.

    python -m benchmarks.serving [--clients 8 32] [--requests 40] [--runs 3] [--model tiny.en] [--weights float32]

Every client sends clips of tests/data/speech/librivox over HTTP, one after the other, as fast as it is answered. The
servers take turns, each in a process of its own that stays loaded; of the engines only one works at a time. The library
is Transcriber.transcribe_many over as many recordings, without HTTP. All transcribe in English, greedily, from the same
weights.
"""

from __future__ import annotations

import argparse
import atexit
import io
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, cycle, islice
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import httpx
import soundfile

from benchmarks.turns import Record, Row, Runner, add_json_option, take_turns
from benchmarks.whisper import SPEECH, checkpoint

PEER = Path(__file__).with_name("faster_whisper_server.py")
CLIPS = sorted((SPEECH / "librivox").glob("*.flac"))
PATIENCE = 600.0  # seconds


def transept_command(model: Path, port: int, weights: str) -> list[str]:
    quantization = ["--quantization", "int8"] if weights == "int8" else []
    return [sys.executable, "-m", "transept", "serve", f"speech={model}", "--port", str(port), *quantization]


def peer_command(model: Path, port: int, weights: str) -> list[str]:
    return [sys.executable, str(PEER), str(model), str(port), weights]


def start(command: Callable[..., list[str]], model: Path, weights: str) -> str:
    """Start a server, which ends with this process, and wait until its model is loaded. Returns its URL."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    process = subprocess.Popen(command(model, port, weights), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(process.terminate)
    Finalize(None, process.terminate, exitpriority=1)  # processes of multiprocessing do not call what atexit holds
    url = f"http://127.0.0.1:{port}"
    while not _is_ready(url):
        assert process.poll() is None, "the server ended"
        time.sleep(0.1)
    return url


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready").status_code == 200
    except httpx.TransportError:
        return False


def served(command: Callable[..., list[str]], model: Path, weights: str, clients: int) -> Runner:
    """Starts a server, and returns how so many clients share clips among them: of each clip its text and seconds."""
    limits = httpx.Limits(max_connections=clients)
    client = httpx.Client(base_url=start(command, model, weights), timeout=PATIENCE, limits=limits)

    def ask(wav: bytes) -> tuple[str, float]:
        begin = time.perf_counter()
        answer = client.post("/v1/audio/transcriptions", files={"file": wav}, data={"beam_size": "1"})
        answer.raise_for_status()
        return answer.json()["text"], time.perf_counter() - begin

    pool, turns = ThreadPoolExecutor(clients), count()
    return lambda clips: list(pool.map(ask, quieter(clips, next(turns))))


def library(model: Path, weights: str) -> Runner:
    """The same without HTTP; seconds are not told."""
    from transept import Transcriber

    transcriber, turns = Transcriber(model, quantization="int8" if weights == "int8" else None), count()

    def run(clips: list[Path]) -> list[tuple[str, float]]:
        return [
            (transcript.text, 0.0)
            for transcript in transcriber.transcribe_many(quieter(clips, next(turns)), beam_size=1)
        ]

    return run


def quieter(clips: list[Path], turn: int) -> list[bytes]:
    """The clips as WAV, each a little quieter than the one before and than in the last turn.

    So none is like another: Transept keeps what it has encoded.
    """
    made = []
    for index, clip in enumerate(clips):
        waveform, rate = soundfile.read(clip, dtype="float32")
        wav = io.BytesIO()
        soundfile.write(wav, waveform * (1 - 1e-4 * index - 1e-2 * turn), rate, format="WAV", subtype="FLOAT")
        made.append(wav.getvalue())
    return made


def compare(model: str, weights: str, clients: int, requests: int, runs: int, record: Record) -> None:
    """Print and record one table: a row an engine."""
    with tempfile.TemporaryDirectory() as scratch:
        directory, clips = checkpoint(model, Path(scratch)), list(islice(cycle(CLIPS), requests))
        engines: dict[str, Callable[[], Runner]] = {
            "faster-whisper server": partial(served, peer_command, directory, weights, clients),
            "transept serve": partial(served, transept_command, directory, weights, clients),
            "transcribe_many": partial(library, directory, weights),
        }
        turns = take_turns(engines, clips, runs)
    first = turns["faster-whisper server"]
    print(f"\n{model}, {weights}, {clients} clients, {len(clips)} requests, {runs} runs in turn\n")
    print("| engine | requests/s | p50 s | p95 s | requests/s of the first | same texts |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for name, own in turns.items():
        seconds = sorted(spent for outputs in own.all_outputs for _, spent in outputs)
        median = statistics.median(own.seconds)
        ratio = statistics.median(theirs / ours for theirs, ours in zip(first.seconds, own.seconds, strict=True))
        same = sum(text == other for (text, _), (other, _) in zip(own.outputs, first.outputs, strict=True))
        p50, p95 = seconds[len(seconds) // 2], seconds[int(0.95 * len(seconds))]
        print(f"| {name} | {len(clips) / median:.2f} | {p50:.2f} | {p95:.2f} | {ratio:.2f}x | {same}/{len(clips)} |")
        rows.append(Row(name, median, min(own.seconds), ratio, f"p95 {p95:.2f} s", 0.0))
    record.add(f"{model}, {weights}, {clients} clients", len(clips), "requests", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", default="tiny.en", choices=("tiny.en", "base"))
    parser.add_argument("--weights", default="float32", choices=("float32", "int8"))
    add_json_option(parser)
    arguments: Any = parser.parse_args()
    record = Record(arguments.json, f"python -m benchmarks.serving, {arguments.runs} runs in turn")
    for clients in arguments.clients:
        compare(arguments.model, arguments.weights, clients, arguments.requests, arguments.runs, record)


if __name__ == "__main__":
    main()
