"""Layers that a group shares compute what whole layers compute, from the same checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from thread_ranks import on_ranks
from torch import Tensor, nn

from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.load_weights import load_weights
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.feed_forward import FeedForward
from transept.core.layers.linear import ColumnParallelLinear, QKVParallelLinear, RowParallelLinear
from transept.core.layers.packing import WeightPacker
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError

HIDDEN, HEAD_DIM, VOCABULARY = 48, 8, 101
SIZES = [1, 2, 3, 4]
ALL = WeightMap(rules=((r"(.*)", r"\1"),))


@pytest.fixture(params=[False, True], ids=["parameters", "packed"])
def loaded(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Loads a module of a group from a checkpoint of random numbers, which is made for the whole module once."""
    (tmp_path / "config.json").write_text("{}")

    def load(build: Callable[[ParallelGroup], Any], group: ParallelGroup) -> Any:
        module = build(group).requires_grad_(False)
        packer = WeightPacker(module, "cpu") if request.param else None
        load_weights(module, open_checkpoint(tmp_path), ALL, packer)
        return module

    def save(build: Callable[[ParallelGroup], Any]) -> None:
        generator = torch.Generator().manual_seed(0)
        shapes = {name: parameter.shape for name, parameter in build(ParallelGroup()).named_parameters()}
        save_file(
            {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()},
            tmp_path / "model.safetensors",
        )

    load.save = save  # type: ignore[attr-defined]
    return load


def assert_equal(
    loaded: Any, build: Callable[[ParallelGroup], nn.Module], run: Callable[[Any], Any], size: int
) -> None:
    """Every rank's results are those of the whole module, whose checkpoint they share."""
    loaded.save(build)
    expected = run(loaded(build, ParallelGroup()))
    modules = [loaded(build, ParallelGroup(rank, size)) for rank in range(size)]
    for module in modules:
        assert all(len(parameter) for parameter in module.parameters())

    def of_rank(group: ParallelGroup) -> Any:
        module = modules[group.rank]
        for each in module.modules():
            if hasattr(each, "_group"):
                each._group = group  # with its exchange
        return run(module)

    for result in on_ranks(size, of_rank):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=2e-5)


class Gated(nn.Module):
    """A value and its gate from one matrix, as Moonshine has it."""

    def __init__(self, group: ParallelGroup) -> None:
        super().__init__()
        self.fc1 = ColumnParallelLinear(HIDDEN, 48, stacked={"x": 24, "gate": 24}, group=group)
        self.fc2 = RowParallelLinear(24, HIDDEN, group=group)

    def forward(self, x: Tensor) -> Tensor:
        x, gate = self.fc1(x).chunk(2, dim=-1)
        return self.fc2(x * gate.relu())


class Tied(nn.Module):
    def __init__(self, group: ParallelGroup) -> None:
        super().__init__()
        self.embed = VocabParallelEmbedding(VOCABULARY, HIDDEN, group=group)
        self.head = VocabParallelHead(VOCABULARY, HIDDEN, group=group, weight=self.embed.weight)

    def named_parameters(self, *args: Any, **options: Any) -> Any:
        return ((name, each) for name, each in super().named_parameters(*args, **options) if name != "head.weight")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("rows", [1, 7])
def test_feed_forward(loaded: Any, size: int, gated: bool, rows: int) -> None:
    x = torch.randn(rows, HIDDEN, generator=torch.Generator().manual_seed(1))
    assert_equal(
        loaded,
        lambda group: FeedForward(HIDDEN, 96, "gelu", gated=gated, group=group),
        lambda module: module(x),
        size,
    )


@pytest.mark.parametrize("size", SIZES)
def test_parts_of_one_matrix_are_each_split(loaded: Any, size: int) -> None:
    x = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(1))
    assert_equal(loaded, Gated, lambda module: module(x), size)


@pytest.mark.parametrize("size", SIZES)
def test_a_tied_vocabulary_that_does_not_divide(loaded: Any, size: int) -> None:
    ids = torch.tensor([0, 33, 34, 50, 51, VOCABULARY - 1, 7])
    hidden = torch.randn(3, HIDDEN, generator=torch.Generator().manual_seed(1))
    assert_equal(loaded, Tied, lambda module: (module.embed(ids), module.head(hidden)), size)


@pytest.mark.parametrize("heads", [(12, 12), (24, 12)])
@pytest.mark.parametrize("size", SIZES)
def test_heads_of_all_ranks_are_those_of_the_layer(loaded: Any, size: int, heads: tuple[int, int]) -> None:
    def build(group: ParallelGroup) -> QKVParallelLinear:
        return QKVParallelLinear(HIDDEN, heads[0], HEAD_DIM, num_kv_heads=heads[1], group=group)

    loaded.save(build)
    x = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(1))
    expected = loaded(build, ParallelGroup())(x)
    parts = [loaded(build, ParallelGroup(rank, size))(x) for rank in range(size)]
    for whole, *shards in zip(expected, *parts, strict=True):
        torch.testing.assert_close(torch.cat(shards, dim=1), whole, rtol=1e-5, atol=2e-5)


def test_a_rank_holds_no_more_than_its_part() -> None:
    for rank in range(4):
        layer = FeedForward(HIDDEN, 96, "gelu", group=ParallelGroup(rank, 4))
        assert layer.fc1.weight.shape == (24, HIDDEN)
        assert layer.fc2.weight.shape == (HIDDEN, 24)
        assert layer.fc2.bias is not None
        assert layer.fc2.bias.shape == (HIDDEN,)
        assert len(VocabParallelEmbedding(VOCABULARY, HIDDEN, group=ParallelGroup(rank, 4)).weight) in (25, 26)


def test_a_wrong_shape_is_told_in_the_checkpoints_terms(loaded: Any) -> None:
    loaded.save(lambda group: FeedForward(HIDDEN, 80, "gelu", group=group))
    with pytest.raises(CheckpointError, match=r"fc2.weight: \[48, 80\] in the checkpoint, \[48, 96\] in the model"):
        loaded(lambda group: FeedForward(HIDDEN, 96, "gelu", group=group), ParallelGroup(1, 2))


def test_sums_are_added_in_the_order_of_ranks() -> None:
    """In float32 the order shows: (1e8 + 1) - 1e8 is 0, and 1 would come of another order."""
    values = [1e8, 1.0, -1e8]
    sums = on_ranks(3, lambda group: group.all_reduce(torch.tensor([values[group.rank]])))
    assert [float(each) for each in sums] == [0.0] * 3
