"""Attention of all tokens of a sequence over each other, without a bias, as in most encoders.

Called by the `torch` backend. PyTorch's own asks MKL for the products of small blocks, with which it does not reach
the rate of large ones; here they are made of tiles, for which keys and values are packed once. docs/performance.md has
the figures. For models in int8 queries, keys, values and weights may be rounded to integers of 16 bits, and for those
in bfloat16 to that, which takes half the time.
What comes out is the same to the last bit whatever other sequences are in the batch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from torch import Tensor

from transept.core.kernels.cpu.library import Float, Int, Pointer, bind

FEWEST_TOKENS = 64  # for which it gains; shorter ones were not measured
FEWEST_TOKENS_ROUNDED = 256
MOST_TOKENS_ROUNDED = 1 << 16  # of more, a query's weights would have too few steps

_attend = bind("transept_attend_sequence", Pointer, Float)
_attend_in_int16 = bind("transept_attend_sequence_in_int16", Pointer, Float)
_attend_in_bfloat16 = bind("transept_attend_sequence_in_bfloat16", Pointer, Float)


class _Sequence(ctypes.Structure):
    """Sequence of attention/encoder_blocks.h."""

    _fields_ = (
        *((name, Pointer) for name in ("query", "key", "value", "out")),
        *((name, Int) for name in ("query_stride", "key_stride", "value_stride")),
        *((name, Int) for name in ("tokens", "heads", "kv_heads", "dim")),
    )


def attend_sequence(query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    """Write the attention of one sequence to out, which is contiguous.

    query, out: [tokens, heads, dim]. key, value: [tokens, kv_heads, dim]. All are float32 on the CPU. Raises IndexError
    for other shapes.
    """
    _run(_attend, query, key, value, scale, out)


def attend_rounded(query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    """The same, with integers of 16 bits. Raises IndexError for more than MOST_TOKENS_ROUNDED tokens, too."""
    if len(query) > MOST_TOKENS_ROUNDED:
        raise IndexError(f"a sequence of {len(query)} tokens is longer than {MOST_TOKENS_ROUNDED}")
    _run(_attend_in_int16, query, key, value, scale, out)


def attend_in_bfloat16(query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    """The same, with queries, keys, values and weights rounded to bfloat16."""
    _run(_attend_in_bfloat16, query, key, value, scale, out)


def _run(kernel: Callable[..., None], query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    tokens, heads, dim = query.shape
    expected = (tokens, key.shape[1], dim)
    fits = query.shape == out.shape and key.shape == expected and value.shape == expected and out.is_contiguous()
    if not fits or heads % key.shape[1] or not dim:
        shapes = ", ".join(str([*each.shape]) for each in (query, key, value, out))
        raise IndexError(f"queries, keys, values and output of one sequence do not belong together: {shapes}")
    if not tokens:
        return
    parts = [each if each.stride()[1:] == (dim, 1) else each.contiguous() for each in (query, key, value)]
    sequence = _Sequence(
        *(part.data_ptr() for part in parts),
        out.data_ptr(),
        *(part.stride(0) for part in parts),
        *(tokens, heads, key.shape[1], dim),
    )
    kernel(ctypes.addressof(sequence), scale)
