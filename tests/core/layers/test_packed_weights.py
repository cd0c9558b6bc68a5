"""Products and embeddings of weights as kernels read them. GPUs' products run on a CPU, too."""

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from transept.core.kernels.dispatch import HUNDREDS, PACK, PRODUCT
from transept.core.kernels.gpu.rounded_weights import round_in_one_kernel, rounded_by_operators
from transept.core.layers.linear import matmul
from transept.core.layers.packed_weights import PackedWeight

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WAYS = [("cpu", None), ("cpu", "int8"), ("cuda", "int8"), ("cuda", "fp8")]  # type of device, quantization
ERRORS = dict(zip(WAYS, (1e-6, 0.01, 0.02, 0.06), strict=True))  # of a product of 64 numbers, relative to a typical one
Way = tuple[str, str | None]


def device_of(way: Way) -> str:
    """Where a kernel is tested: those of GPUs run on a CPU, too."""
    return "cuda" if way[0] == "cuda" and torch.cuda.is_available() else "cpu"


def packed(weight: Tensor, way: Way) -> PackedWeight:
    pack = PACK.find(device=way[0], dtype=weight.dtype, inputs=weight.shape[1], quantization=way[1])
    return PackedWeight(pack(weight), weight.shape)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def error(ours: Tensor, exact: Tensor) -> float:
    """The root mean square of the differences, by that of the numbers."""
    return float((ours.double().cpu() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("num_rows", [1, 5, 40, 200])
@pytest.mark.parametrize("outputs", [slice(None), slice(48), slice(48, None), slice(10, 50)], ids=str)
@pytest.mark.parametrize("with_bias", [True, False])
def test_products(way: Way, num_rows: int, outputs: slice, with_bias: bool) -> None:
    device = device_of(way)
    x, weight = torch.randn(num_rows, 64, device=device), torch.randn(90, 64, device=device)
    bias = torch.randn(90, device=device) if with_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    ours = matmul(x, packed(weight, way), bias, outputs)
    assert ours.dtype is torch.float32
    assert ours.is_contiguous()
    assert error(ours, expected[:, outputs].cpu()) < ERRORS[way]


def test_an_encoder_s_output_goes_to_the_kernel_of_its_rows() -> None:
    """And so does one row of it, so that it comes out the same whatever is beside it."""
    x, weight = torch.randn(300, 64), torch.randn(90, 64).half().float()
    panels = PACK.find()(weight)
    ours = PackedWeight(panels, weight.shape, 1, HUNDREDS)
    for rows, of_encoder in ((1, False), (HUNDREDS, True)):
        kernel = PRODUCT.find(weights=torch.float16, rows=rows, inputs=64)
        assert kernel is not None
        right = kernel(x, panels, None)
        for some in (slice(None), slice(7, 8)):
            assert torch.equal(matmul(x[some], ours, of_encoder=of_encoder), right[some])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_embeddings(way: Way) -> None:
    weight, indices = torch.randn(90, 64, device=device_of(way)), torch.tensor([3, 89, 0, 3])
    ours = packed(weight, way).rows(indices.to(weight.device))
    assert error(ours, weight[indices].double().cpu()) < ERRORS[way]
    assert torch.equal(ours[0], ours[3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", WAYS[2:], ids=str)
def test_half_precision(way: Way, dtype: torch.dtype) -> None:
    device = device_of(way)
    x, weight = torch.randn(20, 64, device=device).to(dtype), torch.randn(48, 64, device=device).to(dtype)
    bias = torch.randn(48, device=device).to(dtype)
    ours = packed(weight, way).matmul(x, bias, slice(None))
    assert ours.dtype is dtype
    assert error(ours, (x.double() @ weight.double().T + bias).cpu()) < ERRORS[way]
    assert packed(weight, way).rows(torch.tensor([1], device=device)).dtype is dtype


def test_outliers_of_one_row_do_not_touch_another() -> None:
    x, weight = torch.randn(2, 64), packed(torch.randn(32, 64), ("cpu", "int8"))
    alone = weight.matmul(x[:1], None, slice(None))
    x[1] *= 1e6
    assert torch.equal(weight.matmul(x, None, slice(None))[:1], alone)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("of", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "size"), [(5, 96), (1, 40), (3, 1280), (0, 16)])
def test_activations_are_rounded_as_by_pytorch(dtype: torch.dtype, of: torch.dtype, rows: int, size: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(rows, size + 8, device=DEVICE).mul_(3).to(of)[:, :size]
    if rows > 1:
        x[1] = 0.0
    values, scales = round_in_one_kernel(x, dtype)
    expected, steps = rounded_by_operators(x, dtype)
    assert values.dtype is dtype
    torch.testing.assert_close(scales, steps)
    apart = (values.float() - expected.float()).abs()
    if DEVICE == "cpu":  # Triton's interpreter forgets to carry where fp8 is rounded up to a power of 2
        apart[expected.float().abs().log2() % 1 == 0] = 0.0
    assert bool((apart <= expected.float().abs().clamp(min=8) / 8).all())  # by one number
    assert int((apart > 0).sum()) <= 1 + x.numel() // 100  # where a quotient lies between two of them
