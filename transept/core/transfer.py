"""Numbers to a device without waiting for what it still computes, and from a device with one wait for all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def upload(values: Any, device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tensor on the device of what torch.tensor takes: nested lists, or an array.

    A GPU reads it when its turn has come, from pinned memory, which PyTorch keeps until then. With `torch.tensor` the
    host would wait for all that was queued before.
    """
    on_gpu = device.type == "cuda"
    return torch.tensor(values, dtype=dtype, pin_memory=on_gpu).to(device, non_blocking=on_gpu)


def download(parts: list[Tensor]) -> list[Tensor]:
    """The same tensors on the host, of one dtype and in one copy."""
    if not parts:
        return []
    flat = torch.cat([part.flatten() for part in parts]).cpu()
    pieces = flat.split([part.numel() for part in parts])
    return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]
