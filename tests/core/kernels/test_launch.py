"""Kernels and PyTorch share their threads."""

import os
import subprocess
import sys

import pytest

CORES = len(os.sched_getaffinity(0))

PROGRAM = """
import torch
torch.set_num_threads({before})
from transept.core.kernels.float_product import linear, pack
from transept.core.kernels.launch import match_threads
import numba
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
