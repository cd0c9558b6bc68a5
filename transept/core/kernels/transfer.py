"""Asynchronous copies between host and device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """Make a tensor on the device. values: an argument of torch.tensor, such as nested lists or an array.

    With `torch.tensor` alone, the host would wait for all earlier kernels.
    """
    return to_device(torch.tensor(values, dtype=dtype, device="cpu"), device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to the device.

    A GPU copies it asynchronously from pinned memory, which PyTorch does not reuse before the copy is complete.
    """
    if device.type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Download:
    """An asynchronous copy of tensors of one device to the host. From a GPU, all have one dtype and share one copy."""

    def __init__(self, parts: list[Tensor]) -> None:
        self._parts, self._copied = parts, None
        if parts and parts[0].is_cuda:
            self._copied = torch.cuda.Event()
            flat = torch.cat([part.flatten() for part in parts])
            pinned = torch.empty(flat.shape, dtype=flat.dtype, device="cpu", pin_memory=True)
            pieces = pinned.copy_(flat, non_blocking=True).split([part.numel() for part in parts])
            self._parts = [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]
            self._copied.record()

    def collect(self) -> list[Tensor]:
        """Wait for the copy, but not for later kernels. Returns the tensors on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._parts
