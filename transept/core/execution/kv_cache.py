"""KVCache: the memory of the paged cache on the device and on the host, and copies between blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from transept.core.kernels.huge_pages import empty_in_huge_pages
from transept.core.kernels.transfer import upload
from transept.core.model_shape import ModelShape
from transept.core.scheduling.step import BlockMoves

SMALLEST_ROW = 512  # bytes of a token; with smaller rows, a short sequence would use little of a huge page


def block_bytes(shape: ModelShape, block_size: int, dtype: torch.dtype) -> int:
    """Return the bytes of one block over all layers, keys and values."""
    return 2 * shape.num_decoder_layers * block_size * shape.num_kv_heads * shape.head_dim * dtype.itemsize


class KVCache:
    """``[2, num_blocks, block_size, num_kv_heads, head_dim]`` for each decoder layer here, on the device and the host.

    Self- and cross-attention share the blocks, which BlockSpaceManager assigns. The device has one more block, the
    spare block, for the padding rows of recorded steps.

    On a GPU, blocks are copied on a separate stream, to and from pinned host memory, while encoders run. Call `wait`
    before the first kernel that reads or writes a block.
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
        size = (block_size, shape.num_kv_heads, shape.head_dim)
        on_gpu, layers = device.type == "cuda", range(shape.num_decoder_layers)
        self.spare_block = num_device_blocks
        of_layer = (2, num_device_blocks + 1, *size)
        if device.type != "cpu":
            # A GPU kernel may read unwritten slots and multiply them by a weight of 0, which a NaN would survive.
            allocate = partial(torch.zeros, dtype=dtype, device=device)
        elif shape.num_kv_heads * shape.head_dim * dtype.itemsize < SMALLEST_ROW:
            allocate = partial(torch.empty, dtype=dtype)
        else:
            # Self-attention's blocks are allocated from the far end of keys and values, where short texts write little.
            allocate = partial(empty_in_huge_pages, dtype=dtype, small_ends=True)
        self.layers = [allocate(*of_layer) for _ in layers]
        self.host_layers = [
            torch.empty(2, num_host_blocks, *size, dtype=dtype, device="cpu", pin_memory=on_gpu) for _ in layers
        ]
        self._stream = torch.cuda.Stream(device) if on_gpu else None

    def move(self, moves: BlockMoves) -> None:
        """Swap blocks out, swap blocks in, then copy blocks on the device."""
        if not moves:
            return
        with self._own_stream():
            _swap(self.layers, self.host_layers, moves.swap_out)
            _swap(self.host_layers, self.layers, moves.swap_in)
            if moves.copy:
                sources, targets = upload(moves.copy, self.layers[0].device).T
                for layer in self.layers:
                    numbers = layer.view(torch.uint8) if layer.dtype.itemsize == 1 else layer
                    numbers.index_copy_(1, targets, numbers.index_select(1, sources))  # faster than indexing

    def wait(self) -> None:
        """Make the current stream wait for all moves so far."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Copy blocks on the separate stream: after the kernels launched so far, concurrently with later ones."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            yield


def _swap(sources: list[Tensor], targets: list[Tensor], pairs: list[tuple[int, int]]) -> None:
    runs = list(_runs(pairs))
    for source, target in zip(sources, targets, strict=True):
        for first, to, count in runs:
            for part in range(2):  # keys, values
                target[part, to : to + count].copy_(source[part, first : first + count], non_blocking=True)


def _runs(pairs: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Merge pairs of consecutive blocks into runs: first source, first target, number of blocks."""
    start = 0
    for index in range(1, len(pairs) + 1):
        offset = index - start
        if index == len(pairs) or pairs[index] != (pairs[start][0] + offset, pairs[start][1] + offset):
            yield *pairs[start], offset
            start = index
