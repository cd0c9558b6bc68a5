"""A program that prints one level's results as JSON: each kernel's by a hash of its bits, and an engine's."""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept import Engine, SamplingParams
from transept.core.kernels.cpu.attention import encoder_attention
from transept.core.kernels.cpu.attention.paged_attention import NO_BIAS, PagedWork, attend
from transept.core.kernels.cpu.elementwise.argmax import argmax
from transept.core.kernels.cpu.elementwise.norm import add_and_norm
from transept.core.kernels.cpu.gemm.panels import pack_floats, pack_int8, pack_int8_for_int8
from transept.core.kernels.cpu.gemm.product import product
from transept.core.kernels.cpu.library import level
from transept.core.kernels.cpu.speech.alignment import cheapest_path, medians
from transept.core.kernels.cpu.speech.recurrence import recur

FLOATS = (torch.float32, torch.float16)


def products() -> Iterator[tuple[str, Tensor]]:
    weight, bias = torch.randn(150, 200), torch.randn(150)
    packed = {
        **{str(dtype): pack_floats(weight.to(dtype), dtype) for dtype in FLOATS},
        "int8, by rows of 16 bits": pack_int8(weight),
        "int8, by rows in int8": pack_int8_for_int8(weight),
    }
    for rows in (1, 13, 70):
        x = torch.randn(rows, 200)
        for name, weights in packed.items():
            yield f"{rows} rows, weights in {name}", product(x, weights, bias, "gelu")


def attention() -> Iterator[tuple[str, Tensor]]:
    query, key, value = torch.randn(3, 131, 2, 40)
    for name in ("attend_sequence", "attend_in_int16", "attend_in_int8"):
        out = torch.empty_like(query)
        getattr(encoder_attention, name)(query, key, value, 0.2, out, None)
        yield name, out
    work = PagedWork(16, [[3, 1], [*range(4, 20)]], [29, 250], [(0, 1), (1, 3)])
    for dtype in FLOATS:
        out = torch.empty(3, 6, 20)
        attend(torch.randn(3, 6, 20), torch.randn(2, 320, 2, 20).to(dtype), work, 0.3, NO_BIAS, out)
        yield f"paged attention, a cache in {dtype}", out


def rows() -> Iterator[tuple[str, Any]]:
    x, scale, bias = torch.randn(9, 150), torch.rand(150), torch.randn(150)
    yield "sum and norm", add_and_norm(x, x.flip(0), scale, bias, 1e-5, subtracts_mean=True, keep_total=True)
    yield "norm without mean", add_and_norm(x, None, scale, None, 1e-5, subtracts_mean=False, keep_total=False)
    yield "argmax", argmax(torch.randn(3, 4100))


def speech() -> Iterator[tuple[str, Any]]:
    inputs, recurrent, hidden, memory = (torch.randn(shape).numpy() for shape in ((30, 128), (32, 128), 32, 32))
    yield "recurrence", (recur(inputs, recurrent, hidden, memory), hidden, memory)
    yield "medians", medians(torch.randn(4, 60).numpy())
    yield "path", cheapest_path(torch.randn(20, 150).double().numpy())


def decoder(checkpoint: str) -> Iterator[tuple[str, list[float]]]:
    """Log probabilities of a whole model: its encoder, and its decoder in one kernel."""
    params = SamplingParams(temperature=0.0, max_tokens=9)
    for quantization in (None, "int8"):
        engine = Engine(checkpoint, device="cpu", quantization=quantization)
        outputs = engine.generate(["grapheme", "ox"], params, progress=False)
        yield f"a model in {quantization or 'float32'}", [each.outputs[0].cumulative_logprob for each in outputs]


def bits(arrays: Any) -> str:
    digest = hashlib.sha256()
    for array in arrays if isinstance(arrays, tuple) else (arrays,):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    torch.manual_seed(0)
    results: dict[str, Any] = {
        name: bits(result) for group in (products, attention, rows, speech) for name, result in group()
    }
    print(json.dumps({"level": level(), **results, **dict(decoder(sys.argv[1]))}))
