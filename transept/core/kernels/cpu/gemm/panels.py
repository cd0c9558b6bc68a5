"""Weights packed for the kernels' products: panels of outputs side by side, in float32, float16, bfloat16 or int8."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer, pointer, reads_float16
from transept.core.kernels.huge_pages import empty_in_huge_pages

_KINDS = {torch.float32: 0, torch.float16: 1, torch.int8: 2, torch.bfloat16: 3, torch.uint8: 4}  # as in gemm/weight.h
_panel = KernelFunction("transept_panel")
_pack_floats = KernelFunction("transept_pack_floats", Pointer, Int, Int, Int, Int, Pointer)
_pack_int8 = KernelFunction("transept_pack_int8", Pointer, Int, Int, Int, Int, Pointer, Pointer)
_MOST_INPUTS = 1 << 16  # whose products of 8 by 8 bits a sum has room for
_whole_bytes = KernelFunction("transept_whole_bytes", Int)
_whole_pairs = KernelFunction("transept_whole_pairs", Int)
_pack_bfloat16 = KernelFunction("transept_pack_bfloat16", Pointer, Int, Int, Int, Pointer)
_weight_rows = KernelFunction("transept_weight_rows", Pointer, Pointer, Int, Pointer, Int, Pointer, Pointer)


class _Weight(ctypes.Structure):
    """Weight of gemm/weight.h."""

    _fields_ = (
        ("values", Pointer),
        ("scales", Pointer),
        ("num_outputs", Int),
        ("num_inputs", Int),
        ("kind", Int),
    )


class WeightPanels:
    """A weight [out, in] in the order in which products read it.

    values: float32 or float16 [panels, in, PANEL]; int8 or bfloat16 [panels, pairs of inputs, PANEL, 2]; or for
    activations in int8, uint8 [panels, quads of inputs, PANEL, 4], on x86-64 each number plus 128. For matrix products
    of 64-bit Arm, bfloat16 and uint8 are in groups of 4 and 8 inputs. The last panel and the last group are padded with
    zeros. scales: for 8 bits, the rounding step of each output, float32 [panels * PANEL]. address: of the struct that a
    kernel reads.
    """

    device, x_dtype = "cpu", torch.float32

    def __init__(self, values: Tensor, scales: Tensor | None, num_outputs: int, num_inputs: int) -> None:
        self.values, self.scales = values, scales
        self.num_outputs, self.num_inputs = num_outputs, num_inputs
        self._struct = _Weight(*(values.data_ptr(), pointer(scales), num_outputs, num_inputs, _KINDS[values.dtype]))
        self.address = ctypes.addressof(self._struct)
        self._parts: dict[tuple[int, int], WeightPanels] = {}

    @property
    def alignment(self) -> int:
        """Outputs of a panel."""
        return panel_size()

    @property
    def dtype(self) -> torch.dtype:
        """The values' dtype."""
        return self.values.dtype

    def outputs(self, first: int, stop: int) -> WeightPanels:
        """Return some of the outputs, in the same memory. Raises ValueError if `first` does not begin a panel."""
        if (first, stop) == (0, self.num_outputs):
            return self
        if (first, stop) not in self._parts:
            panel = panel_size()
            if first % panel:
                raise ValueError(f"output {first} is not the first of a panel of {panel}")
            panels = slice(first // panel, -(-stop // panel))
            scales = None if self.scales is None else self.scales[first : panels.stop * panel]
            self._parts[first, stop] = WeightPanels(self.values[panels], scales, stop - first, self.num_inputs)
        return self._parts[first, stop]

    def rows(self, indices: Tensor, table: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """Return some rows of the weight, float32 [indices, in], with rows of a table [size, in] added.

        indices, places: integers [count] on the CPU, rows of the weight and of the table. Raises IndexError for a row
        that does not exist and for other shapes, TypeError for other dtypes and devices.
        """
        self._check_rows(indices, table, places)
        if table is not None and places is not None and table.dtype is not torch.float32:
            return (self.rows(indices) + table[places]).float()
        indices = indices.to(torch.int64).contiguous()
        count, width = indices.numel(), self.num_inputs
        rows = torch.empty(count, width, dtype=torch.float32)
        asked = [("weight", self.num_outputs, indices)]
        added: tuple[int | None, ...] = (None, 0, None)
        if table is not None and places is not None:
            table, places = table.contiguous(), places.to(torch.int64).contiguous()
            asked.append(("table", len(table), places))
            added = (table.data_ptr(), len(table), places.data_ptr())
        if _weight_rows(self.address, indices.data_ptr(), count, *added, rows.data_ptr()) < count:
            for name, size, each in asked:
                lowest, highest = map(int, each.aminmax())
                if lowest < 0 or highest >= size:
                    raise IndexError(f"rows {lowest} to {highest} are asked for of a {name} with {size}")
        return rows

    def _check_rows(self, indices: Tensor, table: Tensor | None, places: Tensor | None) -> None:
        for numbers in (indices, places):
            if numbers is not None and (numbers.dtype not in (torch.int64, torch.int32) or not numbers.is_cpu):
                raise TypeError(f"rows are named by integers on the CPU, not {numbers.dtype} on {numbers.device}")
        if table is None or places is None:
            return
        if not table.is_cpu:
            raise TypeError(f"a table on {table.device} cannot be added to a packed weight's rows; move it to the CPU")
        if table.shape[1:] != (self.num_inputs,) or places.shape != indices.shape:
            expected = f"[.., {self.num_inputs}], [{len(indices)}] of them"
            raise IndexError(
                f"rows {[*places.shape]} of a table {[*table.shape]} are to be added instead of {expected}"
            )

    def __reduce__(self) -> Any:
        raise TypeError("a packed weight is in the order of this machine's kernels: pack it where it is used")


@cache
def panel_size() -> int:
    """Return PANEL, the number of outputs that lie side by side in a packed weight."""
    return _panel()


def pack_floats(weight: Tensor, dtype: torch.dtype | None = None) -> WeightPanels:
    """Pack a weight [out, in] of any floating dtype, in one pass over it.

    dtype: float32 or float16; by default float16 if that is exact and the processor reads it as fast. Raises ValueError
    if float16 is asked for and is not exact.
    """
    weight = _readable(weight)
    num_out, num_in = weight.shape
    half = weight.dtype is torch.float16
    candidates: tuple[torch.dtype, ...] = (dtype or torch.float32,)
    # The first row shows most of the weights that float16 does not hold.
    if dtype is None and reads_float16() and (half or torch.equal(weight[:1].half().float(), weight[:1])):
        candidates = (torch.float16, torch.float32)
    for each in candidates:
        values = empty_in_huge_pages(_panels_of(num_out), num_in, panel_size(), dtype=each)
        if _pack_floats(weight.data_ptr(), half, num_out, num_in, _KINDS[each], values.data_ptr()):
            return WeightPanels(values, None, num_out, num_in)
    raise ValueError(f"{dtype} does not hold every number of the weight")


def pack_int8(weight: Tensor) -> WeightPanels:
    """Round a weight [out, in] of any floating dtype, each output by its largest number."""
    return _rounded_to_int8(weight, torch.int8, weight.shape[-1] + weight.shape[-1] % 2)


def pack_int8_for_int8(weight: Tensor) -> WeightPanels:
    """Round it for activations that are also rounded to int8, each row by its largest number."""
    if weight.shape[-1] > _MOST_INPUTS:
        return pack_int8(weight)
    return _rounded_to_int8(weight, torch.uint8, _whole_bytes(weight.shape[-1]))


def pack_bfloat16(weight: Tensor) -> WeightPanels:
    """Round a weight [out, in] of any floating dtype to bfloat16."""
    weight = _readable(weight)
    num_out, num_in = weight.shape
    values = empty_in_huge_pages(_panels_of(num_out), _whole_pairs(num_in) // 2, panel_size(), 2, dtype=torch.bfloat16)
    _pack_bfloat16(weight.data_ptr(), weight.dtype is torch.float16, num_out, num_in, values.data_ptr())
    return WeightPanels(values, None, num_out, num_in)


def _rounded_to_int8(weight: Tensor, dtype: torch.dtype, depth: int) -> WeightPanels:
    """Pack a weight. depth: its inputs, padded to groups."""
    weight = _readable(weight)
    num_out, num_in = weight.shape
    panels, panel = _panels_of(num_out), panel_size()
    group = 2 if dtype is torch.int8 else 4
    values = empty_in_huge_pages(panels, depth // group, panel, group, dtype=dtype)
    scales = torch.empty(panels * panel, dtype=torch.float32)
    half = weight.dtype is torch.float16
    _pack_int8(weight.data_ptr(), half, num_out, num_in, _KINDS[dtype], values.data_ptr(), scales.data_ptr())
    return WeightPanels(values, scales, num_out, num_in)


def _panels_of(num_outputs: int) -> int:
    """Return how many panels hold so many outputs."""
    return -(-num_outputs // panel_size())


def _readable(weight: Tensor) -> Tensor:
    """Return a weight in a dtype that kernels read. Raises ValueError for another shape or device."""
    if weight.dim() != 2 or not weight.is_cpu:
        raise ValueError(f"a matrix on the CPU can be packed, not {[*weight.shape]} on {weight.device}")
    weight = weight.detach()
    if weight.dtype is not torch.float16:
        weight = weight.float()
    return weight.contiguous()
