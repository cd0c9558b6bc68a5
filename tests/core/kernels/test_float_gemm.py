"""The product with a packed weight against PyTorch's in float64."""

import pickle
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.elementwise.rows import activate
from transept.core.kernels.cpu.gemm.panels import (
    WeightPanels,
    pack_bfloat16,
    pack_floats,
    pack_int8,
    pack_int8_for_int8,
    panel_size,
)
from transept.core.kernels.cpu.gemm.product import product

DTYPES = [torch.float32, torch.float16]
SUMMED, PIECE_ROWS = 128, 96  # inputs that are summed by themselves and rows of a piece of work, in gemm/*.cpp and *.h
SHARING = 1024  # inputs of rows that share a set of the first cache, of which many are copied


@given(st.integers(0, 150), st.integers(1, 70), st.integers(1, 200), st.booleans(), st.sampled_from(DTYPES))
def test_it_is_the_product(num_rows: int, num_in: int, num_out: int, with_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, num_in), torch.randn(num_out, num_in).to(dtype)
    bias = torch.randn(num_out) if with_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    torch.testing.assert_close(product(x, pack_floats(weight, dtype), bias).double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("num_rows", [1, 30, PIECE_ROWS + 50])
@pytest.mark.parametrize("num_in", [SUMMED, SUMMED + 1, 2 * SUMMED + 100, SHARING, 2 * SHARING])
def test_long_rows(num_rows: int, num_in: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(num_rows, num_in), torch.randn(550, num_in), torch.randn(550)
    expected = x.double() @ weight.double().T + bias
    torch.testing.assert_close(
        product(x, pack_floats(weight, torch.float32), bias).double(), expected, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("num_rows", [2, 5, 7, 64, PIECE_ROWS + 1, 300])
@pytest.mark.parametrize("num_in", [96, SUMMED + 40, SHARING])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(
    num_rows: int, num_in: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x, weight, bias = (
        torch.randn(num_rows, num_in),
        pack_floats(torch.randn(150, num_in).to(dtype), dtype),
        torch.randn(150),
    )
    alone = torch.cat([product(row[None], weight, bias) for row in x])
    assert torch.equal(product(x, weight, bias), alone)


def test_a_float16_weight_gives_what_it_gives_in_float32() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(70, 40), torch.randn(100, 40).half()
    weight[0] = torch.finfo(torch.float16).smallest_normal / 8  # subnormal
    weight[-1, -1] = torch.finfo(torch.float16).max
    narrow, wide = (product(x, pack_floats(weight.float(), dtype), None) for dtype in (torch.float16, torch.float32))
    assert torch.equal(narrow, wide)


@pytest.mark.parametrize("pack", [pack_floats, pack_int8, pack_int8_for_int8, pack_bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("num_rows", "num_out", "with_bias"), [(1, 40, True), (70, 150, False), (300, 550, True)])
def test_an_activation_is_applied_to_the_product(
    pack: Callable[[Tensor], WeightPanels], activation: str, num_rows: int, num_out: int, with_bias: bool
) -> None:
    torch.manual_seed(0)
    x, packed = torch.randn(num_rows, 64), pack(torch.randn(num_out, 64))
    bias = torch.randn(num_out) if with_bias else None
    right = product(x, packed, None)
    activate(right, bias, activation)
    assert torch.equal(product(x, packed, bias, activation), right)


def test_rows_may_lie_apart() -> None:
    x, weight = torch.randn(5, 3, 48), torch.randn(30, 48)
    out = product(x[:, 1], pack_floats(weight, torch.float32), None)
    torch.testing.assert_close(out, x[:, 1] @ weight.T, rtol=1e-5, atol=1e-4)


def test_what_is_not_finite_stays_so() -> None:
    x, weight = torch.zeros(8, 16), torch.ones(20, 16)
    x[1, 3], x[2, 3] = float("inf"), float("nan")
    out = product(x, pack_floats(weight, torch.float32), None)
    assert out[0].tolist() == out[3].tolist() == [0.0] * 20
    assert torch.isposinf(out[1]).all()
    assert torch.isnan(out[2]).all()


def test_some_outputs() -> None:
    torch.manual_seed(0)
    x, packed = torch.randn(3, 40), pack_floats(torch.randn(100, 40), torch.float32)
    assert torch.equal(product(x, packed.outputs(32, 70), None), product(x, packed, None)[:, 32:70])
    assert product(x, packed.outputs(0, 0), None).shape == (3, 0)
    with pytest.raises(ValueError, match=f"output 33 is not the first of a panel of {panel_size()}$"):
        packed.outputs(33, 70)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_the_weight(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(50, 33).to(dtype), torch.tensor([49, 0, 17, 17])
    packed = pack_floats(weight, dtype)
    assert torch.equal(packed.rows(indices), weight[indices].float())
    assert torch.equal(packed.rows(indices.to(torch.int32)), weight[indices].float())
    assert packed.rows(indices[:0]).shape == (0, 33)
    table, places = torch.randn(7, 33), torch.tensor([6, 0, 3, 3])
    for added in (table, table.T.contiguous().T, table.half(), table.bfloat16(), table.double()):
        assert torch.equal(packed.rows(indices, added, places), (weight[indices].float() + added[places]).float())
    assert torch.equal(packed.rows(indices, table, places.to(torch.int32)), weight[indices].float() + table[places])


@pytest.mark.parametrize("index", [-1, 30, 31])
def test_a_row_that_the_weight_has_not_is_refused(index: int) -> None:
    packed = pack_floats(torch.randn(30, 8), torch.float32)  # the last panel is filled up
    with pytest.raises(IndexError, match=f"rows {min(index, 3)} to {max(index, 3)} are asked for of a weight with 30"):
        packed.rows(torch.tensor([index, 3]))


@pytest.mark.parametrize("place", [-1, 7])
def test_a_row_that_the_table_has_not_is_refused(place: int) -> None:
    packed, table = pack_floats(torch.randn(30, 8), torch.float32), torch.randn(7, 8)
    with pytest.raises(IndexError, match=f"rows {min(place, 3)} to {max(place, 3)} are asked for of a table with 7"):
        packed.rows(torch.tensor([1, 2]), table, torch.tensor([3, place]))
    for others in (torch.randn(7, 9), torch.randn(7), torch.randn(7, 8, 1)):
        with pytest.raises(IndexError, match=r"of a table .* instead of \[\.\., 8\], \[2\] of them"):
            packed.rows(torch.tensor([1, 2]), others, torch.tensor([3, 0]))
    for places in (torch.tensor([3, 0, 0]), torch.tensor([[3], [0]]), torch.tensor(3)):
        with pytest.raises(IndexError, match=r"are to be added instead of"):
            packed.rows(torch.tensor([1, 2]), table, places)
    with pytest.raises(IndexError, match="rows 0 to 3 are asked for of a table with 0"):
        packed.rows(torch.tensor([1, 2]), torch.empty(0, 8), torch.tensor([3, 0]))


def test_what_is_not_in_memory_is_not_read() -> None:
    packed, table, rows = pack_floats(torch.randn(30, 8), torch.float32), torch.randn(7, 8), torch.tensor([3, 0])
    with pytest.raises(TypeError, match="a table on meta cannot be added"):
        packed.rows(rows, table.to("meta"), rows)
    for wrong in (rows.to("meta"), rows.float(), rows.bool()):
        for asked in ((wrong,), (rows, table, wrong)):
            with pytest.raises(TypeError, match="rows are named by integers on the CPU, not"):
                packed.rows(*asked)
    x, bias = torch.randn(2, 8), torch.randn(30)
    for convert in (Tensor.half, Tensor.bfloat16, Tensor.double, Tensor.int, lambda tensor: tensor.to("meta")):
        with pytest.raises(TypeError, match="a packed weight takes rows in float32 on the CPU, not in"):
            product(convert(x), packed, None)
        with pytest.raises(TypeError, match="a packed weight takes a bias in float32 on the CPU, not in"):
            product(x, packed, convert(bias))


@pytest.mark.parametrize("given", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (33, 7), (64, 48), (100, 65)])
def test_packing_is_of_either_dtype(given: torch.dtype, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    weight = torch.randn(shape).half().to(given)
    for dtype in DTYPES:
        packed = pack_floats(weight, dtype)
        assert packed.dtype is dtype
        assert torch.equal(packed.rows(torch.arange(shape[0])), weight.float())
        panels = packed.values.transpose(1, 2).reshape(-1, shape[1])
        assert not panels[shape[0] :].any()


@pytest.mark.parametrize("number", [0.1, 70000.0, 1e-9, float("nan")])
@pytest.mark.parametrize("place", [(0, 0), (5, 40), (99, 64)])
def test_what_float16_does_not_hold_is_packed_in_float32(number: float, place: tuple[int, int]) -> None:
    weight = torch.ones(100, 65)
    weight[place] = number
    packed = pack_floats(weight)
    assert packed.dtype is torch.float32
    assert torch.equal(packed.rows(torch.arange(100)).nan_to_num(7.0), weight.nan_to_num(7.0))
    with pytest.raises(ValueError, match=r"torch.float16 does not hold every number of the weight"):
        pack_floats(weight, torch.float16)


def test_other_shapes_are_refused() -> None:
    packed = pack_floats(torch.zeros(30, 8))
    with pytest.raises(IndexError, match=r"rows of 7 numbers cannot be multiplied with a weight of \[30, 8\]"):
        product(torch.zeros(2, 7), packed, None)
    with pytest.raises(IndexError, match=r"a bias of \[29\] cannot be added"):
        product(torch.zeros(2, 8), packed, torch.zeros(29))
    with pytest.raises(ValueError, match=r"a matrix on the CPU can be packed, not \[8\]"):
        pack_floats(torch.zeros(8))
    with pytest.raises(TypeError, match="pack it where it is used"):
        pickle.dumps(packed)
