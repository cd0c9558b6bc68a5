"""Keys and values into the paged cache of a GPU. Called by the `triton` and `xformers` backends."""

from __future__ import annotations

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
WRITE_ROWS, WRITE_COLUMNS = 4, 512  # of keys and values that one program of write_rows copies


def write(key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
    """Put keys and values, [tokens, kv_heads, head_dim] each, into slots [tokens] of the cache.

    A cache in fp8 takes numbers beyond its largest for that. Raises IndexError for other numbers of slots than tokens.
    """
    from transept.core.kernels.gpu.kv_cache_kernel import write_rows

    keys, values = kv_cache.flatten(1, 2).flatten(2)  # [slots, kv_heads · head_dim] each
    key, value = key.flatten(1), value.flatten(1)
    tokens, size = key.shape
    if not tokens == len(value) == len(slots):
        raise IndexError(f"keys of {tokens} and values of {len(value)} tokens do not belong to {len(slots)} slots")
    if tokens:
        grid = -(-tokens // WRITE_ROWS), -(-size // WRITE_COLUMNS)
        write_rows[grid](
            *(key, value, keys, values, slots, tokens, key.stride(0), value.stride(0), size),
            LARGEST=torch.finfo(FP8).max if kv_cache.dtype is FP8 else 0.0,
            ROWS=WRITE_ROWS,
            COLUMNS=WRITE_COLUMNS,
        )
