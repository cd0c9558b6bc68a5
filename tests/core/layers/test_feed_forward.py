"""The feed-forward half of a layer against torch.nn.Sequential, and against itself a row at a time."""

import pytest
import torch
from torch import nn

from transept.core.kernels.dispatch import PACK
from transept.core.layers.feed_forward import CPU_ROWS, CPU_ROWS_OF_A_THREAD, FeedForward
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel.group import ParallelGroup


@pytest.mark.parametrize(("name", "activation"), [("gelu", nn.GELU()), ("relu", nn.ReLU()), ("silu", nn.SiLU())])
def test_is_two_linear_layers_with_an_activation_between(name: str, activation: nn.Module) -> None:
    torch.manual_seed(0)
    reference = nn.Sequential(nn.Linear(12, 40), activation, nn.Linear(40, 12))
    layer = FeedForward(12, 40, name, group=ParallelGroup())
    with torch.inference_mode():
        for ours, theirs in ((layer.fc1, reference[0]), (layer.fc2, reference[2])):
            ours.weight.copy_(theirs.weight)
            ours.bias.copy_(theirs.bias)
        x = torch.randn(7, 12)
        torch.testing.assert_close(layer(x), reference(x))


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("gated", [False, True])
def test_rows_that_are_taken_in_parts_come_out_as_they_do_alone(quantization: str | None, gated: bool) -> None:
    torch.manual_seed(0)
    layer = FeedForward(32, 80, "gelu", gated=gated, group=ParallelGroup()).requires_grad_(False)
    for linear in (layer.fc1, layer.gate, layer.fc2):
        if linear is not None:
            weight = torch.randn(linear.weight.shape).half().float()
            linear.packed = PackedWeight(PACK.find(quantization=quantization)(weight), weight.shape)
            linear.bias.copy_(torch.randn(len(weight)))
    rows = 2 * max(CPU_ROWS, CPU_ROWS_OF_A_THREAD * torch.get_num_threads()) + 7
    x = torch.randn(rows, 32)
    assert torch.equal(layer(x), torch.cat([layer(row) for row in x.split(1)]))


@pytest.mark.parametrize("quantization", ["bfloat16", "int8"])
@pytest.mark.parametrize("gated", [False, True])
def test_it_is_added_to_a_residual(quantization: str, gated: bool) -> None:
    torch.manual_seed(0)
    layer = FeedForward(64, 192, "gelu", gated=gated, group=ParallelGroup()).requires_grad_(False)
    for linear in (layer.fc1, layer.gate, layer.fc2):
        if linear is not None:
            pack = PACK.find(quantization=quantization, long_inputs=True)
            linear.packed = PackedWeight(pack(torch.randn(linear.weight.shape)), linear.weight.shape)
            linear.bias.copy_(torch.randn(len(linear.weight)))
    x, normed = torch.randn(2, 300, 64)
    hidden = layer.fc1.packed.activated(normed, layer.fc1.bias, "gelu")
    right = layer.fc2(hidden if layer.gate is None else hidden * layer.gate(normed))
    assert torch.equal(layer(normed), right)
    assert torch.equal(layer.add_to(x.clone(), normed), x + right)


def test_a_weight_that_is_not_packed_is_multiplied_by_once() -> None:
    layer = FeedForward(8, 16, "gelu", group=ParallelGroup()).requires_grad_(False)
    torch.manual_seed(0)
    for parameter in layer.parameters():
        parameter.copy_(torch.randn(parameter.shape))
    calls: list[int] = []
    layer.fc2.register_forward_hook(lambda module, inputs, out: calls.append(len(out)))
    rows = max(CPU_ROWS, CPU_ROWS_OF_A_THREAD * torch.get_num_threads()) + 1
    layer(torch.randn(rows, 8))
    assert calls == [rows]
