"""Norms against PyTorch's, alone and after a sum; where there is no GPU, its kernel runs in Triton's interpreter."""

import functools
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transept.core.kernels.dispatch import NORM
from transept.core.layers.norm import RMSNorm, add_norm, norm_of, norm_of_sum

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


def launch(device: str, x: Tensor, y: Tensor | None, norm: nn.Module, **options: Any) -> tuple[Tensor, Tensor]:
    """By the kernel for a type of device."""
    kernel = NORM.find(device=device)
    assert kernel is not None
    bias, offset = (None, norm.weight_offset) if isinstance(norm, RMSNorm) else (norm.bias, 0.0)
    given = {"weight_offset": offset, "subtracts_mean": not isinstance(norm, RMSNorm), "keep_total": False}
    return kernel(x, y, norm.weight, bias, norm.eps, **given | options)


on_a_gpu, on_a_cpu = functools.partial(launch, "cuda"), functools.partial(launch, "cpu")


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
    total, normed = on_a_gpu(x, y, norm, keep_total=True)
    if dtype is torch.bfloat16 and DEVICE == "cpu":  # the interpreter cuts what a GPU rounds
        torch.testing.assert_close(total, x + y, rtol=2**-7, atol=0)
    else:
        assert torch.equal(total, x + y)
    assert normed.dtype is dtype
    _, alone = on_a_gpu(x, None, norm)
    _, without_total = on_a_gpu(x, y, norm)
    assert torch.equal(without_total, normed)
    torch.testing.assert_close(alone.double(), expected(norm, x), **near)
    torch.testing.assert_close(normed.double(), expected(norm, total), **near)


@needs_triton
def test_the_kernel_takes_a_residual_in_float32_beside_half_precision() -> None:
    norm = make("RMSNorm", 96, torch.float16)
    x, y = torch.randn(4, 96, device=DEVICE) * 1e6, torch.randn(4, 96, device=DEVICE, dtype=torch.float16)
    total, normed = on_a_gpu(x, y, norm, keep_total=True)
    assert total.dtype is torch.float32
    assert torch.equal(total, x + y)
    assert normed.dtype is torch.float16
    torch.testing.assert_close(normed.double(), expected(norm, total), rtol=2e-3, atol=2e-3)


@needs_triton
def test_the_kernel_takes_no_rows_and_a_row_that_is_constant() -> None:
    norm = make("LayerNorm", 64, torch.float32)
    assert on_a_gpu(torch.zeros(0, 64, device=DEVICE), None, norm)[1].shape == (0, 64)
    _, normed = on_a_gpu(torch.full((1, 64), 7.0, device=DEVICE), None, norm)
    torch.testing.assert_close(normed[0], norm.bias)


@pytest.mark.parametrize("kind", [kind for kind in NORMS if kind != "LayerNorm without bias"])
@pytest.mark.parametrize("size", [1, 7, 80, 1283])
@pytest.mark.parametrize("rows", [0, 1, 33])
def test_the_kernel_of_cpus_adds_and_normalises(kind: str, size: int, rows: int) -> None:
    norm, near = make(kind, size, torch.float32).cpu(), {"rtol": 2e-5, "atol": 2e-5}
    x, y = (3 * torch.randn(rows, 2 * size) + 1).chunk(2, dim=1)  # rows that lie apart
    addend = torch.randn(size)
    total, normed = on_a_cpu(x, y, norm, keep_total=True)
    assert torch.equal(total, x + y)
    assert torch.equal(on_a_cpu(x, y, norm)[1], normed)
    with_addend = on_a_cpu(x, y, norm, keep_total=True, addend=addend)
    assert torch.equal(with_addend[0], x + y + addend)
    assert torch.equal(with_addend[1], normed)
    kept, alone = on_a_cpu(x, None, norm, keep_total=True, addend=addend)
    assert torch.equal(kept, x + addend)
    assert torch.equal(on_a_cpu(x, None, norm, keep_total=True)[0], x)
    torch.testing.assert_close(alone.double(), expected(norm, x), **near)
    torch.testing.assert_close(normed.double(), expected(norm, total), **near)


