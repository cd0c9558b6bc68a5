"""Self-attention of an encoder's sequence, with a bias by distance, keys of distances, or neither.

Called by the `torch` backend. PyTorch's own attention multiplies small blocks by MKL, which is slower on them than on
large matrices. These kernels multiply tiles, for which keys and values are packed once; docs/notes/attention.md has the
figures. For models in int8, queries, keys, values and weights may be rounded to integers of 16 or 8 bits, and for
models in bfloat16 to that, which takes half the time or less. Results are batch-invariant, bit for bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from torch import Tensor

from transept.core.kernels.cpu.library import Float, Int, KernelFunction, Pointer, pointer

MOST_TOKENS_ROUNDED = 1 << 16  # of more, a query's weights would have too few steps


class _Sequence(ctypes.Structure):
    """Sequence of attention/encoder_blocks.h."""

    _fields_ = (
        *((name, Pointer) for name in ("query", "key", "value", "out")),
        *((name, Pointer) for name in ("bias", "position_keys", "content_bias", "position_bias")),
        *((name, Int) for name in ("query_stride", "key_stride", "value_stride", "bias_stride", "position_stride")),
        *((name, Int) for name in ("tokens", "heads", "kv_heads", "dim", "seen_before", "seen_after")),
    )


class EncoderAttention:
    """Attention by a compiled function. most_tokens: longest sequence that it supports; None: any length."""

    def __init__(self, kernel: Callable[..., int], most_tokens: int | None = None) -> None:
        self._kernel, self._most_tokens = kernel, most_tokens

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        out: Tensor,
        bias: Tensor | None = None,
        *,
        window: tuple[int, int] | None = None,
        position_keys: Tensor | None = None,
        content_bias: Tensor | None = None,
        position_bias: Tensor | None = None,
    ) -> None:
        """Write the attention of one sequence to out, which is contiguous.

        query, out: [tokens, heads, dim]. key, value: [tokens, kv_heads, dim]. bias: added to scaled scores, [heads or
        1, 2 * tokens - 1]; the column is tokens - 1 plus the query's position minus the key's. All are float32 on the
        CPU.
        window: so many keys before and after a query are seen; the bias is -inf for all others.
        position_keys: of distances, [heads or 1, 2 * tokens - 1, dim]; row tokens - 1 + d is for a key d tokens after
        its query. content_bias, position_bias: [heads, dim], added to queries before they are multiplied by keys and
        by position_keys. Only kernels of RELATIVE_ATTENTION take these three.
        Raises IndexError for other shapes, and for more tokens than the kernel supports.
        """
        tokens, heads, dim = query.shape
        if self._most_tokens is not None and tokens > self._most_tokens:
            raise IndexError(f"a sequence of {tokens} tokens is longer than {self._most_tokens}")
        expected = (tokens, key.shape[1], dim)
        fits = query.shape == out.shape and key.shape == expected and value.shape == expected and out.is_contiguous()
        if not fits or heads % key.shape[1] or not dim:
            shapes = ", ".join(str([*each.shape]) for each in (query, key, value, out))
            raise IndexError(f"queries, keys, values and output of one sequence do not belong together: {shapes}")
        if bias is not None and (bias.dim() != 2 or len(bias) not in (1, heads) or bias.shape[1] != 2 * tokens - 1):
            raise IndexError(f"a bias of {[*bias.shape]} does not belong to {tokens} tokens and {heads} heads")
        if position_keys is not None and (
            position_keys.shape not in ((heads, 2 * tokens - 1, dim), (1, 2 * tokens - 1, dim))
            or any(each is not None and each.shape != (heads, dim) for each in (content_bias, position_bias))
        ):
            raise IndexError(f"keys of distances, {[*position_keys.shape]}, do not belong to {[*query.shape]} queries")
        if not tokens:
            return
        if bias is not None and bias.stride(1) != 1:
            bias = bias.contiguous()
        if position_keys is not None and position_keys.stride()[1:] != (dim, 1):
            position_keys = position_keys.contiguous()
        content_bias, position_bias = (
            None if each is None else each.contiguous() for each in (content_bias, position_bias)
        )
        parts = [each if each.stride()[1:] == (dim, 1) else each.contiguous() for each in (query, key, value)]
        sequence = _Sequence(
            *(pointer(part) for part in (*parts, out, bias, position_keys, content_bias, position_bias)),
            *(part.stride(0) for part in parts),
            *(0 if each is None or len(each) == 1 else each.stride(0) for each in (bias, position_keys)),
            *(tokens, heads, key.shape[1], dim),
            *(window or (tokens, tokens)),
        )
        self._kernel(ctypes.addressof(sequence), scale)


_TYPES = (Pointer, Float)
attend_sequence = EncoderAttention(KernelFunction("transept_attend_sequence", *_TYPES))
attend_in_int16 = EncoderAttention(KernelFunction("transept_attend_sequence_in_int16", *_TYPES), MOST_TOKENS_ROUNDED)
attend_in_int8 = EncoderAttention(KernelFunction("transept_attend_sequence_in_int8", *_TYPES))
attend_in_bfloat16 = EncoderAttention(KernelFunction("transept_attend_sequence_in_bfloat16", *_TYPES))
