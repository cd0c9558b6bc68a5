"""Kernels and PyTorch share their threads, which are started by the first engine and not inherited by forks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CORES = len(os.sched_getaffinity(0))

PROGRAM = """
import torch
torch.set_num_threads({before})
from transept.core.kernels.float_product import linear, pack
from transept.core.kernels.launch import match_threads
import numba
match_threads()
linear(torch.randn(4, 8), pack(torch.randn(30, 8), torch.float32), None)
print(torch.get_num_threads(), numba.get_num_threads())
torch.set_num_threads({after})
match_threads()
linear(torch.randn(4, 8), pack(torch.randn(30, 8), torch.float32), None)
print(torch.get_num_threads(), numba.get_num_threads())
"""


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (3, 3)])
def test_kernels_run_on_as_many_threads_as_pytorch_which_keeps_its_own(before: int, after: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)], capture_output=True, text=True, check=True
    )
    torch_before, ours_before, torch_after, ours_after = map(int, done.stdout.split())
    assert (torch_before, torch_after) == (before, after)
    assert (ours_before, ours_after) == (min(before, CORES), min(after, CORES))


CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
IMPORTS = """
import os, sys, traceback
import torch, numba
import transept.core.kernels.decoder_layer, transept.core.kernels.encoder_attention, transept.core.engine
from transept import Engine, ForkedProcessError, SamplingParams

def run(engine=None):
    engine = engine or Engine({checkpoint!r}, device="cpu")
    outputs = engine.generate(["grapheme", "ox"], SamplingParams(temperature=0.0, max_tokens=9), progress=False)
    return [output.outputs[0].text for output in outputs]

def in_child(function):
    child = os.fork()
    if not child:
        try:
            print(function(), flush=True)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status

def error_of(function):
    try:
        return function()
    except ForkedProcessError as error:
        return f"ForkedProcessError: {{error}}"
"""
NO_THREADS = """
try:
    print(numba.threading_layer())
except ValueError:
    print("no threads")
"""
BEFORE_ANYTHING = """
in_child(run)
print(run())
"""
AFTER_OPERATORS = """
torch.set_num_threads(2)
torch.randn(1 << 22).exp_()
torch.randn(900, 900) @ torch.randn(900, 900)
in_child(run)
assert torch.get_num_threads() == 2
torch.randn(1 << 22).exp_()
print(run())
"""
AFTER_A_STEP = """
engine = Engine({checkpoint!r}, device="cpu")
in_child(lambda: error_of(lambda: run(engine)))  # its threads are there, though it has not run
print(run(engine))
in_child(lambda: error_of(lambda: run(engine)))
in_child(lambda: error_of(run))
print(run(engine))
"""


def printed(program: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", (IMPORTS + program).format(checkpoint=str(CHECKPOINT))],
        capture_output=True,
        text=True,
        timeout=300,  # what waits for threads that are not there waits for ever
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_importing_kernels_starts_no_threads() -> None:
    assert printed(NO_THREADS) == ["no threads"]


TWO_ENGINES = """
from concurrent.futures import ThreadPoolExecutor
engines = [Engine({checkpoint!r}, device="cpu") for _ in range(2)]
with ThreadPoolExecutor(2) as pool:
    one, other = pool.map(lambda engine: [run(engine) for _ in range(20)], engines)
assert one == other
print(numba.threading_layer())
"""


@pytest.mark.parametrize("layer", ["workqueue", "default"])  # where there is neither OpenMP nor TBB, and here
def test_engines_in_two_threads_share_the_kernels_threads(layer: str) -> None:
    (used,) = printed(f"numba.config.THREADING_LAYER = {layer!r}\n" + TWO_ENGINES)
    assert layer in (used, "default")


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


@forks
@pytest.mark.parametrize("program", [BEFORE_ANYTHING, AFTER_OPERATORS], ids=["before anything", "after PyTorch"])
def test_a_process_forked_before_the_first_engine_runs_one(program: str) -> None:
    child, parent = printed(program)
    assert child == parent
    assert child.startswith("['")


@forks
def test_a_process_forked_after_a_step_is_told_to_be_spawned() -> None:
    lines = printed(AFTER_A_STEP)
    assert lines[1] == lines[4]
    for line in (lines[0], lines[2], lines[3]):
        assert line.startswith("ForkedProcessError: ")
        assert 'get_context("spawn")' in line
