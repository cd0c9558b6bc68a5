"""The Triton kernel of two sublayers' sum and its norm, read and written once. Launched by `gpu/norm.py`."""

import triton
import triton.language as tl


@triton.jit
def add_and_normalize(
    x,
    y,
    weight,
    bias,
    addend,
    total_out,
    normed_out,
    size,
    eps,
    HAS_Y: tl.constexpr,
    KEEPS_TOTAL: tl.constexpr,
    SUBTRACTS_MEAN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_ADDEND: tl.constexpr,
    WEIGHT_OFFSET: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the norm of x + y, contiguous rows of `size` numbers; one program for each row.

    addend: added to the stored sum, but not to the norm's input. The sum is rounded to total_out's dtype; later
    operations are in float32. Without a mean to subtract it is rounded to normed_out's before the weight
    multiplies it, or afterwards where WEIGHT_OFFSET is added to the weight, as in RMSNorm. COLUMNS: `size` or more, a
    power of 2.
    """
    row = tl.program_id(0).to(tl.int64) * size
    columns = tl.arange(0, COLUMNS)
    inside = columns < size
    total = tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_Y:
        total += tl.load(y + row + columns, mask=inside, other=0.0).to(tl.float32)
        rounded = total.to(total_out.dtype.element_ty)
        if KEEPS_TOTAL:
            kept = rounded
            if HAS_ADDEND:
                kept = (total + tl.load(addend + columns, mask=inside, other=0.0).to(tl.float32)).to(rounded.dtype)
            tl.store(total_out + row + columns, kept, mask=inside)
        total = rounded.to(tl.float32)
    if SUBTRACTS_MEAN:
        total = tl.where(inside, total - tl.sum(total, 0) / size, 0.0)
    normed = total * tl.rsqrt(tl.sum(total * total, 0) / size + eps)
    if not SUBTRACTS_MEAN and WEIGHT_OFFSET == 0:
        normed = normed.to(normed_out.dtype.element_ty).to(tl.float32)
    normed *= tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32) + WEIGHT_OFFSET
    if HAS_BIAS:
        normed += tl.load(bias + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed_out + row + columns, normed.to(normed_out.dtype.element_ty), mask=inside)
