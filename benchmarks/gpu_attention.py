"""Attention on a GPU, call by call: what each backend takes for the shapes of large models, beside the bound.

    python -m benchmarks.gpu_attention [--device cuda] [--toy] [--repeats 20]

The decoder's sequences lie in a paged cache whose blocks are in random order. A bound is the arithmetic at the rate of
a large product, or what is read at the rate of a large copy, whichever takes longer. --toy takes shapes so small that
the script can be tried on a CPU, with TRITON_INTERPRET=1 in the environment for `triton`.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.gpu import finish, rates
from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.backends.selector import select_backend
from transept.core.attention.biases import RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType, DecodeTables
from transept.errors import ParameterError

BLOCK_SIZE = 64


@dataclass(frozen=True)
class Case:
    """Sequences of some lengths with one query each, or for an encoder as many as keys; bias: T5's."""

    name: str
    kind: AttentionType
    lengths: list[int]
    heads: int
    head_dim: int = 64
    bias: bool = False
    fp8: bool = False

    @property
    def arithmetic(self) -> float:
        """Floating-point operations."""
        queries = self.lengths if self.kind is AttentionType.ENCODER else [1] * len(self.lengths)
        pairs = sum(a * b for a, b in zip(queries, self.lengths, strict=True))
        return 4.0 * pairs * self.heads * self.head_dim

    def num_bytes(self, dtype: torch.dtype) -> int:
        """Of keys and values."""
        return 2 * sum(self.lengths) * self.heads * self.head_dim * (1 if self.fp8 else dtype.itemsize)


def cases(toy: bool) -> list[Case]:
    """What a step of each model computes, in one layer."""
    draws = random.Random(0)
    scale = 16 if toy else 1
    document = [draws.randint(260, 440) // scale for _ in range(128 // scale)]
    encoder, cross, own = AttentionType.ENCODER, AttentionType.ENCODER_DECODER, AttentionType.DECODER
    windows, window, heads = 64 // scale, 1500 // scale, 20 // (10 if toy else 1)
    return [
        Case("whisper-large-v3, encoder", encoder, [window] * 16, heads),
        Case("whisper-large-v3, cross", cross, [window] * windows, heads),
        Case("whisper-large-v3, cross in fp8", cross, [window] * windows, heads, fp8=True),
        Case("whisper-large-v3, own tokens", own, [128] * windows, heads),
        Case("bart-large-cnn, encoder", encoder, document[:40], 16),
        Case("bart-large-cnn, cross", cross, document, 16),
        Case("flan-t5-xl, encoder", encoder, document[:40], 32, bias=True),
        Case("flan-t5-xl, own tokens", own, [128] * len(document), 32, bias=True),
    ]


def sdpa(backend: str, query: Tensor, key: Tensor, value: Tensor, count: int, scale: float) -> Tensor:
    """PyTorch's attention over `count` sequences of one length."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    batched = (each.unflatten(0, (count, -1)).transpose(1, 2) for each in (query, key, value))
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return F.scaled_dot_product_attention(*batched, scale=scale).transpose(1, 2)


def ways(case: Case, dtype: torch.dtype, device: torch.device) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    """The ways to compute a case, with their names; a backend that cannot is printed with its reasons."""
    torch.manual_seed(0)
    cache_dtype = torch.float8_e4m3fn if case.fp8 else dtype
    scale = case.head_dim**-0.5
    bias = RelativePositionBias(torch.randn(32, case.heads, device=device, dtype=dtype), True) if case.bias else None
    encoder = case.kind is AttentionType.ENCODER
    rows = sum(case.lengths) if encoder else len(case.lengths)
    query, key, value = torch.randn(rows, 3, case.heads, case.head_dim, device=device, dtype=dtype).unbind(1)
    blocks = [-(-length // BLOCK_SIZE) for length in case.lengths]
    order = torch.randperm(sum(blocks), device=device).to(torch.int32)
    tables = torch.zeros(len(blocks), max(blocks), dtype=torch.int32, device=device)
    for row, own in enumerate(order.split(blocks)):
        tables[row, : len(own)] = own
    lengths = torch.tensor(case.lengths, dtype=torch.int32, device=device)
    cache = torch.zeros(0, device=device)
    if not encoder:
        cache = torch.randn(2, sum(blocks), BLOCK_SIZE, case.heads, case.head_dim, device=device).to(cache_dtype)

    def by(backend: AttentionBackend, recorded: bool) -> Callable[[], Tensor]:
        metadata = AttentionMetadata(block_size=BLOCK_SIZE)
        if encoder:
            metadata = AttentionMetadata.for_encoder(case.lengths)
            backend.plan(metadata)
        elif recorded:
            backend.plan_decode(metadata, DecodeTables(lengths, tables, lengths, tables))
        else:
            own = [table[:count].tolist() for table, count in zip(tables, blocks, strict=True)]
            metadata.query_start_loc = metadata.cross_query_start_loc = list(range(len(own) + 1))
            metadata.seq_lens = metadata.cross_seq_lens = case.lengths
            metadata.block_tables = metadata.cross_block_tables = own
            backend.plan(metadata)
        if case.kind is AttentionType.DECODER:
            last = lengths.long() - 1
            block = tables.gather(1, (last // BLOCK_SIZE)[:, None])[:, 0].long()
            metadata.slot_mapping = block * BLOCK_SIZE + last % BLOCK_SIZE
        new = (key, value) if case.kind is not AttentionType.ENCODER_DECODER else (None, None)
        return lambda: backend.forward(
            AttentionCall(query, *new, None if encoder else cache, metadata, case.kind, scale, bias)
        )

    for name in ("triton", "torch") if case.bias else ("xformers", "triton", "torch"):  # which hands a bias to triton
        try:
            backend = select_backend(name, device, dtype, case.head_dim, BLOCK_SIZE, cache_dtype)
        except ParameterError as error:
            print(f"  {name}: {error}")
            continue
        if encoder or name != "triton":
            yield name, by(backend, recorded=False)
        else:
            yield f"{name}, as recorded", by(backend, recorded=True)
    if encoder and not case.bias and len(set(case.lengths)) == 1:
        for kernel in ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
            yield kernel, lambda kernel=kernel: sdpa(kernel, query, key, value, len(case.lengths), scale)


def best_ms(function: Callable[[], Tensor], device: torch.device, repeats: int) -> float:
    """Shortest time of a call, of several one after the other where the device works beside the host; tried for 1 s."""
    calls = 10 if device.type == "cuda" else 1
    finish(device.type, function())
    times: list[float] = []
    for _ in range(repeats):
        if sum(times) * calls > 1.0:
            break
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        finish(device.type, None)
        times.append((time.perf_counter() - begin) / calls)
    return min(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--repeats", type=int, default=20)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    dtype = torch.bfloat16 if device.type != "cpu" else torch.float32
    rate, bandwidth = rates(device.type, dtype)
    print(f"{dtype}, {rate / 1e12:.0f} TFLOP/s, {bandwidth / 1e9:.0f} GB/s")
    for case in cases(arguments.toy):
        bound = max(case.arithmetic / rate, case.num_bytes(dtype) / bandwidth) * 1000
        print(f"{case.name}: bound {bound:.3f} ms")
        with torch.inference_mode():
            for name, call in ways(case, dtype, device):
                try:
                    took = best_ms(call, device, arguments.repeats)
                except Exception as error:  # of a way that cannot serve here
                    print(f"  {name}: {type(error).__name__}: {str(error).partition(chr(10))[0]}")
                    continue
                print(f"  {name}: {took:.3f} ms, {took / bound:.1f} times the bound")


if __name__ == "__main__":
    main()
