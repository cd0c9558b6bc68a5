"""Memory that is asked for in large pages: PyTorch's tensors as ever, where Linux may give it pages of 2 MB."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from transept.core.kernels.huge_pages import HUGE_PAGE, empty_in_huge_pages

IN_A_NEW_PROCESS = """\
import re
from pathlib import Path

import torch

from transept.core.execution.kv_cache import KVCache
from transept.core.kernels.cpu.gemm.panels import pack_int8
from transept.core.model_shape import ModelShape


def asked_for(address):
    wanted = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            wanted = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif wanted and line.startswith("VmFlags:"):
            return "hg" in line.split()
    return False


def keys_and_values(num_heads):
    sizes = dict(max_source_positions=9, max_target_positions=9, vocab_size=9)
    shape = ModelShape(num_decoder_layers=1, num_kv_heads=num_heads, head_dim=64, **sizes)
    return KVCache(shape, 16, 6400 // num_heads, 0, torch.float32, torch.device("cpu")).layers[0]


kept = [pack_int8(torch.ones(2048, 1024)).values, keys_and_values(8), keys_and_values(1), torch.empty(40 << 20)]
weight, (keys, values), small, other = kept
for tensor in (weight, keys, values, small, other):
    last = tensor.data_ptr() + tensor.nbytes - 1
    print(tensor.nbytes >= 2 << 20, asked_for(tensor.data_ptr() + tensor.nbytes // 2), asked_for(last))
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("size", [(0,), (3, 5), (1 << 20, 3), (2, 1000, 1001)])
def test_they_are_tensors_like_others(size: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = empty_in_huge_pages(*size, dtype=dtype)
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (torch.Size(size), dtype, True)
    numbers = torch.arange(tensor.numel()).view(size) % 100
    assert torch.equal(tensor.copy_(numbers).long(), numbers)
    if sys.platform.startswith("linux") and tensor.nbytes >= HUGE_PAGE:
        assert not tensor.data_ptr() % HUGE_PAGE


@pytest.mark.parametrize("size", [(2, 3, 1 << 20), (5, 1000), (3, 1 << 21)])
def test_ends_may_stay_out(size: tuple[int, ...]) -> None:
    tensor = empty_in_huge_pages(*size, dtype=torch.uint8, small_ends=True)
    numbers = torch.arange(tensor.numel()).view(size) % 100
    assert torch.equal(tensor.copy_(numbers).long(), numbers)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no large pages")
def test_large_weights_are_in_them_and_the_cache_but_for_its_ends() -> None:
    # In a new process: memory that was asked for once stays so when something else lies there.
    told = subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS], capture_output=True, text=True, check=True).stdout
    weight, keys, values, small, other = (line.split() for line in told.splitlines())
    assert weight[:2] == ["True", "True"]
    assert keys == values == ["True", "True", "False"]
    assert small == other == ["True", "False", "False"]
