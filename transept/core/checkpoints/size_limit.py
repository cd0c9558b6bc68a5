"""SizeLimit: refuse to build a model that is far larger than its checkpoint.

A config.json with a wrong number may ask for terabytes, or for a million layers, which take long to build before
loading fails. So the tensors that a model's constructor requests of PyTorch are counted, before they are allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.wrapped_names import adapter_problem
from transept.errors import CheckpointError

# A model may be larger than its checkpoint: an untied head, computed positions, biases of zeros.
RATIO = 2
MORE_TENSORS = 1000
MORE_NUMBERS = 1 << 24  # 64 MiB in float32
FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.rand, torch.randn, torch.full)


class SizeLimit(TorchFunctionMode):
    """Context in which creating far more numbers than the checkpoint's weights raises CheckpointError."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        """Raises CheckpointError if the checkpoint's weights cannot be read."""
        super().__init__()
        names, shapes = [], []
        for name, shape in checkpoint.shapes():
            names.append(name)
            shapes.append(shape)
        held = sum(map(prod, shapes))
        self.held = f"the checkpoint has {len(shapes):,} weights with {held:,} numbers in total"
        if problem := adapter_problem(names):
            self.held = f"{self.held}; {problem}"
        self.most_tensors = RATIO * len(shapes) + MORE_TENSORS
        self.most_numbers = RATIO * held + MORE_NUMBERS
        self.tensors = self.numbers = 0  # requested so far

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Called by PyTorch for each of its functions."""
        kwargs = kwargs or {}
        if func in FACTORIES or func is torch.arange:
            numbers = _range_length(args, kwargs) if func is torch.arange else _size(args, kwargs)
            self.tensors += 1
            self.numbers += numbers
            self._check(self.numbers)
        else:
            self._check(self.numbers + _broadcast_size(args))
        return func(*args, **kwargs)

    def _check(self, numbers: int) -> None:
        if numbers > self.most_numbers:
            raise CheckpointError(f"it asks for {numbers:,} numbers or more, and {self.held}")
        if self.tensors > self.most_tensors:
            raise CheckpointError(f"it asks for {self.tensors:,} weights or more, and {self.held}")


def _size(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the number of numbers: ``torch.empty(2, 3)``, ``torch.empty((2, 3))``, ``torch.full((2, 3), 1.0)``."""
    size = kwargs["size"] if "size" in kwargs else args[0] if args and isinstance(args[0], Sequence) else args
    return prod(max(0, int(dim)) for dim in size)


def _range_length(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the length of ``torch.arange(end)`` and ``torch.arange(start, end, step)``."""
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3] if args else (0, kwargs.get("end", 0), 1)
    return int(abs((end - start) / (kwargs.get("step", step) or 1)))


def _broadcast_size(args: Sequence[Any]) -> int:
    """Return the size of tensors of different shapes that broadcast; else 0."""
    shapes = {arg.shape for arg in args if isinstance(arg, Tensor)}
    if len(shapes) < 2:
        return 0
    try:
        return prod(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return 0
