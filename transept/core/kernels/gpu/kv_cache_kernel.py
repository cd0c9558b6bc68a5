"""The Triton kernel that writes keys and values into the paged cache. Launched by `gpu/kv_cache.py`."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens"])
def write_rows(
    key,
    value,
    keys,
    values,
    slots,
    num_tokens,
    key_row,
    value_row,
    size,
    LARGEST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Copy rows of `size` numbers into slots of the cache; the grid is (pieces of ROWS tokens, pieces of COLUMNS).

    slots: int64 [tokens]. keys, values: of the cache, [slots, size]. LARGEST: numbers are clamped to ± this; 0: not
    clamped.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    real = rows < num_tokens
    mask = real[:, None] & (columns < size)[None, :]
    targets = tl.load(slots + rows, mask=real, other=0)[:, None] * size + columns[None, :]
    rows = rows.to(tl.int64)[:, None]
    k = tl.load(key + rows * key_row + columns[None, :], mask=mask)
    v = tl.load(value + rows * value_row + columns[None, :], mask=mask)
    if LARGEST > 0:
        k = tl.minimum(tl.maximum(k.to(tl.float32), -LARGEST), LARGEST)
        v = tl.minimum(tl.maximum(v.to(tl.float32), -LARGEST), LARGEST)
    tl.store(keys + targets, k.to(keys.dtype.element_ty), mask=mask)
    tl.store(values + targets, v.to(values.dtype.element_ty), mask=mask)
