"""The Triton kernel that rounds rows to 8 bits. Launched by `gpu/rounded_weights.py`."""

import triton
import triton.language as tl

LEAST_SCALE = tl.constexpr(1.1754943508222875e-38)  # the smallest normal float32, for the scale of a row of zeros
ROUNDER = tl.constexpr(12582912.0)  # 1.5 · 2**23: adding it rounds a float32 to an integer, halves to even


@triton.jit
def round_rows(
    x,
    values,
    scales,
    x_row,
    size,
    LARGEST: tl.constexpr,
    INTEGERS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Round each row by its largest number, which becomes LARGEST; one program for each row.

    x: [rows, size], whose rows are x_row numbers apart. values: int8 or fp8 [rows, size]. scales: float32 [rows].
    INTEGERS: True to round values to integers. COLUMNS: `size` or more, a power of 2.
    """
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, COLUMNS)
    inside = columns < size
    numbers = tl.load(x + row * x_row + columns, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(numbers), 0) / LARGEST, LEAST_SCALE)
    scaled = numbers / scale
    if INTEGERS:
        scaled = (scaled + ROUNDER) - ROUNDER
    scaled = tl.minimum(tl.maximum(scaled, -LARGEST), LARGEST)
    tl.store(values + row * size + columns, scaled.to(values.dtype.element_ty), mask=inside)
    tl.store(scales + row, scale)
