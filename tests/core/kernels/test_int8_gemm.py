"""Products with weights in int8: PyTorch's in float64, and of rows in int8 those of their integers."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transept.core.kernels.cpu.gemm.panels import WeightPanels, pack_int8, pack_int8_for_int8, panel_size
from transept.core.kernels.cpu.gemm.product import product

Pack = Callable[[Tensor], WeightPanels]
BOTH = pytest.mark.parametrize("pack", [pack_int8, pack_int8_for_int8])


def rounded(weight: Tensor) -> Tensor:
    """Each row as multiples of a 127th of its largest number, in float64."""
    steps = weight.double().abs().amax(1, keepdim=True) / 127
    return torch.where(steps > 0, (weight / steps).round() * steps, 0.0)


def randn(rows: int, size: int, steps: int) -> Tensor:
    """Rows of random numbers, none near the middle between two multiples of a step, of which the largest number has
    `steps`: which of the two it becomes there differs by processor, with the last bit of a quotient.
    """
    numbers = torch.randn(rows, size)
    step = numbers.double().abs().amax(1, keepdim=True) / steps
    near = (numbers / step).round() * step
    return (near + 0.9 * (numbers - near)).float()


@given(st.integers(1, 150), st.integers(1, 70), st.integers(1, 200), st.booleans())
def test_it_is_the_product(num_rows: int, num_in: int, num_out: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, num_in), randn(num_out, num_in, 127)
    bias = torch.randn(num_out) if with_bias else None
    expected = x.double() @ rounded(weight).T + (0 if bias is None else bias.double())
    half_a_step = x.double().abs().amax(1, keepdim=True) / 32767 / 2  # that a number of a row may be off by
    most = half_a_step * rounded(weight).abs().sum(1) + 1e-4
    assert ((product(x, pack_int8(weight), bias) - expected).abs() < most).all()


def exact(x: Tensor, packed: WeightPanels) -> Tensor:
    """The product of rows and weights as they are rounded, in float64."""
    top = x.abs().amax(1, keepdim=True)
    steps = (x.double() * (torch.full_like(top, 127) / top).nan_to_num().double()).round()
    return steps * (top.double() / 127) @ packed.rows(torch.arange(packed.num_outputs)).double().T


@given(st.integers(1, 150), st.integers(1, 70), st.integers(1, 200), st.booleans())
def test_rows_in_int8_are_multiplied_exactly(num_rows: int, num_in: int, num_out: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, packed = randn(num_rows, num_in, 127), pack_int8_for_int8(torch.randn(num_out, num_in))
    bias = torch.randn(num_out) if with_bias else None
    expected = exact(x, packed) + (0 if bias is None else bias.double())
    torch.testing.assert_close(product(x, packed, bias).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_in", [384, 1536, 4096, 65536])
def test_rows_in_int8_of_any_length(num_in: int) -> None:
    torch.manual_seed(0)
    x, packed = torch.randint(-127, 128, (3, num_in)).float(), pack_int8_for_int8(torch.randn(40, num_in))
    x[:, -1] = 127
    torch.testing.assert_close(product(x, packed, None).double(), exact(x, packed), rtol=1e-5, atol=0.1)
    assert pack_int8_for_int8(torch.zeros(1, 65537)).dtype is torch.int8  # beyond, sums would overflow


@pytest.mark.parametrize(("num_in", "steps"), [(64, 32767), (1024, 16513), (4096, 4128), (10240, 1651)])
def test_activations_are_rounded_to_as_many_steps_as_sums_have_room_for(num_in: int, steps: int) -> None:
    torch.manual_seed(0)
    x, weight = randn(4, num_in, steps), randn(32, num_in, 127)
    exact = (x.double() / x.abs().amax(1, keepdim=True) * steps).round() / steps * x.abs().amax(1, keepdim=True)
    torch.testing.assert_close(
        product(x, pack_int8(weight), None).double(), exact @ rounded(weight).T, rtol=1e-4, atol=1e-3
    )


@BOTH
@pytest.mark.parametrize("num_in", [2, 384, 1536, 16384])
def test_the_largest_numbers_do_not_overflow(num_in: int, pack: Pack) -> None:
    weight = torch.full((16, num_in), 3.0)
    out = product(torch.full((7, num_in), -2.0), pack(weight), None)
    torch.testing.assert_close(out, torch.full((7, 16), -6.0 * num_in))


@BOTH
@pytest.mark.parametrize("num_rows", [2, 5, 7, 64, 97, 300])
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(num_rows: int, pack: Pack) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(num_rows, 128), pack(torch.randn(150, 128)), torch.randn(150)
    alone = torch.cat([product(row[None], weight, bias) for row in x])
    assert torch.equal(product(x, weight, bias), alone)


@BOTH
def test_rows_of_zeros_stay_so(pack: Pack) -> None:
    x, weight = torch.zeros(3, 8), torch.randn(20, 8)
    x[1], weight[4] = 1.0, 0.0
    out = product(x, pack(weight), None)
    assert not out[0].any()
    assert not out[:, 4].any()
    assert out[1].any()


@BOTH
def test_some_outputs(pack: Pack) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 40), torch.randn(100, 40)
    packed = pack(weight)
    assert torch.equal(product(x, packed.outputs(32, 70), None), product(x, packed, None)[:, 32:70])
    assert product(x, packed.outputs(0, 0), None).shape == (3, 0)
    with pytest.raises(ValueError, match=f"output 33 is not the first of a panel of {panel_size()}$"):
        packed.outputs(33, 70)


@BOTH
@pytest.mark.parametrize("num_in", [24, 33])
def test_rows_of_the_weight(num_in: int, pack: Pack) -> None:
    torch.manual_seed(0)
    weight, indices = randn(50, num_in, 127), torch.tensor([49, 0, 17, 17])
    torch.testing.assert_close(pack(weight).rows(indices).double(), rounded(weight)[indices])
