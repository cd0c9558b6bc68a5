"""Products and embeddings of weights as kernels read them. GPUs' products run on a CPU, too."""

import pytest
import torch
from torch import Tensor

from transept.core.layers.linear import matmul
from transept.core.layers.packed_weights import CpuFloat, CpuInt8, GpuFp8, GpuInt8, PackedWeight

CLASSES = [CpuFloat, CpuInt8, GpuInt8, GpuFp8]
DEVICES = dict.fromkeys((CpuFloat, CpuInt8), "cpu") | dict.fromkeys(
    (GpuInt8, GpuFp8), "cuda" if torch.cuda.is_available() else "cpu"
)
ERRORS = {
    CpuFloat: 1e-6,
    CpuInt8: 0.01,
    GpuInt8: 0.02,
    GpuFp8: 0.06,
}  # of a product of 64 numbers, relative to a typical one


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def error(ours: Tensor, exact: Tensor) -> float:
    """The root mean square of the differences, by that of the numbers."""
    return float((ours.double().cpu() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize("weight_class", CLASSES)
@pytest.mark.parametrize("num_rows", [1, 5, 40, 200])
@pytest.mark.parametrize("outputs", [slice(None), slice(48), slice(48, None), slice(10, 50)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_products(weight_class: type[PackedWeight], num_rows: int, outputs: slice, with_bias: bool) -> None:
    device = DEVICES[weight_class]
    x, weight = torch.randn(num_rows, 64, device=device), torch.randn(90, 64, device=device)
    bias = torch.randn(90, device=device) if with_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    ours = matmul(x, weight_class(weight), bias, outputs)
    assert ours.dtype is torch.float32
    assert ours.is_contiguous()
    assert error(ours, expected[:, outputs].cpu()) < ERRORS[weight_class]


@pytest.mark.parametrize("weight_class", CLASSES)
def test_embeddings(weight_class: type[PackedWeight]) -> None:
    weight, indices = torch.randn(90, 64, device=DEVICES[weight_class]), torch.tensor([3, 89, 0, 3])
    ours = weight_class(weight).rows(indices.to(weight.device))
    assert error(ours, weight[indices].double().cpu()) < ERRORS[weight_class]
    assert torch.equal(ours[0], ours[3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weight_class", [GpuInt8, GpuFp8])
def test_half_precision(weight_class: type[PackedWeight], dtype: torch.dtype) -> None:
    device = DEVICES[weight_class]
    x, weight = torch.randn(20, 64, device=device).to(dtype), torch.randn(48, 64, device=device).to(dtype)
    bias = torch.randn(48, device=device).to(dtype)
    ours = weight_class(weight).matmul(x, bias, slice(None))
    assert ours.dtype is dtype
    assert error(ours, (x.double() @ weight.double().T + bias).cpu()) < ERRORS[weight_class]
    assert weight_class(weight).rows(torch.tensor([1], device=device)).dtype is dtype


def test_outliers_of_one_row_do_not_touch_another() -> None:
    x, weight = torch.randn(2, 64), CpuInt8(torch.randn(32, 64))
    alone = weight.matmul(x[:1], None, slice(None))
    x[1] *= 1e6
    assert torch.equal(weight.matmul(x, None, slice(None))[:1], alone)
