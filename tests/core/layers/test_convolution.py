"""A convolution with GELU, and the same as one product."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from transept.core.kernels.dispatch import PACK_CONVOLUTION, PRODUCT_AND_GELU
from transept.core.layers.convolution import GeluConv1d
from transept.core.layers.packing import WeightPacker

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("frames", "padding"), [(24, 1), (25, 1), (11, 0)])
def test_it_is_pytorchs(stride: int, frames: int, padding: int) -> None:
    torch.manual_seed(0)
    layer = GeluConv1d(5, 7, kernel_size=3, stride=stride, padding=padding).to(DEVICE).requires_grad_(False)
    x = torch.randn(2, frames, 5, device=DEVICE)
    expected = nn.functional.gelu(
        nn.functional.conv1d(x.double().transpose(1, 2), layer.weight.double(), layer.bias.double(), stride, padding)
    ).transpose(1, 2)
    for out in (layer(x), layer.as_product(x, lambda *inputs: nn.functional.gelu(nn.functional.linear(*inputs)))):
        torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("quantization", ["int8", "bfloat16"])
@pytest.mark.parametrize("stride", [1, 2])
def test_its_weight_in_bfloat16(stride: int, quantization: str) -> None:
    torch.manual_seed(0)
    layer = GeluConv1d(80, 96, kernel_size=3, stride=stride, padding=1).requires_grad_(False)
    weight, x = layer.weight, torch.randn(2, 300, 80)
    expected = nn.functional.gelu(
        nn.functional.conv1d(x.double().transpose(1, 2), weight.double(), layer.bias.double(), stride, 1)
    ).transpose(1, 2)
    packer = WeightPacker(layer, "cpu", quantization)
    if PACK_CONVOLUTION.find(quantization=quantization) is None:  # a processor that multiplies no bfloat16
        assert layer.weight is weight
        return
    packer.pack(layer.weight, weight.half())
    out = layer(x)
    assert 1e-4 < (out - expected).norm() / expected.norm() < 4e-3
    assert torch.equal(out[1], layer(x[1:])[0])  # whatever is beside it


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_gelu_before_rounding_is_nearer_than_rounding_before_it() -> None:
    torch.manual_seed(0)
    for mean in (0.0, -1.0):
        x = torch.randn(512, 320, device=DEVICE, dtype=torch.bfloat16)
        weight = (torch.randn(640, 320, device=DEVICE) * 320**-0.5).bfloat16()
        bias = (torch.randn(640, device=DEVICE) * 0.1 + mean).bfloat16()
        exact = nn.functional.gelu(nn.functional.linear(x.double(), weight.double(), bias.double()))
        separately = nn.functional.gelu(nn.functional.linear(x, weight, bias))
        together = PRODUCT_AND_GELU.serving(x)(x, weight, bias)  # type: ignore[misc]
        assert (together.double() - exact).norm() < 0.8 * (separately.double() - exact).norm()
