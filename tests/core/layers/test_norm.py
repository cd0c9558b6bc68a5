"""Norms against PyTorch's, alone and after a sum; where there is no GPU, the kernel runs in Triton's interpreter."""

import functools
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn

from transept.core.layers.norm import RMSNorm, add_norm, launch, norm_of_sum

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of results around 1
NORMS = {
    "LayerNorm": nn.LayerNorm,
    "LayerNorm without bias": lambda size: nn.LayerNorm(size, bias=False),
    "RMSNorm": RMSNorm,
    "RMSNorm with an offset": functools.partial(RMSNorm, weight_offset=1.0),
}
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def make(kind: str, size: int, dtype: torch.dtype) -> nn.Module:
    norm = NORMS[kind](size).to(DEVICE, dtype)
    for parameter in norm.parameters():
        torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return norm.requires_grad_(False)


def expected(norm: nn.Module, total: Tensor) -> Tensor:
    """By PyTorch in float64."""
    norm, total = norm.double(), total.double()
    if isinstance(norm, RMSNorm):
        return nn.functional.rms_norm(total, total.shape[-1:], norm.weight + norm.weight_offset, norm.eps)
    return norm(total)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@needs_triton
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("size", [80, 1280])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_the_kernel_adds_and_normalises(kind: str, size: int, dtype: torch.dtype) -> None:
    norm, near = make(kind, size, dtype), {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
    x, y = (3 * torch.randn(5, 2 * size, device=DEVICE, dtype=dtype) + 1).chunk(2, dim=1)  # rows that lie apart
    total, normed = launch(x, y, norm, keep_total=True)
    if dtype is torch.bfloat16 and DEVICE == "cpu":  # the interpreter cuts what a GPU rounds
        torch.testing.assert_close(total, x + y, rtol=2**-7, atol=0)
    else:
        assert torch.equal(total, x + y)
    assert normed.dtype is dtype
    _, alone = launch(x, None, norm)
    _, without_total = launch(x, y, norm)
    assert torch.equal(without_total, normed)
    torch.testing.assert_close(alone.double(), expected(norm, x), **near)
    torch.testing.assert_close(normed.double(), expected(norm, total), **near)


@needs_triton
def test_the_kernel_takes_a_residual_in_float32_beside_half_precision() -> None:
    norm = make("RMSNorm", 96, torch.float16)
    x, y = torch.randn(4, 96, device=DEVICE) * 1e6, torch.randn(4, 96, device=DEVICE, dtype=torch.float16)
    total, normed = launch(x, y, norm, keep_total=True)
    assert total.dtype is torch.float32
    assert torch.equal(total, x + y)
    assert normed.dtype is torch.float16
    torch.testing.assert_close(normed.double(), expected(norm, total), rtol=2e-3, atol=2e-3)


@needs_triton
def test_the_kernel_takes_no_rows_and_a_row_that_is_constant() -> None:
    norm = make("LayerNorm", 64, torch.float32)
    assert launch(torch.zeros(0, 64, device=DEVICE), None, norm)[1].shape == (0, 64)
    _, normed = launch(torch.full((1, 64), 7.0, device=DEVICE), None, norm)
    torch.testing.assert_close(normed[0], norm.bias)


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_sums_and_norms_are_those_of_pytorch(kind: str, dtype: torch.dtype) -> None:
    norm, near = make(kind, 96, dtype), {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
    x, y = torch.randn(2, 7, 96, device=DEVICE, dtype=dtype)
    total, normed = add_norm(x, y, norm)
    assert torch.equal(total, x + y)
    assert torch.equal(norm_of_sum(x, y, norm), normed)
    assert torch.equal(norm(total), normed) or DEVICE == "cuda"
    torch.testing.assert_close(normed.double(), expected(norm, total), **near)


@pytest.mark.parametrize("kind", NORMS)
def test_what_is_added_to_the_sum_leaves_the_norm_as_it_is(kind: str) -> None:
    norm = make(kind, 96, torch.float32)
    x, y, addend = torch.randn(7, 96, device=DEVICE), torch.randn(7, 96, device=DEVICE), torch.randn(96, device=DEVICE)
    for add in (add_norm, functools.partial(launch, keep_total=True)):
        total, normed = add(x, y, norm, addend=addend)
        torch.testing.assert_close(total, x + y + addend)
        torch.testing.assert_close(normed, norm(x + y))


def test_a_norm_derived_from_pytorchs_computes_what_it_says() -> None:
    class Doubled(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    norm = Doubled(32, device=DEVICE)
    x, y = torch.randn(2, 3, 32, device=DEVICE)
    expected = 2 * nn.functional.layer_norm(x + y, (32,))
    torch.testing.assert_close(add_norm(x, y, norm)[1], expected)
    torch.testing.assert_close(norm_of_sum(x, y, norm), expected)
