"""Memory that is asked for in large pages: PyTorch's tensors as ever, where Linux may give it pages of 2 MB."""

import re
import sys
from pathlib import Path

import pytest
import torch

from transept.core.execution.kv_cache import KVCache
from transept.core.kernels.cpu.gemm.panels import pack_int8
from transept.core.large_pages import LARGE_PAGE, empty_in_large_pages
from transept.core.model_shape import ModelShape


def asked_for(tensor: torch.Tensor) -> bool:
    """Whether the kernel was asked for large pages where the tensor is: "hg" among the flags of its mapping."""
    address, wanted = tensor.data_ptr(), False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            wanted = int(bounds[1], 16) <= address < int(bounds[2], 16)
        elif wanted and line.startswith("VmFlags:"):
            return "hg" in line.split()
    return False


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("size", [(0,), (3, 5), (1 << 20, 3), (2, 1000, 1001)])
def test_they_are_tensors_like_others(size: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = empty_in_large_pages(*size, dtype=dtype)
    assert (tensor.shape, tensor.dtype, tensor.is_contiguous()) == (torch.Size(size), dtype, True)
    numbers = torch.arange(tensor.numel()).view(size) % 100
    assert torch.equal(tensor.copy_(numbers).long(), numbers)
    if sys.platform.startswith("linux") and tensor.nbytes >= LARGE_PAGE:
        assert not tensor.data_ptr() % LARGE_PAGE


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="the system has no large pages")
def test_the_cache_and_large_weights_are_in_them() -> None:
    (layer,), (of_small_model,) = (
        KVCache(
            ModelShape(
                num_decoder_layers=1,
                num_kv_heads=num_heads,
                head_dim=64,
                max_source_positions=9,
                max_target_positions=9,
                vocab_size=9,
            ),
            16,
            3200 // num_heads,
            0,
            torch.float32,
            torch.device("cpu"),
        ).layers
        for num_heads in (8, 1)
    )
    assert min(layer.nbytes, of_small_model.nbytes) > LARGE_PAGE
    weight = pack_int8(torch.ones(2048, 1024)).values
    assert asked_for(layer)
    assert asked_for(weight)
    assert not asked_for(of_small_model)
    assert not asked_for(torch.empty(4 << 20))
