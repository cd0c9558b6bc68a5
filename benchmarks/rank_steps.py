"""What a step costs outside the model where ranks are processes: to tell the ranks, and to hear from them.

    python -m benchmarks.rank_steps [OTHER_CHECKOUT] [--runs 9] [--sequences 32]

The ranks run no model (`benchmarks.idle_rank`), so all the time of a step is overhead. One worker within the engine's
process, idle as well, shows what the engine's own part is: scheduling and texts. The difference is what it costs to
cross between processes. With another checkout the two take turns.

Microseconds a step: by the clock, and of processor time in the engine's process and in each rank's. Medians over runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.turns import Engines, Runner, Turns, take_turns
from benchmarks.versions import of_checkout
from benchmarks.whisper import REPOSITORY

SMALL_MODEL = REPOSITORY / "tests" / "data" / "cmudict" / "bart-g2p"
POSITIONS = 512
NEW_TOKENS = 200
PROGRAM = "idle_rank"  # a module by itself: the other checkout has a package `benchmarks` as well
COLUMNS = ("clock", "engine's processor", "a rank's processor")


def checkpoint(directory: Path) -> str:
    """A small BART with random weights that takes longer texts than those of the tests."""
    from transformers import BartConfig, BartForConditionalGeneration

    shutil.copytree(SMALL_MODEL, directory, dirs_exist_ok=True)
    config = json.loads((directory / "config.json").read_text()) | {"max_position_embeddings": POSITIONS}
    BartForConditionalGeneration(BartConfig(**config)).save_pretrained(directory)
    return str(directory)


def runner(directory: str, num_ranks: int) -> Runner:
    """An engine with idle workers. It returns the microseconds a step of a run, one for each of COLUMNS."""
    import time

    from benchmarks.idle_rank import make_idle
    from transept import Engine, SamplingParams

    if num_ranks == 1:
        make_idle()
    else:
        _launched_programs().PROGRAM = PROGRAM
        sys.path.append(str(REPOSITORY / "benchmarks"))
    options: dict[str, Any] = {"device": "cpu", "kv_cache_bytes": 1 << 26, "max_num_seqs": 256}
    engine = Engine(directory, tensor_parallel_size=num_ranks, num_threads=num_ranks, **options)
    params = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=NEW_TOKENS)
    processes = [psutil.Process(), *psutil.Process().children()]

    def run(prompts: list[Any]) -> list[float]:
        used = [_processor_seconds(process) for process in processes]
        begin = time.perf_counter()
        engine.generate(prompts, params, progress=False)
        seconds = [time.perf_counter() - begin]
        seconds += [_processor_seconds(process) - before for process, before in zip(processes, used, strict=True)]
        return [1e6 * each / NEW_TOKENS for each in seconds[: len(COLUMNS)]]

    return run


def _launched_programs() -> Any:
    """The module that starts ranks as programs, where a checkout has it."""
    import importlib

    for package in ("parallel", "execution"):
        try:
            return importlib.import_module(f"transept.core.{package}.local_processes")
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("local_processes")


def _processor_seconds(process: psutil.Process) -> float:
    """Exact to the nanosecond, where psutil's are to 10 ms."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def print_overhead(turns: dict[str, Turns], versions: list[str]) -> None:
    """A row for each version and number of ranks, and what crosses between processes; ratios of these."""
    print(f"| | {' | '.join(f'{column}, us' for column in COLUMNS)} |")
    print("| --- | --- | --- | --- |")
    for name, theirs in turns.items():
        columns = [statistics.median(each) for each in zip(*theirs.all_outputs, strict=False)]
        print(f"| {name} | {' | '.join(f'{each:.0f}' for each in columns)} |")
    between = {version: _between(turns, version) for version in versions}
    for version, each in between.items():
        print(f"{version}: between processes {statistics.median(each):.0f} us a step")
    if len(versions) == 2:
        mine, other = (between[version] for version in versions)
        ratios = [theirs / own for theirs, own in zip(other, mine, strict=True)]
        print(f"{versions[1]} / {versions[0]}: {statistics.median(ratios):.2f} between processes")


def _between(turns: dict[str, Turns], version: str) -> list[float]:
    """By the clock, of each turn."""
    ranks, alone = (turns[f"{version}, {kind}"].all_outputs for kind in ("2 ranks", "1 process"))
    return [with_ranks[0] - without[0] for with_ranks, without in zip(ranks, alone, strict=True)]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", nargs="?", help="folder of the other checkout")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--sequences", type=int, default=32)
    arguments = parser.parse_args()
    checkouts = {"this": str(REPOSITORY)}
    if arguments.other:
        checkouts["other"] = str(Path(arguments.other).resolve())
    prompts = [{"prompt_tokens": [0, *range(4, 36), index + 4, 2]} for index in range(arguments.sequences)]
    with tempfile.TemporaryDirectory() as scratch:
        directory = checkpoint(Path(scratch))
        engines: Engines = {}
        for version, checkout in checkouts.items():
            for kind, num_ranks in (("2 ranks", 2), ("1 process", 1)):
                load: Callable[[], Runner] = partial(runner, directory, num_ranks)
                engines[f"{version}, {kind}"] = partial(of_checkout, checkout, load)
        print_overhead(take_turns(engines, prompts, arguments.runs, warm_up=len(prompts)), list(checkouts))


if __name__ == "__main__":
    main()
