"""How long tokens of running requests wait for the encoders of new ones, on a CPU: two checkouts in turn.

    python -m benchmarks.mixed_load OTHER_CHECKOUT [--runs 3] [--model tiny.en] [--seconds 12] [--busy]
        [--other-options JSON]

Eight clients read tokens all the time, and a new window comes every 300 ms. For the clients' tokens: percentiles of the
milliseconds between two of one client, and tokens a second; and how many windows were done. Medians over the runs.
--busy is for a machine that others use: one thread, its processor time for all times, twice as long between windows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import whisper
from benchmarks.turns import Engines, Runner, take_turns
from benchmarks.versions import of_checkout

CLIENTS = 8
CLIENT_TOKENS = 400  # of a request; then the client asks again
WINDOW_TOKENS = 30
SECONDS_BETWEEN = 0.3
COLUMNS = ("p50 ms", "p95 ms", "p99 ms", "longest ms", "tokens/s", "windows/s")


def runner(directory: Path, seconds: float, busy: bool, options: dict[str, Any]) -> Runner:
    """An engine of the checkout at hand. A run returns a number for each of COLUMNS."""
    import time

    from transept import Engine, SamplingParams

    threads, clock = (1, time.thread_time) if busy else (None, time.perf_counter)
    between = SECONDS_BETWEEN * (2 if busy else 1)
    engine = Engine(directory, device="cpu", dtype="float32", num_threads=threads, kv_cache_bytes=1 << 30, **options)
    noise, names = np.random.default_rng(0), iter(range(1 << 60))
    reads = SamplingParams(temperature=0.0, max_tokens=CLIENT_TOKENS, ignore_eos=True)
    short = SamplingParams(temperature=0.0, max_tokens=WINDOW_TOKENS, ignore_eos=True)

    def window(waveform: np.ndarray) -> dict[str, Any]:
        """A waveform that no run has encoded before."""
        return {"multi_modal_data": {"audio": (waveform + noise.normal(0, 1e-4, len(waveform)).astype("f4"), 16_000)}}

    def run(waveforms: list[np.ndarray]) -> list[Any]:
        def ask(client: int) -> None:
            engine.add_request(f"client {client} {next(names)}", window(waveforms[client % len(waveforms)]), reads)

        ready = [window(waveforms[index % len(waveforms)]) for index in range(int(seconds / between) + 1)]
        for client in range(CLIENTS):
            ask(client)
        for _ in range(20):
            engine.step()
        begin = clock()
        last: dict[str, float] = {}
        gaps: list[float] = []
        num_tokens = num_windows = added = 0
        while (now := clock() - begin) < seconds:
            while added < now / between and added < len(ready):
                engine.add_request(f"window {next(names)}", ready[added], short)
                added += 1
            outputs = engine.step()
            now = clock() - begin
            for output in outputs:
                num_tokens += 1
                client = output.request_id.split()[:2]
                if client[0] == "window":
                    num_windows += output.finished
                    continue
                if output.finished:
                    last.pop(output.request_id, None)
                    ask(int(client[1]))
                    continue
                if output.request_id in last:
                    gaps.append(now - last[output.request_id])
                last[output.request_id] = now
        while engine.has_unfinished_requests:
            for output in engine.step():
                if not output.finished:
                    engine.abort_request(output.request_id)
        found = [*(float(each) * 1e3 for each in np.percentile(gaps, [50, 95, 99, 100])), num_tokens / seconds]
        return [*found, num_windows / seconds]

    return run


def engines(other: str, directory: Path, seconds: float, busy: bool, options: dict[str, Any]) -> Engines:
    """Two checkouts' engines. options: further ones of the other engine."""
    checkouts = {"this": (str(whisper.REPOSITORY), {}), "other": (str(Path(other).resolve()), options)}
    loads: dict[str, Callable[[], Runner]] = {
        name: partial(of_checkout, checkout, partial(runner, directory, seconds, busy, own))
        for name, (checkout, own) in checkouts.items()
    }
    return {**loads}


def main() -> None:
    """Print a row a checkout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="folder of the other checkout")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=12.0, help="of a run")
    parser.add_argument("--model", default="tiny.en", choices=("tiny.en", "base"))
    parser.add_argument("--busy", action="store_true", help="count processor time of one thread")
    parser.add_argument("--other-options", type=json.loads, default={}, help="of the other checkout's Engine, as JSON")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as scratch:
        directory = whisper.checkpoint(arguments.model, Path(scratch))
        both = engines(arguments.other, directory, arguments.seconds, arguments.busy, arguments.other_options)
        turns = take_turns(both, whisper.windows("prompts-en"), arguments.runs)
    print(f"{'':8}" + "".join(f"{column:>12}" for column in COLUMNS))
    for name, each in turns.items():
        medians = [statistics.median(column) for column in zip(*each.all_outputs, strict=True)]
        print(f"{name:8}" + "".join(f"{median:12.1f}" for median in medians))


if __name__ == "__main__":
    main()
