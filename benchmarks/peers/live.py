"""Live streams that two servers hold at flat lag: `transept serve` and WhisperLive on faster-whisper, in one run.

    make live-peer
    python -m benchmarks.peers.live [--model tiny.en] [--streams 1 2 4 8 12] [--seconds 120] [--modes batch shared]

Both have int8 weights of the same model, and get the streams of `benchmarks.live_streams` over WebSockets, in turn: for
each number of streams first the one, then the other. A server that does not hold a number of streams gets no more.

Of Transept only final text counts. WhisperLive's text becomes final much later than it appears, so any text counts that
it shows, also text that it changes later: a word has appeared in the first message whose segments reach its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import websockets

from benchmarks.live_streams import AFTER, BOUNDS, HEAD, Heard, Lags, Speech, pace, play, serve, speak, speeches
from benchmarks.peers.environment import REPOSITORY
from benchmarks.whisper import checkpoint

PYTHON = REPOSITORY / ".venv-live-peer" / "bin" / "python"  # made by `make live-peer`
WORKER = REPOSITORY / "benchmarks" / "peers" / "workers" / "live_server.py"
START_SECONDS = 120.0  # of the peer's server


async def speak_to_peer(url: str, speech: Speech, begin: float) -> Heard:
    """Play a speech to WhisperLive."""
    heard, completed, last = Heard(), dict[str, str](), ""

    async def read(connection: Any) -> None:
        nonlocal last
        async for message in connection:
            event = json.loads(message)
            if not (segments := event.get("segments")):
                continue
            heard.reached.append((time.monotonic() - begin, max(float(each["end"]) for each in segments)))
            completed.update({each["start"]: each["text"] for each in segments if each["completed"]})
            last = "" if segments[-1]["completed"] else segments[-1]["text"]

    async with websockets.connect(url, max_size=None) as connection:
        options = {"uid": str(id(heard)), "language": "en", "task": "transcribe", "model": "given", "use_vad": True}
        await connection.send(json.dumps(options))
        while json.loads(await connection.recv()).get("message") != "SERVER_READY":
            pass
        reading = asyncio.create_task(read(connection))
        await pace(speech, begin, lambda samples: connection.send(samples.astype(np.float32).tobytes()))
        await asyncio.sleep(AFTER)
        reading.cancel()
    heard.text = " ".join([*(completed[start] for start in sorted(completed, key=float)), last])
    return heard


class Peer:
    """WhisperLive's server in a process of its own, for a ``with`` block. mode: of the worker."""

    def __init__(self, directory: Path, mode: str) -> None:
        if not PYTHON.exists():
            raise SystemExit(f"{PYTHON} does not exist; run `make live-peer`")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port: int = taken.getsockname()[1]
        command = [str(PYTHON), str(WORKER), str(directory), str(self.port), mode]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionError:
                time.sleep(0.2)
            else:
                return f"ws://127.0.0.1:{self.port}"
        raise SystemExit("WhisperLive's server does not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def main() -> None:
    """Print a row for each server and number of streams, and the largest numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny.en", choices=BOUNDS)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8, 10, 12, 16])
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--modes", nargs="+", choices=("batch", "shared"), default=["batch"], help="of WhisperLive")
    arguments = parser.parse_args()
    bound = BOUNDS[arguments.model]
    with tempfile.TemporaryDirectory() as scratch:
        directory = checkpoint(arguments.model, Path(scratch))
        spoken = partial(speeches, directory, seconds=arguments.seconds)
        spoken(1)  # times the words before a server runs
        for mode in arguments.modes:
            held = {"transept": 0, f"WhisperLive, {mode}": 0}
            given_up: set[str] = set()
            with Peer(directory, mode) as peer_url:
                servers = dict(zip(held, ((serve(directory), speak), (peer_url, speak_to_peer)), strict=True))
                warm_up = speeches(directory, 1, 10.0)
                for url, client in servers.values():
                    asyncio.run(play(url, warm_up, client))
                print(HEAD)
                for num in arguments.streams:
                    streams = spoken(num)
                    for name, (url, client) in servers.items():
                        if name in given_up:
                            continue
                        lags = Lags.of(streams, asyncio.run(play(url, streams, client)), arguments.seconds)
                        print(f"| {name}, {arguments.model} int8 | {num} | {lags.row(bound)} | |", flush=True)
                        if lags.is_held(bound):
                            held[name] = num
                        else:
                            given_up.add(name)
            print(f"\nmost streams: {', '.join(f'{name} {num}' for name, num in held.items())}\n")


if __name__ == "__main__":
    main()
