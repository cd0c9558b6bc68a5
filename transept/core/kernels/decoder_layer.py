"""A whole decoder layer for a step in which every sequence has one token, in one call.

Called by `transept.core.layers.transformer.DecoderLayer`. The arithmetic of such a step is over in microseconds; a call
from Python for each norm, product and sum, with the caches full of weights, costs as much again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from transept.core.kernels import float_product, int8_product
from transept.core.kernels.float_product import Floats, PackedFloats
from transept.core.kernels.int8_product import PackedInt8
from transept.core.kernels.launch import kernel
from transept.core.kernels.paged_attention import NO_BIAS, Pieces, attend_rows, check
from transept.core.kernels.pointwise import activate, add, copy, multiply, normalize
from transept.core.kernels.vectors import Stored, keep

Weight = PackedFloats | PackedInt8


class DecodeStep(NamedTuple):
    """What the layers of a step share.

    slots: int64 [rows], where each row's key and value go. self_keys, cross_keys: what the rows attend to. bias: of
    self-attention, [heads, distances] as in `paged_attention.attend`, or its NO_BIAS. num_slots: that the cache must
    have for slots.
    """

    slots: npt.NDArray[np.int64]
    self_keys: Pieces
    cross_keys: Pieces
    bias: Floats
    num_slots: int


def decode_step(slots: npt.NDArray[np.int64], self_keys: Pieces, cross_keys: Pieces, bias: Floats) -> DecodeStep:
    """See DecodeStep. Raises IndexError for a negative slot."""
    if slots.min() < 0:
        raise IndexError(f"a key is to be written to slot {slots.min()}")
    return DecodeStep(slots, self_keys, cross_keys, bias, int(slots.max()) + 1)


class DecoderWeights(NamedTuple):
    """A layer's weights [out, in], all stored alike, and biases [out] and norms in float32; one that it does not have
    is empty.

    qkv holds queries, keys and values of self-attention, query the queries of cross-attention alone. gate is multiplied
    with the activated fc1.
    """

    self_norm: Floats
    self_norm_bias: Floats
    qkv: Weight
    qkv_bias: Floats
    self_out: Weight
    self_out_bias: Floats
    cross_norm: Floats
    cross_norm_bias: Floats
    query: Weight
    query_bias: Floats
    cross_out: Weight
    cross_out_bias: Floats
    ffn_norm: Floats
    ffn_norm_bias: Floats
    fc1: Weight
    fc1_bias: Floats
    gate: Weight
    gate_bias: Floats
    fc2: Weight
    fc2_bias: Floats


def times(x: Floats, weight: Weight, bias: Floats, out: Floats) -> None:
    """Inside a kernel: write ``x @ weight.T + bias`` to out."""
    raise NotImplementedError


@overload(times, strict=False, inline="always")
def _times(x: Any, weight: Any, bias: Any, out: Any) -> Any:
    product = int8_product.multiply if "scales" in weight.fields else float_product.multiply
    return lambda x, weight, bias, out: product(x, weight, bias, out)


def decoder_layer(
    x: Floats,
    cache: Stored,
    step: DecodeStep,
    weights: DecoderWeights,
    self_scale: float,
    cross_scale: float,
    epsilon: float,
    pre_norm: bool,
    activation: int,
) -> Floats:
    """x: [rows, hidden]. cache: as `paged_attention.array_of` gives it, written and read. Returns x's shape.

    pre_norm: ``x + f(norm(x))``, else ``norm(x + f(x))``. activation: one of `pointwise.ACTIVATIONS`.
    Raises IndexError where the step reaches beyond x or the cache, or these are not what the weights are for.
    """
    rows, (num_slots, kv_heads, dim) = len(x), cache.shape[1:]
    check(step.self_keys, rows, num_slots, step.bias)
    check(step.cross_keys, rows, num_slots, NO_BIAS)
    if step.num_slots > num_slots or len(step.slots) != rows:
        raise IndexError(f"{rows} rows have {len(step.slots)} slots, up to {step.num_slots} of a cache of {num_slots}")
    widths = x.shape[1], weights.qkv.num_outputs
    expected = len(weights.self_norm), weights.query.num_outputs + 2 * kv_heads * dim
    if widths != expected:
        raise IndexError(f"hidden states and their queries, keys and values are {widths} wide instead of {expected}")
    return _decoder_layer(x, cache, step, weights, self_scale, cross_scale, epsilon, pre_norm, activation)


@kernel()
def _decoder_layer(
    x: Floats,
    cache: Stored,
    step: DecodeStep,
    weights: DecoderWeights,
    self_scale: float,
    cross_scale: float,
    epsilon: float,
    pre_norm: bool,
    activation: int,
) -> Floats:
    rows = len(x)
    kv_heads, dim = cache.shape[2], cache.shape[3]
    heads = weights.query.num_outputs // dim
    x, inner, out = x.copy(), np.empty_like(x), np.empty_like(x)
    query = np.empty((rows, heads, dim), np.float32)
    attended = np.empty((rows, heads, dim), np.float32)

    _begin(x, weights.self_norm, weights.self_norm_bias, epsilon, pre_norm, inner)
    qkv = np.empty((rows, weights.qkv.num_outputs), np.float32)
    times(inner, weights.qkv, weights.qkv_bias, qkv)
    numbers, stored, width = qkv.reshape(-1), cache.reshape(-1), kv_heads * dim
    for row in range(rows):
        first = row * (heads * dim + 2 * width)
        keep(numbers, first, query.reshape(-1), row * heads * dim, heads * dim)
        for part in range(2):  # keys, values
            place = (part * cache.shape[1] + step.slots[row]) * width
            keep(numbers, first + heads * dim + part * width, stored, place, width)
    attend_rows(query, cache, step.self_keys, self_scale, step.bias, attended)
    times(attended.reshape(rows, heads * dim), weights.self_out, weights.self_out_bias, out)
    _end(x, out, weights.self_norm, weights.self_norm_bias, epsilon, pre_norm)

    _begin(x, weights.cross_norm, weights.cross_norm_bias, epsilon, pre_norm, inner)
    times(inner, weights.query, weights.query_bias, query.reshape(rows, heads * dim))
    attend_rows(query, cache, step.cross_keys, cross_scale, np.empty((0, 0), np.float32), attended)
    times(attended.reshape(rows, heads * dim), weights.cross_out, weights.cross_out_bias, out)
    _end(x, out, weights.cross_norm, weights.cross_norm_bias, epsilon, pre_norm)

    _begin(x, weights.ffn_norm, weights.ffn_norm_bias, epsilon, pre_norm, inner)
    hidden = np.empty((rows, weights.fc1.num_outputs), np.float32)
    times(inner, weights.fc1, weights.fc1_bias[:0], hidden)
    activate(hidden, weights.fc1_bias, activation)
    if weights.gate.num_outputs:
        gate = np.empty_like(hidden)
        times(inner, weights.gate, weights.gate_bias, gate)
        multiply(hidden, gate)
    times(hidden, weights.fc2, weights.fc2_bias, out)
    _end(x, out, weights.ffn_norm, weights.ffn_norm_bias, epsilon, pre_norm)
    return x


@kernel()
def _begin(x: Floats, norm: Floats, norm_bias: Floats, epsilon: float, pre_norm: bool, inner: Floats) -> None:
    """What a sublayer is given."""
    if pre_norm:
        normalize(x, norm, norm_bias, epsilon, inner)
    else:
        copy(x, inner)


@kernel()
def _end(x: Floats, out: Floats, norm: Floats, norm_bias: Floats, epsilon: float, pre_norm: bool) -> None:
    """Add what a sublayer returned to x."""
    add(x, out)
    if not pre_norm:
        normalize(x, norm, norm_bias, epsilon, x)