def test_the_kernel_of_cpus_gives_a_row_the_same_bits_wherever_it_is() -> None:
    norm = make("LayerNorm", 96, torch.float32).cpu()
    x, y = torch.randn(2, 50, 96)
    total, normed = on_a_cpu(x, y, norm, keep_total=True)
    for row in range(len(x)):
        own = on_a_cpu(x[row : row + 1], y[row : row + 1], norm, keep_total=True)
        assert torch.equal(own[0][0], total[row])
        assert torch.equal(own[1][0], normed[row])


def test_the_kernel_of_cpus_refuses_what_does_not_fit() -> None:
    norm, x = make("LayerNorm", 8, torch.float32).cpu(), torch.zeros(2, 8)
    for y, addend in ((torch.zeros(3, 8), None), (torch.zeros(2, 4), None), (x, torch.zeros(4))):
        with pytest.raises(IndexError, match="do not fit"):
            on_a_cpu(x, y, norm, keep_total=True, addend=addend)
    with pytest.raises(IndexError, match="do not fit"):
        on_a_cpu(torch.zeros(2, 16), None, norm)
    with pytest.raises(ValueError, match="has a bias"):
        on_a_cpu(x, None, nn.LayerNorm(8, bias=False).requires_grad_(False))


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_sums_and_norms_are_those_of_pytorch(kind: str, dtype: torch.dtype) -> None:
    norm, near = make(kind, 96, dtype), {"rtol": TOLERANCES[dtype], "atol": TOLERANCES[dtype]}
    x, y = torch.randn(2, 7, 96, device=DEVICE, dtype=dtype)
    total, normed = add_norm(x, y, norm)
    assert torch.equal(total, x + y)
    assert torch.equal(norm_of_sum(x, y, norm), normed)
    assert torch.equal(norm_of(total, norm), normed) or DEVICE == "cuda"
    torch.testing.assert_close(normed.double(), expected(norm, total), **near)


@pytest.mark.parametrize(
    "add", [add_norm, pytest.param(functools.partial(on_a_gpu, keep_total=True), marks=needs_triton)]
)
@pytest.mark.parametrize("kind", NORMS)
def test_what_is_added_to_the_sum_leaves_the_norm_as_it_is(
    kind: str, add: Callable[..., tuple[Tensor, Tensor]]
) -> None:
    norm = make(kind, 96, torch.float32)
    x, y, addend = torch.randn(7, 96, device=DEVICE), torch.randn(7, 96, device=DEVICE), torch.randn(96, device=DEVICE)
    total, normed = add(x, y, norm, addend=addend)
    torch.testing.assert_close(total, x + y + addend)
    torch.testing.assert_close(normed, norm(x + y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_sublayer_in_another_dtype_is_promoted_as_pytorch_does(dtype: torch.dtype) -> None:
    norm, x = make("LayerNorm", 64, torch.float32), torch.zeros(300, 64, device=DEVICE)
    y = torch.randn(300, 64, device=DEVICE).to(dtype)
    if dtype is torch.float64:
        norm = norm.double()
    total, normed = add_norm(x, y, norm)
    torch.testing.assert_close(total, x + y)
    torch.testing.assert_close(normed, norm(x + y))
    torch.testing.assert_close(norm_of_sum(x, y[0], norm), norm(x + y[0]))  # of a row that is added to all


def test_kernels_write_float32_whatever_is_made_by_default() -> None:
    norm, x = make("LayerNorm", 64, torch.float32).cpu(), torch.randn(3, 64)
    wanted = on_a_cpu(x, x, norm, keep_total=True)
    torch.set_default_dtype(torch.float64)
    try:
        found = on_a_cpu(x, x, norm, keep_total=True)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("kind", NORMS)
def test_a_norm_of_heads_is_that_of_rows(kind: str) -> None:
    norm = make(kind, 16, torch.float32)
    x = torch.randn(5, 3, 16, device=DEVICE)  # [tokens, heads, head_dim]
    torch.testing.assert_close(norm(x).flatten(0, 1), norm_of(x.flatten(0, 1), norm))
    torch.testing.assert_close(add_norm(x, x, norm)[1], norm_of(2 * x, norm))


def test_a_norm_derived_from_pytorchs_computes_what_it_says() -> None:
    class Doubled(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    norm = Doubled(32, device=DEVICE)
    x, y = torch.randn(2, 3, 32, device=DEVICE)
    expected = 2 * nn.functional.layer_norm(x + y, (32,))
    torch.testing.assert_close(add_norm(x, y, norm)[1], expected)
    torch.testing.assert_close(norm_of_sum(x, y, norm), expected)
