"""The feed-forward half of a transformer layer."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from transept.core.kernels.dispatch import (
    ACTIVATE,
    ACTIVATIONS,
    FEED_FORWARD,
    HUNDREDS,
    PRODUCT_AND_GELU,
    FeedForwardKernel,
    runs_on,
)
from transept.core.layers.activations import get_activation
from transept.core.layers.linear import ColumnParallelLinear, RowParallelLinear, matmul
from transept.core.parallel.group import ParallelGroup

# Rows that a CPU takes at a time: half a window of Whisper, whose inner activations are its largest. With more threads,
# more rows, so that each has work enough.
CPU_ROWS = 768
CPU_ROWS_OF_A_THREAD = 192


class FeedForward(nn.Module):
    """``fc2(act(fc1(x)))``, or ``fc2(act(fc1(x)) · gate(x))`` where it is gated (Shazeer 2020).

    activation: its name in config.json. bias: whether the linear layers have one.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        *,
        gated: bool = False,
        bias: bool = True,
        group: ParallelGroup,
    ) -> None:
        super().__init__()
        self.fc1 = ColumnParallelLinear(hidden_size, intermediate_size, bias, group=group)
        self.gate = ColumnParallelLinear(hidden_size, intermediate_size, bias, group=group) if gated else None
        self.fc2 = RowParallelLinear(intermediate_size, hidden_size, bias, group=group)
        self.activation_name = activation
        self.activation = get_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape, in the wider dtype of x and fc2."""
        if runs_on(x) and self._kernel is not None:
            return self._kernel(torch.zeros(len(x), self.fc2.out_features), x)
        rows = max(CPU_ROWS, CPU_ROWS_OF_A_THREAD * torch.get_num_threads())
        if len(x) <= rows or not self._has_independent_rows(x):
            return self._all_at_once(x)
        return torch.cat([self._all_at_once(some) for some in x.split(rows)])

    def addend(self, x: Tensor) -> Tensor | None:
        """What `add_to` takes to be in the sum already: fc2's bias, where the product is added in place."""
        return self.fc2.bias if self._adds_in_place(x) else None

    def add_to(self, x: Tensor, normed: Tensor) -> Tensor:
        """``x + self(normed)``; x: [tokens, hidden], to which `addend` was added, and which may be overwritten."""
        if runs_on(x) and runs_on(normed) and x.is_contiguous() and self._kernel is not None:
            return self._kernel(x, normed)
        if not self._adds_in_place(x):
            return x + self(normed)
        return x.addmm_(self._hidden(normed), self.fc2.weight.t())

    @cached_property
    def _kernel(self) -> FeedForwardKernel | None:
        """Both products as one kernel; None where the kernel does not serve."""
        fc1, fc2 = self.fc1.projection(), self.fc2.projection()
        if fc1 is None or fc2 is None or not self.fc2.is_whole:
            return None
        if self.gate is not None or self.activation_name not in ACTIVATIONS:
            return None
        kernel = FEED_FORWARD.find(weights=fc1.weight.dtype, rows=HUNDREDS)
        return kernel(fc1, fc2, self.activation_name) if kernel is not None and kernel.serves(fc1, fc2) else None

    def _adds_in_place(self, x: Tensor) -> bool:
        """Whether one kernel multiplies and adds: on a GPU, where fc2 computes alone and all is in one dtype."""
        dtypes = {x.dtype, self.fc1.weight.dtype, self.fc2.weight.dtype}
        return x.is_cuda and self.fc2.is_plain and len(dtypes) == 1

    def _has_independent_rows(self, x: Tensor) -> bool:
        """Whether each row comes out the same to the last bit whatever is beside it: kernels of ours compute it."""
        linears = [each for each in (self.fc1, self.gate, self.fc2) if each is not None]
        return ACTIVATE.serving(x) is not None and all(each.packed is not None for each in linears)

    def _all_at_once(self, x: Tensor) -> Tensor:
        return self.fc2(self._hidden(x))

    def _hidden(self, x: Tensor) -> Tensor:
        """What fc2 multiplies."""
        hidden = self._activated(x)
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        return hidden.to(torch.promote_types(hidden.dtype, self.fc2.weight.dtype))

    def _activated(self, x: Tensor) -> Tensor:
        """``act(fc1(x))``, where kernels serve all at once, on a CPU at least with the bias."""
        bias, gelu = self.fc1.bias, PRODUCT_AND_GELU.serving(x)
        if gelu is not None and self.activation_name == "gelu" and bias is not None and self.fc1.packed is None:
            return gelu(x, self.fc1.weight, bias)
        activate = ACTIVATE.serving(x)
        if activate is None:
            return self.activation(self.fc1(x))
        if self.fc1.packed is not None:
            return self.fc1.packed.activated(x, self.fc1.bias, self.activation_name)
        hidden = matmul(x, self.fc1.weight)
        activate(hidden, self.fc1.bias, self.activation_name)
        return hidden
