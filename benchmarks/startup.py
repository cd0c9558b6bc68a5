"""From the shell to a clip's text: ``transept transcribe`` beside a ten-line faster-whisper script, whole processes.

    python -m benchmarks.startup [--runs 10] [--models tiny.en base] [--weights float32 int8]

Each turn takes one clip of tests/data/speech/librivox, all five in turn, and starts every command once: its seconds are
those from its start to its end, imports, weights and shutdown among them. `import torch` alone stands beside them,
which one command needs and the other does not. Peak memory is what the system says of the process that ended. Both
transcribe in English, greedily, from the same weights, with as many threads as there are cores, and find compiled
bytecode.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from itertools import cycle, islice
from operator import eq
from pathlib import Path

from benchmarks.turns import Record, Turns, add_json_option, print_table

# Nothing here imports torch: the peak memory of a process begins at that of the one which started it.

CLIPS = Path(__file__).parents[1] / "tests" / "data" / "speech" / "librivox"
FASTER_WHISPER = """\
import os
import sys

from faster_whisper import WhisperModel

clip, model, compute_type = sys.argv[1:]
whisper = WhisperModel(model, device="cpu", compute_type=compute_type, cpu_threads=os.cpu_count())
segments, info = whisper.transcribe(clip, language="en", beam_size=1)
for segment in segments:
    print(segment.text)
"""
PREPARE = "import sys, pathlib, benchmarks.whisper as w; print(w.checkpoint(sys.argv[1], pathlib.Path(sys.argv[2])))"


def commands(model: str, directory: str, weights: str, clip: Path) -> dict[str, list[str]]:
    """What is started, by its name. The first is what the others are compared with."""
    transept = [sys.executable, "-m", "transept", "transcribe", str(clip), "--model", directory]
    transept += ["--beam-size", "1"]
    transept += ["--language", "en"] if not model.endswith(".en") else []
    transept += ["--quantization", "int8"] if weights == "int8" else []
    return {
        "faster-whisper": [sys.executable, "-c", FASTER_WHISPER, str(clip), directory, weights],
        "transept": transept,
        "import torch": [sys.executable, "-c", "import torch"],
    }


def run(command: list[str]) -> tuple[str, float, float]:
    """Returns what a command printed, its seconds and its peak memory in MiB. Raises CalledProcessError."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, stderr=said, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (printed, said):
            file.seek(0)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=said.read().decode())
        return " ".join(printed.read().decode().split()), seconds, used.ru_maxrss / 1024


def compare(model: str, directory: str, weights: str, runs: int, record: Record) -> None:
    """Print and record one table: a row a command."""
    turns: dict[str, Turns] = {}
    for clip in islice(cycle(sorted(CLIPS.glob("*.flac"))), runs):
        for name, command in commands(model, directory, weights, clip).items():
            text, seconds, peak_mib = run(command)
            of_command = turns.setdefault(name, Turns([[]]))
            of_command.outputs.append(text)
            of_command.seconds.append(seconds)
            of_command.peak_mib = max(of_command.peak_mib, peak_mib)
    print(f"\n{model}, {weights}: {runs} runs in turn, a clip of 3 to 7 s each")
    theirs = turns["faster-whisper"]
    judge = ("same text", lambda texts: f"{sum(map(eq, theirs.outputs, texts))}/{runs}")
    rows = print_table(turns, 1.0, "clips", judge)
    print(f"memory: transept {turns['transept'].peak_mib / theirs.peak_mib:.2f} times faster-whisper's")
    record.add(f"{model}, {weights}, start to text", 1.0, "clips", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--models", nargs="+", choices=("tiny.en", "base"), default=["tiny.en", "base"])
    parser.add_argument("--weights", nargs="+", choices=("float32", "int8"), default=["float32", "int8"])
    add_json_option(parser)
    arguments = parser.parse_args()
    versions = {name: version(name) for name in ("torch", "faster-whisper", "ctranslate2")}
    record = Record(arguments.json, f"python -m benchmarks.startup, {arguments.runs} runs in turn", versions)
    print(f"{os.cpu_count()} cores, {versions}")
    with tempfile.TemporaryDirectory() as scratch:
        for model in arguments.models:
            prepared = subprocess.run(
                [sys.executable, "-c", PREPARE, model, scratch], check=True, stdout=subprocess.PIPE, text=True
            )
            for weights in arguments.weights:
                compare(model, prepared.stdout.strip(), weights, arguments.runs, record)


if __name__ == "__main__":
    main()
