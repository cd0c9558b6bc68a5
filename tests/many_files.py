"""Folders of many short recordings, a model that transcribes them quickly, and a process that is interrupted at it."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import soundfile
from patience import PATIENCE
from random_whisper import save_random_whisper

OPTIONS = ("--max-new-tokens", "4", "--temperature-increment-on-fallback", "None")
RATE = 16_000
SECONDS = 0.2


def make_model(folder: Path, tokenizer_of: Path) -> Path:
    """The small random Whisper with a tokenizer, in a folder."""
    save_random_whisper(folder)
    shutil.copy(tokenizer_of / "tokenizer.json", folder / "tokenizer.json")
    return folder


def make_tree(folder: Path, count: int) -> None:
    """Recordings of noise, all different, ``0/talk0.wav``, ``1/talk1.wav``, ... and from the seventh on ``0/0/...``."""
    noise = np.random.default_rng(0)
    for number in range(count):
        within = folder / str(number % 7) / ("" if number < 7 else str(number % 3))
        within.mkdir(parents=True, exist_ok=True)
        soundfile.write(within / f"talk{number}.wav", noise.uniform(-0.5, 0.5, int(RATE * SECONDS)), RATE)


class Runs:
    """``transept transcribe`` over a folder, again and again until all is done. folder: of all that it writes."""

    def __init__(self, talks: Path, model: Path, folder: Path) -> None:
        self.talks, self.out, self.manifest = talks, folder / "out", folder / "manifest.jsonl"
        folder.mkdir(exist_ok=True)
        self.arguments = [
            "transcribe",
            str(talks),
            "--recursive",
            *OPTIONS,
            "--mode",
            "sequential",
            "--model",
            str(model),
            "-f",
            "txt,json",
        ]
        self.arguments += ["-o", str(self.out), "--skip-existing", "--manifest", str(self.manifest)]

    def interrupted(self, how: signal.Signals, after: int, rng: random.Random) -> subprocess.CompletedProcess[str]:
        """Ended by a signal some milliseconds after so many more results are there.

        It cannot be done by then, however late this process reads its lines: a pipe of 4096 bytes, the smallest there
        is, holds those of some twenty recordings, and while the pipe is full the process waits.
        """

        def heed_interrupts() -> None:  # which what runs in the background is started without
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        command = [sys.executable, "-m", "transept", *self.arguments]
        options = {"stderr": subprocess.PIPE, "bufsize": 256, "pipesize": 4096, "preexec_fn": heed_interrupts}
        with subprocess.Popen(command, **options) as process:
            assert process.stderr is not None
            shown, written = [], 0
            while written < after and (line := process.stderr.readline()):
                shown.append(line)
                written += b": wrote " in line
            time.sleep(rng.uniform(0.0, 0.02))  # anywhere in the work on the next ones, at which nothing could wait
            process.send_signal(how)
            shown.append(process.stderr.read())
            code = process.wait(PATIENCE)
        return subprocess.CompletedProcess(command, code, "", b"".join(shown).decode())

    def results(self) -> dict[str, str]:
        """Return the contents of all results, by their names; an error where JSON breaks off.

        Probabilities are rounded: they differ in the last digits with what shares a batch.
        """

        def rounded(text: str) -> float:
            return round(float(text), 3)

        found = {}
        for path in self.out.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                text = path.read_text()
                text = text if path.suffix == ".txt" else json.dumps(json.loads(text, parse_float=rounded))
                found[path.relative_to(self.out).as_posix()] = text
        return found

    def hidden(self) -> list[str]:
        """Return the names of all other files."""
        return [path.name for path in self.out.rglob(".*")]

    def told(self) -> list[tuple[str, str]]:
        """File and status of all whole lines of the manifest."""
        content = self.manifest.read_text() if self.manifest.exists() else ""
        entries = [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith("\n")]
        return [(entry["file"], entry["status"]) for entry in entries]
