"""Weights in 8 bits: products, embeddings, and which weights a model stores so. GPUs' products run on a CPU, too."""

from copy import deepcopy

import pytest
import torch
from test_narrow import Decoder, exact, steps
from torch import Tensor, nn

from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import EncoderDecoderQKVParallelLinear, Linear, ParallelGroup, matmul
from transept.core.layers.narrow import quantize_weights
from transept.core.layers.quantization import CpuInt8, GpuFp8, GpuInt8, QuantizedWeight

GROUP = ParallelGroup()
CLASSES = [CpuInt8, GpuInt8, GpuFp8]
DEVICES = {CpuInt8: "cpu"} | dict.fromkeys((GpuInt8, GpuFp8), "cuda" if torch.cuda.is_available() else "cpu")
ERRORS = {CpuInt8: 0.01, GpuInt8: 0.02, GpuFp8: 0.06}  # of a product of 64 numbers, relative to a typical one


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
def test_products(weight_class: type[QuantizedWeight], num_rows: int, outputs: slice, with_bias: bool) -> None:
    device = DEVICES[weight_class]
    x, weight = torch.randn(num_rows, 64, device=device), torch.randn(90, 64, device=device)
    bias = torch.randn(90, device=device) if with_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    ours = matmul(x, weight_class(weight), bias, outputs)
    assert ours.dtype is torch.float32
    assert ours.is_contiguous()
    assert error(ours, expected[:, outputs].cpu()) < ERRORS[weight_class]


@pytest.mark.parametrize("weight_class", CLASSES)
def test_embeddings(weight_class: type[QuantizedWeight]) -> None:
    weight, indices = torch.randn(90, 64, device=DEVICES[weight_class]), torch.tensor([3, 89, 0, 3])
    ours = weight_class(weight).rows(indices.to(weight.device))
    assert error(ours, weight[indices].double().cpu()) < ERRORS[weight_class]
    assert torch.equal(ours[0], ours[3])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weight_class", [GpuInt8, GpuFp8])
def test_half_precision(weight_class: type[QuantizedWeight], dtype: torch.dtype) -> None:
    device = DEVICES[weight_class]
    x, weight = torch.randn(20, 64, device=device).to(dtype), torch.randn(48, 64, device=device).to(dtype)
    bias = torch.randn(48, device=device).to(dtype)
    ours = weight_class(weight).multiply(x, bias, slice(None))
    assert ours.dtype is dtype
    assert error(ours, (x.double() @ weight.double().T + bias).cpu()) < ERRORS[weight_class]
    assert weight_class(weight).rows(torch.tensor([1], device=device)).dtype is dtype


def test_outliers_of_one_row_do_not_touch_another() -> None:
    x, weight = torch.randn(2, 64), CpuInt8(torch.randn(32, 64))
    alone = weight.multiply(x[:1], None, slice(None))
    x[1] *= 1e6
    assert torch.equal(weight.multiply(x, None, slice(None))[:1], alone)


@pytest.mark.parametrize("num_prompt", [1, 5, 70])
@pytest.mark.parametrize("gated", [False, True])
@torch.inference_mode()
def test_a_model_says_what_it_says_with_rounded_weights(gated: bool, num_prompt: int) -> None:
    """Nothing but weights is rounded noticeably, neither by the modules nor by the kernel of a whole layer."""
    quantized = exact(Decoder(gated))
    rounded = deepcopy(quantized)
    for module in rounded.modules():
        if isinstance(module, Linear | VocabParallelHead):
            largest = module.weight.abs().amax(1, keepdim=True) / 127
            module.weight.copy_((module.weight / largest).round() * largest)
    quantize(quantized, CpuInt8)
    assert {name for name, _ in quantized.named_parameters()} == {
        name for name, _ in rounded.named_parameters() if "norm" in name or name.endswith("bias")
    }
    for ours, expected in zip(steps(quantized, num_prompt), steps(rounded, num_prompt), strict=True):
        assert error(ours, expected.double()) < 1e-4


def quantize(model: nn.Module, weight_class: type[QuantizedWeight]) -> None:
    """As if each weight had just been loaded."""
    loaded = quantize_weights(model, weight_class)
    for parameter in list(model.parameters()):
        loaded(parameter)


class Strange(nn.Module):
    """An untied embedding, a head, a matrix that something else reads, and a layer of an odd size."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(50, 32, group=GROUP)
        self.head = VocabParallelHead(50, 32, group=GROUP)
        self.cross = EncoderDecoderQKVParallelLinear(32, 4, 8, group=GROUP)
        self.read = Linear(32, 32)
        self.reader = nn.Linear(32, 32)
        self.reader.weight = self.read.weight
        self.odd = Linear(33, 32)


@pytest.mark.parametrize("weight_class", CLASSES)
def test_which_weights_are_stored_in_8_bits(weight_class: type[QuantizedWeight]) -> None:
    model = exact(Strange())
    quantize(model, weight_class)
    assert isinstance(model.head.weight, weight_class)
    assert isinstance(model.cross.weight, weight_class)
    assert isinstance(model.embedding.weight, nn.Parameter)
    assert model.read.weight is model.reader.weight
    assert isinstance(model.reader.weight, nn.Parameter)
    assert isinstance(model.odd.weight, weight_class) == (weight_class is CpuInt8)
