"""Relative position biases against transformers' T5."""

import pytest
import torch
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from transept.core.attention.biases import RelativePositionBias, bias_block

BUCKETS = [(32, 128), (32, 64), (16, 128), (64, 256), (8, 20), (32, 100), (10, 50), (128, 512)]


@pytest.mark.parametrize(("num_buckets", "max_distance"), BUCKETS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_are_those_of_t5(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    distance = torch.arange(-5000, 5001)
    bias = RelativePositionBias(torch.zeros(num_buckets, 1), bidirectional, max_distance)
    expected = T5Attention._relative_position_bucket(distance, bidirectional, num_buckets, max_distance)
    assert torch.equal(bias.buckets(distance), expected)


@pytest.mark.parametrize(("num_buckets", "max_distance"), BUCKETS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_materialized_bias_is_that_of_t5(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    config = T5Config(
        d_model=32,
        d_kv=8,
        num_heads=4,
        is_decoder=not bidirectional,
        relative_attention_num_buckets=num_buckets,
        relative_attention_max_distance=max_distance,
    )
    attention = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    table = attention.relative_attention_bias.weight.data.normal_()
    bias = RelativePositionBias(table, bidirectional, max_distance)
    with torch.no_grad():
        expected = attention.compute_bias(600, 600)[0]
        last = attention.compute_bias(1, 600, past_seen_tokens=599)[0]
    assert torch.equal(bias.materialize(torch.arange(600), torch.arange(600)), expected)
    assert torch.equal(bias.materialize(torch.tensor([599]), torch.arange(600)), last)


@pytest.mark.parametrize(("first", "queries", "keys"), [(0, 20, 20), (0, 1, 1), (19, 1, 20), (12, 5, 17)])
def test_both_forms_give_the_same_block(first: int, queries: int, keys: int) -> None:
    torch.manual_seed(0)
    bias = RelativePositionBias(torch.randn(32, 4), bidirectional=False)
    dense = bias.materialize(torch.arange(20), torch.arange(20))
    block = bias_block(bias, first, queries, keys)
    assert block.shape == (4, queries, keys)
    assert torch.equal(block, bias_block(dense, first, queries, keys))
    assert torch.equal(block[1, queries - 1, keys - 1], dense[1, first + queries - 1, keys - 1])
