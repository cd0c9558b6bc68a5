"""Triton kernels, compiled for a GPU where there is none: they fit its registers and its shared memory.

A process of its own, since here they are made for Triton's interpreter, runs backend and norms on a CPU's tensors with
every launch replaced by a compilation for compute capability 9.0. The variants are those that models ask for.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transept.core.attention.backends.base import AttentionCall
from transept.core.attention.backends.triton import TritonBackend
from transept.core.attention.biases import AttentionBias, RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.kernels.dispatch import NORM
from transept.core.kernels.gpu.kv_cache import FP8
from transept.core.kernels.gpu.rounded_weights import round_in_one_kernel
from transept.core.layers.norm import RMSNorm

SHARED_MEMORY = 227 << 10  # bytes that one program may have, with compute capability 9.0
HEADS = 12
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def encoder(dtype: torch.dtype, head_dim: int, bias_kind: str = "no bias", **limits: float | int) -> None:
    """Two sequences with a bias as in T5, with any bias, or with none."""
    bias: AttentionBias | None = None
    if bias_kind == "relative":
        bias = RelativePositionBias(torch.zeros(32, HEADS, dtype=dtype), bidirectional=True)
    elif bias_kind == "tensor":
        bias = torch.zeros(HEADS, 304, 304, dtype=dtype)
    query, key, value = torch.zeros(340, 3, HEADS, head_dim, dtype=dtype).unbind(1)
    run(AttentionMetadata.for_encoder([300, 40]), AttentionType.ENCODER, query, key, value, None, bias, **limits)


def decoder(
    dtype: torch.dtype,
    head_dim: int,
    block_size: int,
    bias_kind: str = "no bias",
    cache_dtype: torch.dtype | None = None,
    **limits: float | int,
) -> None:
    """A prompt and a sequence of one token, in self-attention."""
    bias = None
    if bias_kind == "relative":
        bias = RelativePositionBias(torch.zeros(32, HEADS, dtype=dtype), bidirectional=False)
    query, key, value = torch.zeros(301, 3, HEADS, head_dim, dtype=dtype).unbind(1)
    tables = [list(range(-(-300 // block_size)))] * 2
    metadata = AttentionMetadata(block_size, [0, 300, 301], [300, 90], torch.arange(301) % 300, tables)
    cache = make_cache(tables, block_size, head_dim, cache_dtype or dtype)
    run(metadata, AttentionType.DECODER, query, key, value, cache, bias, **limits)


def cross(dtype: torch.dtype, head_dim: int, block_size: int) -> None:
    """A sequence of one token over several pieces of keys."""
    tables = [list(range(-(-1500 // block_size)))]
    metadata = AttentionMetadata(
        block_size, cross_query_start_loc=[0, 1], cross_seq_lens=[1500], cross_block_tables=tables
    )
    query = torch.zeros(1, HEADS, head_dim, dtype=dtype)
    cache = make_cache(tables, block_size, head_dim, dtype)
    run(metadata, AttentionType.ENCODER_DECODER, query, None, None, cache, None)


def norm_after_sum(norm: nn.Module, dtype: torch.dtype, *, keep_total: bool = True) -> None:
    """Of rows as the norm has weights."""
    x = torch.zeros(3, *norm.weight.shape, dtype=dtype)
    kernel, subtracts_mean = NORM.find(device="cuda"), isinstance(norm, nn.LayerNorm)
    bias, offset = (norm.bias, 0.0) if subtracts_mean else (None, norm.weight_offset)
    given = (x, x.to(norm.weight.dtype), norm.weight, bias, norm.eps)
    kernel(*given, weight_offset=offset, subtracts_mean=subtracts_mean, keep_total=keep_total)


def make_cache(tables: list[list[int]], block_size: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(2, len(tables[0]), block_size, HEADS, head_dim, dtype=dtype)


def run(
    metadata: AttentionMetadata, attn_type: AttentionType, query: Tensor, *rest: Any, **limits: float | int
) -> None:
    backend = TritonBackend()
    backend.plan(metadata)
    key, value, cache, bias = rest
    backend.forward(
        AttentionCall(query, key, value, cache, metadata, attn_type, query.shape[-1] ** -0.5, bias, **limits)
    )


VARIANTS: dict[str, Callable[[], None]] = {
    "Whisper's encoder": lambda: encoder(torch.float16, 64),
    "Whisper's decoder": lambda: decoder(torch.float16, 64, 64),
    "Whisper's cross-attention": lambda: cross(torch.float16, 64, 64),
    "T5's encoder": lambda: encoder(torch.bfloat16, 64, "relative"),
    "T5's decoder": lambda: decoder(torch.bfloat16, 64, 16, "relative"),
    "a cache in fp8": lambda: decoder(torch.bfloat16, 64, 16, cache_dtype=FP8),
    "float32": lambda: encoder(torch.float32, 64, "relative"),
    "float32 and large heads": lambda: encoder(torch.float32, 128),
    "heads of 80": lambda: decoder(torch.float16, 80, 16),
    "heads of 128": lambda: encoder(torch.bfloat16, 128, "tensor"),
    "heads of 256": lambda: encoder(torch.bfloat16, 256, "relative"),
    "T5Gemma's encoder": lambda: encoder(torch.bfloat16, 256, softcap=50.0, window=4096),
    "T5Gemma's decoder": lambda: decoder(torch.bfloat16, 256, 16, softcap=50.0, window=4096),
    "a soft cap and a bias": lambda: encoder(torch.float16, 64, "relative", softcap=50.0),
    "a window in float32": lambda: encoder(torch.float32, 128, window=64),
    "Whisper's norms": lambda: norm_after_sum(nn.LayerNorm(1280).half(), torch.float16),
    "BART's norms": lambda: norm_after_sum(nn.LayerNorm(1024).bfloat16(), torch.bfloat16, keep_total=False),
    "activations in fp8": lambda: round_in_one_kernel(torch.zeros(3, 5120, dtype=torch.bfloat16), FP8) and None,
    "activations in int8": lambda: round_in_one_kernel(torch.zeros(3, 1280, dtype=torch.float16), torch.int8) and None,
    "T5's norms": lambda: norm_after_sum(RMSNorm(4096).half(), torch.float32),
}


# Whose branches others have, too, most of which take more memory: compiled only when slow tests are run.
SLOW = (
    *("Whisper's encoder", "T5's encoder", "T5's decoder", "T5Gemma's encoder", "a cache in fp8", "float32"),
    *("float32 and large heads", "heads of 80", "heads of 128", "a soft cap and a bias", "a window in float32"),
)

Kernel = dict[str, Any]  # its name, and the bytes of memory that it takes


def compile_all(variants: list[str]) -> dict[str, list[Kernel]]:
    """The kernels that each of these variants launches."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime.jit import JITFunction

    launch, kernels = JITFunction.run, {}

    def compile_only(self: Any, *args: Any, warmup: bool, **kwargs: Any) -> None:
        kernel = launch(self, *args, warmup=True, **kwargs)
        kernels[kernel.hash] = {"name": kernel.name, "shared": kernel.metadata.shared, **memory_of(kernel)}

    JITFunction.run = compile_only
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            get_current_device=lambda: 0,
            get_current_stream=lambda device: 0,
        )
    )
    found = {}
    for name in variants:
        kernels.clear()
        VARIANTS[name]()
        found[name] = list(kernels.values())
    return found


def memory_of(kernel: Any) -> dict[str, int]:
    """The bytes of local memory that each thread of a kernel takes: what did not fit its registers."""
    import triton

    cubin = Path(os.environ["TRITON_CACHE_DIR"]) / "kernel.cubin"
    cubin.write_bytes(kernel.asm["cubin"])
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)]
    usage = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name.lower(): int(number) for name, number in re.findall(r"(STACK|LOCAL):(\d+)", usage)}


@pytest.fixture(scope="module")
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Kernel]]:
    """Of the variants that are tested this time."""
    tested = [item.callspec.params["variant"] for item in request.session.items if item.path == Path(__file__)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("kernels"))
    done = subprocess.run([sys.executable, __file__, *tested], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "variant", [pytest.param(each, marks=[pytest.mark.slow] if each in SLOW else []) for each in VARIANTS]
)
def test_kernels_fit_into_a_gpu(variant: str, compiled: dict[str, list[Kernel]]) -> None:
    assert compiled[variant]
    for kernel in compiled[variant]:
        assert kernel["stack"] == kernel["local"] == 0, kernel
        assert kernel["shared"] <= SHARED_MEMORY, kernel


if __name__ == "__main__":
    print(json.dumps(compile_all(sys.argv[1:])))
