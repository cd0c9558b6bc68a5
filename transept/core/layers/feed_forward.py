"""The feed-forward half of a transformer layer."""

from __future__ import annotations

from torch import Tensor, nn

from transept.core.layers.activations import get_activation
from transept.core.layers.linear import ColumnParallelLinear, ParallelGroup, RowParallelLinear


class FeedForward(nn.Module):
    """Two linear layers, ``fc1`` and ``fc2``, with an activation between them, named as in config.json."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: str, *, group: ParallelGroup) -> None:
        super().__init__()
        self.fc1 = ColumnParallelLinear(hidden_size, intermediate_size, group=group)
        self.fc2 = RowParallelLinear(intermediate_size, hidden_size, group=group)
        self.activation = get_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        return self.fc2(self.activation(self.fc1(x)))
