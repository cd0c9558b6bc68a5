"""The cache's memory: block moves against plain lists of tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transept.core.execution.kv_cache import KVCache, block_bytes
from transept.core.model_shape import ModelShape
from transept.core.scheduling.step import BlockMoves

SHAPE = ModelShape(
    num_decoder_layers=3,
    num_kv_heads=2,
    head_dim=4,
    vocab_size=10,
    max_source_positions=None,
    max_target_positions=None,
)
BLOCK_SIZE = 5
DEVICE_BLOCKS, HOST_BLOCKS = 8, 6
CPU = torch.device("cpu")

PAIRS = {
    "none": [],
    "one": [(2, 4)],
    "several, in no order": [(7, 0), (1, 5), (4, 2)],
    "every host block": [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1), (5, 0)],
    "same numbers": [(0, 0), (3, 3)],
}


@pytest.fixture
def cache() -> KVCache:
    cache = KVCache(SHAPE, BLOCK_SIZE, DEVICE_BLOCKS, HOST_BLOCKS, torch.float32, CPU)
    generator = torch.Generator().manual_seed(0)
    for layer in cache.layers + cache.host_layers:
        layer.copy_(torch.randn(layer.shape, generator=generator))
    return cache


def blocks_of(layers: list[Tensor]) -> list[list[Tensor]]:
    """By layer, then block: [2, block_size, kv heads, dim], copied."""
    return [[layer[:, block].clone() for block in range(layer.shape[1])] for layer in layers]


def assert_blocks(layers: list[Tensor], expected: list[list[Tensor]]) -> None:
    for layer, blocks in zip(layers, expected, strict=True):
        assert torch.equal(layer, torch.stack(blocks, dim=1))


def moved(sources: list[list[Tensor]], targets: list[list[Tensor]], pairs: list[tuple[int, int]]) -> list[list[Tensor]]:
    """The targets after each pair's block, as it was before all moves, has replaced its target."""
    result = [list(blocks) for blocks in targets]
    for source, target in pairs:
        for layer, blocks in enumerate(result):
            blocks[target] = sources[layer][source]
    return result


@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_swap_out_copies_just_these_blocks_to_the_host(cache: KVCache, pairs: list[tuple[int, int]]) -> None:
    device, host = blocks_of(cache.layers), blocks_of(cache.host_layers)
    cache.move(BlockMoves(swap_out=pairs))
    assert_blocks(cache.layers, device)
    assert_blocks(cache.host_layers, moved(device, host, pairs))


@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_swap_in_copies_just_these_blocks_to_the_device(cache: KVCache, pairs: list[tuple[int, int]]) -> None:
    pairs = [(host, device) for device, host in pairs]
    device, host = blocks_of(cache.layers), blocks_of(cache.host_layers)
    cache.move(BlockMoves(swap_in=pairs))
    assert_blocks(cache.host_layers, host)
    assert_blocks(cache.layers, moved(host, device, pairs))


@pytest.mark.parametrize(
    "pairs",
    [[], [(2, 4)], [(7, 0), (1, 5)], [(3, 4), (3, 6), (3, 0), (2, 1)]],
    ids=["none", "one", "two", "one source for many"],
)
def test_copy_duplicates_just_these_blocks(cache: KVCache, pairs: list[tuple[int, int]]) -> None:
    device, host = blocks_of(cache.layers), blocks_of(cache.host_layers)
    cache.move(BlockMoves(copy=pairs))
    assert_blocks(cache.layers, moved(device, device, pairs))
    assert_blocks(cache.host_layers, host)


def test_a_block_that_was_swapped_out_may_be_written_in_the_same_step(cache: KVCache) -> None:
    device, host = blocks_of(cache.layers), blocks_of(cache.host_layers)
    cache.move(BlockMoves(swap_out=[(1, 0), (2, 3)]))
    cache.move(BlockMoves(copy=[(5, 1), (5, 2)]))  # the blocks just freed are the copies' destinations
    assert_blocks(cache.host_layers, moved(device, host, [(1, 0), (2, 3)]))
    assert_blocks(cache.layers, moved(device, device, [(5, 1), (5, 2)]))


def test_a_block_that_was_swapped_in_may_be_copied_in_the_same_step(cache: KVCache) -> None:
    device, host = blocks_of(cache.layers), blocks_of(cache.host_layers)
    cache.move(BlockMoves(swap_in=[(4, 2), (1, 6)]))
    cache.move(BlockMoves(copy=[(2, 7)]))
    assert_blocks(cache.layers, moved(host, device, [(4, 2), (1, 6), (4, 7)]))


def test_out_and_in_again_gives_back_what_was_there(cache: KVCache) -> None:
    device = blocks_of(cache.layers)
    cache.move(BlockMoves(swap_out=[(1, 2), (6, 0)]))
    for layer in cache.layers:
        layer[:, [1, 6]] = float("nan")
    cache.move(BlockMoves(swap_in=[(0, 3), (2, 1)]))
    expected = moved(device, device, [(6, 3)])
    for layer, blocks in zip(cache.layers, expected, strict=True):
        for block in (0, 1, 2, 3, 4, 5, 7):
            assert torch.equal(layer[:, block], blocks[block])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_block_bytes_are_the_storage_of_all_layers(dtype: torch.dtype) -> None:
    cache = KVCache(SHAPE, BLOCK_SIZE, DEVICE_BLOCKS, HOST_BLOCKS, dtype, CPU)
    size = block_bytes(SHAPE, BLOCK_SIZE, dtype)
    on_device = DEVICE_BLOCKS + 1  # with the spare one
    assert sum(layer.untyped_storage().nbytes() for layer in cache.layers) == size * on_device
    assert sum(layer.untyped_storage().nbytes() for layer in cache.host_layers) == size * HOST_BLOCKS
    assert {tuple(layer.shape) for layer in cache.layers} == {(2, on_device, BLOCK_SIZE, 2, 4)}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn], ids=str)
def test_blocks_of_any_dtype_move(dtype: torch.dtype) -> None:
    cache = KVCache(SHAPE, BLOCK_SIZE, DEVICE_BLOCKS, HOST_BLOCKS, dtype, CPU)
    for layer in cache.layers:
        layer.copy_(torch.randn(layer.shape))
    device = blocks_of([layer.float() for layer in cache.layers])
    cache.move(BlockMoves(swap_out=[(1, 2), (2, 3)]))
    cache.move(BlockMoves(copy=[(5, 1)]))
    cache.move(BlockMoves(swap_in=[(2, 6)]))
    assert_blocks([layer.float() for layer in cache.layers], moved(device, device, [(5, 1), (1, 6)]))


def test_a_host_without_blocks_is_left_alone() -> None:
    cache = KVCache(SHAPE, BLOCK_SIZE, 2, 0, torch.float32, CPU)
    cache.move(BlockMoves())
    assert all(layer.shape[1] == 0 for layer in cache.host_layers)
