"""Engines that take turns at one task, each in a process of its own, so that a noisy machine is noisy for all.

A process of its own shows how much memory its engine needs. Of the engines only one works at a time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from operator import eq
from pathlib import Path
from typing import Any

from benchmarks.elsewhere import Elsewhere, start_elsewhere

Runner = Callable[[list[Any]], list[Any]]  # inputs -> of each its token ids, or its text
WARM_UP = 2  # inputs of a first run, which is not timed

# name -> loads the engine; a module's function, or a functools.partial of one, since it travels to another process
Engines = dict[str, Callable[[], Runner] | Elsewhere]


@dataclass
class Turns:
    """What one engine did."""

    all_outputs: list[list[Any]] = field(default_factory=list)  # of each turn, one an input
    seconds: list[float] = field(default_factory=list)  # one a turn
    peak_mib: float = 0.0

    @property
    def outputs(self) -> list[Any]:
        """Of the last turn."""
        return self.all_outputs[-1]


def take_turns(
    engines: Engines, inputs: list[Any], runs: int, alone: bool = False, warm_up: int = WARM_UP
) -> dict[str, Turns]:
    """Load every engine, warm it up, then let each run over the inputs, in turn, as often as asked.

    alone: one input after the other, instead of all together. warm_up: inputs of the first run.
    """
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    ends: list[Callable[[], object]] = []  # wait for a process's end
    for name, engine in engines.items():
        pipes[name], child = context.Pipe()
        if isinstance(engine, Elsewhere):
            ends.append(start_elsewhere(engine, child).wait)
            pipes[name].send((serve, (engine.load, inputs, alone, warm_up)))
        else:
            process = context.Process(target=serve, args=(engine, inputs, alone, warm_up, child))
            process.start()
            ends.append(process.join)
        child.close()  # so that a process that dies is an EOFError here
        pipes[name].recv()  # loaded and warm, before the next one starts
    turns = {name: Turns() for name in engines}
    for _ in range(runs):
        for name, pipe in pipes.items():
            pipe.send("run")
            outputs, seconds = pipe.recv()
            turns[name].all_outputs.append(outputs)
            turns[name].seconds.append(seconds)
    for name, pipe in pipes.items():
        pipe.send("end")
        turns[name].peak_mib = pipe.recv()
    for end in ends:
        end()
    return turns


def serve(load: Callable[[], Runner], inputs: list[Any], alone: bool, warm_up: int, pipe: Connection) -> None:
    """What an engine's process does: one run over the inputs whenever it is asked."""
    run = load()
    for batch in [[one] for one in inputs[:warm_up]] if alone else [inputs[:warm_up]]:
        run(batch)
    pipe.send("ready")
    while pipe.recv() == "run":
        begin = time.perf_counter()
        outputs = [run([one])[0] for one in inputs] if alone else run(inputs)
        pipe.send((outputs, time.perf_counter() - begin))
    # not getrusage: a child's ru_maxrss begins at its parent's
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    pipe.send(int(status["VmHWM"].split()[0]) / 1024)


@dataclass(frozen=True)
class Row:
    """One engine's row of a table. ratio: the median over the turns of its time by ours of the same turn."""

    engine: str
    median_seconds: float
    min_seconds: float
    ratio: float
    verdict: str  # of its outputs
    peak_mib: float


@dataclass
class Record:
    """What a benchmark found, in the JSON that docs/figures.py draws; the file is complete after every table."""

    file: Path | None  # None: nowhere
    source: str
    versions: dict[str, str] = field(default_factory=dict)
    comparisons: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, amount: float, unit: str, rows: list[Row]) -> None:
        """Add a table. name: model, weights, task; amount: what one run handles, in units such as audio seconds."""
        self.comparisons.append({"name": name, "amount": amount, "unit": unit, "rows": list(map(asdict, rows))})
        if self.file is not None:
            found = {key: value for key, value in asdict(self).items() if key != "file"}
            machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
            self.file.write_text(json.dumps({"machine": machine, **found}, indent=1) + "\n", encoding="utf-8")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """--json FILE, for a Record."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found there, too")


def print_table(
    turns: dict[str, Turns],
    amount: float,
    unit: str,
    judge: tuple[str, Callable[[list[Any]], str]] | None = None,
    ours_beside: Callable[[str], str] | None = None,
) -> list[Row]:
    """A row an engine.

    amount: what one run handles, in units such as audio seconds. judge: the last but one column, its head and what it
    says of an engine's outputs; by default how many of them are those of the first engine. ours_beside: which of our
    engines one is compared with, by its name; by default, and where it takes no part, with the first.
    """
    first = next(iter(turns))
    ours = turns[first]
    head, say = judge or ("same tokens", lambda outputs: f"{sum(map(eq, ours.outputs, outputs))}/{len(outputs)}")
    print(f"| engine | median s | min s | {unit}/s | {first} is | {head} | peak MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    rows = []
    for name, theirs in turns.items():
        own = turns.get(ours_beside(name), ours) if ours_beside else ours
        ratio = statistics.median(slow / fast for slow, fast in zip(theirs.seconds, own.seconds, strict=True))
        median, best = statistics.median(theirs.seconds), min(theirs.seconds)
        rows.append(Row(name, median, best, ratio, say(theirs.outputs), theirs.peak_mib))
        cells = f"{median:.2f} | {best:.2f} | {amount / median:.1f} | {ratio:.2f}x"
        print(f"| {name} | {cells} | {rows[-1].verdict} | {theirs.peak_mib:.0f} |", flush=True)
    return rows
