"""FeedForward: the feed-forward network of a transformer layer."""

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
from transept.core.layers.adapters import rows_in_use, using
from transept.core.layers.linear import ColumnParallelLinear, RowParallelLinear, matmul
from transept.core.parallel.group import ParallelGroup

# Rows computed at a time on a CPU: half a window of Whisper, since the inner activations are its largest tensors. With
# more threads, more rows, so that each thread has enough work.
CPU_ROWS = 768
CPU_ROWS_OF_A_THREAD = 192


class FeedForward(nn.Module):
    """``fc2(act(fc1(x)))``, or gated ``fc2(act(fc1(x)) · gate(x))`` (Shazeer 2020).

    hidden_size, intermediate_size: of fc1's input and of its output.
    activation: its name in config.json, see get_activation.
    gated: True for the second form.
    bias: True if the linear layers have a bias.
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
        adapters = rows_in_use()
        differ = adapters is not None and adapters.of_all is None
        if runs_on(x) and self._kernel is not None and (adapters is None or differ):
            out = self._kernel(torch.zeros(len(x), self.fc2.out_features), x)
            if adapters is not None:
                own = adapters.with_adapters
                with using(adapters.selected(own)):
                    out[own] = self._all_at_once(x[own])
            return out
        rows = max(CPU_ROWS, CPU_ROWS_OF_A_THREAD * torch.get_num_threads())
        if len(x) <= rows or differ or not self._has_independent_rows(x):
            return self._all_at_once(x)
        return torch.cat([self._all_at_once(some) for some in x.split(rows)])

    def addend(self, x: Tensor) -> Tensor | None:
        """Return the term that must be added to x before `add_to`: fc2's bias if that adds in place, else None."""
        return self.fc2.bias if self._adds_in_place(x) else None

    def add_to(self, x: Tensor, normed: Tensor) -> Tensor:
        """Return ``x + self(normed)``. x: [tokens, hidden], with `addend` added; may be overwritten."""
        fits = runs_on(x) and runs_on(normed) and x.is_contiguous()
        if fits and self._kernel is not None and rows_in_use() is None:
            return self._kernel(x, normed)
        if not self._adds_in_place(x):
            return x + self(normed)
        return x.addmm_(self._hidden(normed), self.fc2.weight.t())

    @cached_property
    def _kernel(self) -> FeedForwardKernel | None:
        """Both products as one kernel; None if no kernel serves."""
        fc1, fc2 = self.fc1.projection(), self.fc2.projection()
        if fc1 is None or fc2 is None or not self.fc2.is_whole:
            return None
        if self.gate is not None or self.activation_name not in ACTIVATIONS:
            return None
        kernel = FEED_FORWARD.find(weights=fc1.weight.dtype, rows=HUNDREDS)
        return kernel(fc1, fc2, self.activation_name) if kernel is not None and kernel.serves(fc1, fc2) else None

    def _adds_in_place(self, x: Tensor) -> bool:
        """True if one kernel multiplies and adds: on a GPU, if fc2 is plain and all tensors have one dtype."""
        dtypes = {x.dtype, self.fc1.weight.dtype, self.fc2.weight.dtype}
        return x.is_cuda and self.fc2.is_plain and len(dtypes) == 1 and rows_in_use() is None

    def _has_independent_rows(self, x: Tensor) -> bool:
        """True if results are batch-invariant, bit for bit, because Transept's kernels compute them."""
        linears = [each for each in (self.fc1, self.gate, self.fc2) if each is not None]
        return ACTIVATE.serving(x) is not None and all(each.packed is not None for each in linears)

    def _all_at_once(self, x: Tensor) -> Tensor:
        return self.fc2(self._hidden(x))

    def _hidden(self, x: Tensor) -> Tensor:
        """Return fc2's input."""
        hidden = self._activated(x)
        if self.gate is not None:
            hidden = hidden * self.gate(x)
        return hidden.to(torch.promote_types(hidden.dtype, self.fc2.weight.dtype))

    def _activated(self, x: Tensor) -> Tensor:
        """Return ``act(fc1(x))``, by one kernel if one serves; on a CPU, the activation's kernel also adds the bias."""
        bias, plain = self.fc1.bias, rows_in_use() is None
        gelu = PRODUCT_AND_GELU.serving(x) if plain else None
        if gelu is not None and self.activation_name == "gelu" and bias is not None and self.fc1.packed is None:
            return gelu(x, self.fc1.weight, bias)
        activate = ACTIVATE.serving(x)
        if activate is None:
            return self.activation(self.fc1(x))
        if not plain:
            hidden = self.fc1(x)
            activate(hidden, None, self.activation_name)
            return hidden
        if self.fc1.packed is not None:
            return self.fc1.packed.activated(x, self.fc1.bias, self.activation_name)
        hidden = matmul(x, self.fc1.weight)
        activate(hidden, self.fc1.bias, self.activation_name)
        return hidden
