"""The feed-forward half of a layer against torch.nn.Sequential."""

import pytest
import torch
from torch import nn

from transept.core.layers.feed_forward import FeedForward
from transept.core.parallel_group import ParallelGroup


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
