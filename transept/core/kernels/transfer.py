"""Numbers to a device and from it, without waiting for what it computes beside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tensor on the device of what torch.tensor takes: nested lists, or an array.

    With `torch.tensor` alone the host would wait for all that was queued before.
    """
    return to_device(torch.tensor(values, dtype=dtype, device="cpu"), device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device.

    A GPU reads it when its turn has come, from pinned memory, which PyTorch gives to nobody else until then.
    """
    if device.type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Download:
    """Tensors of one device on their way to the host: from a GPU, where they have one dtype, in one copy."""

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
        """The same tensors on the host, once they are there; what was queued after them is not waited for."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._parts
