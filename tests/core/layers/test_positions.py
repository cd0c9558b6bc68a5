"""Computed positions beside those of transformers' models from fairseq."""

import pytest
import torch
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

from transept.core.layers.positions import fairseq_sinusoids


@pytest.mark.parametrize(("width", "padding_id"), [(48, 1), (33, 0), (8, 4)])
def test_sinusoids_of_fairseq(width: int, padding_id: int) -> None:
    table = M2M100SinusoidalPositionalEmbedding.get_embedding(padding_id + 1 + 200, width, padding_id)
    torch.testing.assert_close(fairseq_sinusoids(200, width, padding_id), table)
