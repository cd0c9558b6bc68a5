"""The paged cache's memory: one pool of blocks a device, and the copies between blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from transept.core.model import ModelShape


def block_bytes(shape: ModelShape, block_size: int, dtype: torch.dtype) -> int:
    """Bytes of one block over all layers, keys and values."""
    return 2 * shape.num_decoder_layers * block_size * shape.num_kv_heads * shape.head_dim * dtype.itemsize


class KVCache:
    """Per decoder layer ``[2, num_blocks, block_size, num_kv_heads, head_dim]``, on the device and on the host.

    Self- and cross-attention share the blocks; which block is whose is BlockSpaceManager's business. After them comes a
    spare one on the device, for what is computed only to fill up a step.
    """

    def __init__(
        self,
        shape: ModelShape,
        block_size: int,
        num_device_blocks: int,
        num_host_blocks: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def pool(num_blocks: int, where: torch.device) -> list[Tensor]:
            size = (2, num_blocks, block_size, shape.num_kv_heads, shape.head_dim)
            # A kernel on a GPU may read slots that nobody wrote, to give them no weight: NaNs there would show.
            allocate = torch.empty if where.type == "cpu" else torch.zeros
            return [allocate(size, dtype=dtype, device=where) for _ in range(shape.num_decoder_layers)]

        self.spare_block = num_device_blocks
        self.layers = pool(num_device_blocks + 1, device)
        self.host_layers = pool(num_host_blocks, torch.device("cpu"))

    def swap_out(self, pairs: list[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks; pairs of (device block, host block)."""
        _copy_blocks(self.layers, self.host_layers, pairs)

    def swap_in(self, pairs: list[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks; pairs of (host block, device block)."""
        _copy_blocks(self.host_layers, self.layers, pairs)

    def copy(self, pairs: list[tuple[int, int]]) -> None:
        """Copy device blocks to device blocks, before a forked sequence writes into its own."""
        _copy_blocks(self.layers, self.layers, pairs)


def _copy_blocks(sources: list[Tensor], targets: list[Tensor], pairs: list[tuple[int, int]]) -> None:
    if not pairs:
        return
    source_blocks, target_blocks = (torch.tensor(column) for column in zip(*pairs, strict=True))
    for source, target in zip(sources, targets, strict=True):
        moved = source[:, source_blocks.to(source.device)]
        target[:, target_blocks.to(target.device)] = moved.to(target.device)
