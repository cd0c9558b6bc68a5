"""Vocabulary layers against torch.nn.functional."""

import pytest
import torch
from torch.nn import functional as F

from transept.core.kernels.cpu.gemm.panels import pack_floats
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel.group import ParallelGroup
from transept.errors import PluginError

GROUP = ParallelGroup()


def test_embedding_looks_up_rows() -> None:
    torch.manual_seed(0)
    embedding = VocabParallelEmbedding(30, 8, group=GROUP)
    torch.nn.init.normal_(embedding.weight)
    token_ids = torch.tensor([0, 29, 3, 3])
    assert torch.equal(embedding(token_ids), torch.stack([embedding.weight[i] for i in (0, 29, 3, 3)]))


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_vectors_of_a_table_are_added(shape: tuple[int, ...], is_packed: bool, elsewhere: bool) -> None:
    torch.manual_seed(0)
    embedding, table = VocabParallelEmbedding(30, 8, group=GROUP), torch.randn(5, 8)
    torch.nn.init.normal_(embedding.weight)
    weight, embedding.elsewhere = embedding.weight.clone(), elsewhere
    if is_packed:
        embedding.packed = PackedWeight(pack_floats(weight, torch.float32), weight.shape)
    token_ids, positions = torch.tensor([0, 29, 3, 3]).view(shape), torch.tensor([4, 0, 1, 2]).view(shape)
    vectors = torch.zeros(*shape, 8) if elsewhere else weight[token_ids]
    assert torch.equal(embedding(token_ids), vectors)
    assert torch.equal(embedding(token_ids, table, positions), vectors + table[positions])
    assert embedding(token_ids, table.double(), positions).dtype is torch.float32
    for given in ((table, None), (None, positions)):
        with pytest.raises(PluginError, match="both a table and positions in it, or with neither"):
            embedding(token_ids, *given)


def test_a_table_that_is_split_over_ranks_is_refused() -> None:
    embedding = VocabParallelEmbedding(30, 8, group=GROUP)
    split = VocabParallelEmbedding(30, 8, group=ParallelGroup(0, 2)).weight
    with pytest.raises(PluginError, match="split over the ranks"):
        embedding(torch.tensor([0]), split, torch.tensor([0]))


@pytest.mark.parametrize("rows", [1, 2, 5, 40])
def test_tied_head_shares_the_parameter(rows: int) -> None:
    torch.manual_seed(0)
    embedding = VocabParallelEmbedding(30, 8, group=GROUP)
    head = VocabParallelHead(30, 8, group=GROUP, weight=embedding.weight)
    assert head.weight is embedding.weight
    torch.nn.init.normal_(embedding.weight)
    hidden = torch.randn(rows, 8)
    torch.testing.assert_close(head(hidden), F.linear(hidden, embedding.weight), rtol=1e-5, atol=1e-5)


def test_untied_head_has_a_matrix_of_its_own() -> None:
    torch.manual_seed(0)
    head = VocabParallelHead(30, 8, group=GROUP)
    assert [(name, tuple(weight.shape)) for name, weight in head.named_parameters()] == [("weight", (30, 8))]
    torch.nn.init.normal_(head.weight)
    hidden = torch.randn(3, 8)
    torch.testing.assert_close(head(hidden), F.linear(hidden, head.weight), rtol=1e-5, atol=1e-5)
