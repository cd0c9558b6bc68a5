"""Weights in 8 bits on a GPU, and PyTorch's own products with them, for which activations are also rounded.

Each row is rounded by its largest number, and has a scale.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

ALIGNED = 16  # sizes of a weight that fp8 products are made for
FEWEST_ROWS = 32  # of a product in int8, which takes more than 16; fewer are filled up
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: torch.finfo(torch.float8_e4m3fn).max}


class RoundedRows:
    """A weight [out, in] as the products read it.

    values: int8 or fp8 [rows, in], out filled up with zeros to a multiple of ALIGNED. scales: float32 [rows]. dtype: of
    the values; x_dtype: of activations.
    """

    device, alignment = "cuda", ALIGNED

    def __init__(self, values: Tensor, scales: Tensor, num_outputs: int, x_dtype: torch.dtype) -> None:
        self.values, self.scales, self.num_outputs, self.x_dtype = values, scales, num_outputs, x_dtype

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the values."""
        return self.values.dtype

    @property
    def num_inputs(self) -> int:
        """Inputs of the weight."""
        return self.values.shape[1]

    def outputs(self, first: int, stop: int) -> RoundedRows:
        """Return some of the outputs, from a multiple of ALIGNED on, in the same memory."""
        chosen = slice(first, -(-stop // ALIGNED) * ALIGNED)
        return RoundedRows(self.values[chosen], self.scales[chosen], stop - first, self.x_dtype)

    def rows(self, indices: Tensor, table: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """Return rows of the weight, [indices, in] in the dtype of activations, plus rows of a table [size, in]."""
        values = self.values.view(torch.uint8)[indices].view(self.dtype)  # not every PyTorch copies fp8 by index
        rows = (values.float() * self.scales[indices][:, None]).to(self.x_dtype)
        return rows if table is None or places is None else rows + table[places]


def int8_product(x: Tensor, weight: RoundedRows, bias: Tensor | None) -> Tensor:
    """Return ``x @ weight.T + bias``, [rows, out] in x's dtype; the sums are integers."""
    num_rows, (rounded, x_scales) = len(x), round_activations(x, torch.int8)
    if num_rows < FEWEST_ROWS:
        rounded = torch.cat([rounded, rounded.new_zeros(FEWEST_ROWS - num_rows, x.shape[1])])
    sums = torch._int_mm(rounded, weight.values.t())[:num_rows].float()
    return _finished(sums * x_scales[:, None] * weight.scales, x, weight, bias)


def fp8_product(x: Tensor, weight: RoundedRows, bias: Tensor | None) -> Tensor:
    """Return the product in fp8 (e4m3), whose results are bfloat16."""
    rounded, x_scales = round_activations(x, torch.float8_e4m3fn)
    fuses = x.dtype is torch.bfloat16 and weight.num_outputs == len(weight.values)  # a bias, before anything is rounded
    product = torch._scaled_mm(
        rounded,
        weight.values.t(),
        bias=bias if fuses else None,
        scale_a=x_scales[:, None],
        scale_b=weight.scales[None],
        out_dtype=torch.bfloat16,
        use_fast_accum=True,  # as exact, to three digits, for up to 5120 inputs
    )
    return _finished(product, x, weight, None if fuses else bias)


def round_activations(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Round each row of [rows, in] by its largest number. Returns 8-bit values, and float32 [rows] scales."""
    if not x.is_cuda or find_spec("triton") is None:
        return rounded_by_operators(x, dtype)
    return round_in_one_kernel(x, dtype)


def round_in_one_kernel(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute `round_activations` by a kernel that reads and writes each row once."""
    from transept.core.kernels.gpu.rounding_kernel import round_rows

    x = x if x.stride(1) == 1 else x.contiguous()
    values = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = torch.empty(len(x), dtype=torch.float32, device=x.device)
    if len(x):
        columns = 1 << (x.shape[1] - 1).bit_length()
        round_rows[len(x),](
            *(x, values, scales, x.stride(0), x.shape[1]),
            LARGEST=LARGEST[dtype],
            INTEGERS=dtype is torch.int8,
            COLUMNS=columns,
            num_warps=8 if columns > 1024 else 4,
        )
    return values, scales


def _finished(product: Tensor, x: Tensor, weight: RoundedRows, bias: Tensor | None) -> Tensor:
    product = product[:, : weight.num_outputs]
    if bias is not None:
        product = product + bias
    return product.to(x.dtype).contiguous()


def _rounded_rows(weight: Tensor, dtype: torch.dtype) -> RoundedRows:
    """Round a weight [out, in] in the dtype of activations."""
    num_out, num_in = weight.shape
    filled = torch.zeros(-(-num_out // ALIGNED) * ALIGNED, num_in, device=weight.device)
    filled[:num_out] = weight.detach()
    return RoundedRows(*rounded_by_operators(filled, dtype), num_out, weight.dtype)


def rounded_by_operators(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Compute `round_activations` by PyTorch's operators."""
    largest = LARGEST[dtype]
    scales = x.abs().amax(1).float() / largest
    steps = scales.clamp(min=torch.finfo(torch.float32).tiny)
    scaled = x.float() / steps[:, None]
    if dtype is torch.int8:
        scaled = scaled.round_()
    return scaled.clamp_(-largest, largest).to(dtype), steps


round_to_int8 = partial(_rounded_rows, dtype=torch.int8)
round_to_fp8 = partial(_rounded_rows, dtype=torch.float8_e4m3fn)
