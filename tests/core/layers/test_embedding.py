"""Vocabulary layers against torch.nn.functional."""

import pytest
import torch
from torch.nn import functional as F

from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.parallel_group import ParallelGroup

GROUP = ParallelGroup()


def test_embedding_looks_up_rows() -> None:
    torch.manual_seed(0)
    embedding = VocabParallelEmbedding(30, 8, group=GROUP)
    torch.nn.init.normal_(embedding.weight)
    token_ids = torch.tensor([0, 29, 3, 3])
    assert torch.equal(embedding(token_ids), torch.stack([embedding.weight[i] for i in (0, 29, 3, 3)]))


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
