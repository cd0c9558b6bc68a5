"""Attention with its projections against torch.nn.MultiheadAttention and transformers' T5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from transept.core.attention.attention import Attention, LayerContext, RowsDifferError
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.biases import RelativePositionBias
from transept.core.attention.capture import CaptureRequest, CrossAttentionCapture
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.layers.projected_attention import CrossAttention, SelfAttention
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError, PluginError

HIDDEN, HEADS = 48, 6
LENGTHS = [9, 1, 14]  # of the encoder's sequences
COUNTS = [5, 1, 3]  # of decoder tokens
BLOCK_SIZE = 16
CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def planned(metadata: AttentionMetadata) -> AttentionMetadata:
    CONTEXT.attention_backend.plan(metadata)
    return metadata


def decoder_metadata() -> AttentionMetadata:
    """Whole prefills of prefills: sequence i has block i for self-attention and block 3 + i for cross-attention."""
    starts = [0, 5, 6, 9]
    return planned(
        AttentionMetadata(
            block_size=BLOCK_SIZE,
            query_start_loc=starts,
            seq_lens=COUNTS,
            slot_mapping=torch.tensor([BLOCK_SIZE * i + j for i, count in enumerate(COUNTS) for j in range(count)]),
            block_tables=[[0], [1], [2]],
            cross_query_start_loc=starts,
            cross_seq_lens=LENGTHS,
            cross_block_tables=[[3], [4], [5]],
        )
    )


def with_keys(layer: CrossAttention, encoded: Tensor, cache: Tensor) -> Tensor:
    """The cache with keys and values of every request's encoder output."""
    return with_written(*layer.keys_and_values(encoded), cache)


def with_written(key: Tensor, value: Tensor, cache: Tensor) -> Tensor:
    slots = [BLOCK_SIZE * (3 + i) + j for i, length in enumerate(LENGTHS) for j in range(length)]
    CONTEXT.attention_backend.write(key, value, cache, torch.tensor(slots))
    return cache


def empty_cache(heads: int, head_dim: int) -> Tensor:
    return torch.full((2, 6, BLOCK_SIZE, heads, head_dim), float("nan"))


def assert_same(actual: Tensor, expected: list[Tensor]) -> None:
    torch.testing.assert_close(actual.double(), torch.cat(expected).double(), rtol=1e-5, atol=1e-5)


def reference_of(layer: SelfAttention | CrossAttention) -> nn.MultiheadAttention:
    """Random weights, which are stacked in the same order on both sides. The reference is in float64."""
    reference = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)
    weights = (reference.in_proj_weight, reference.in_proj_bias, reference.out_proj.weight, reference.out_proj.bias)
    places = (layer.qkv_proj.weight, layer.qkv_proj.bias, layer.out_proj.weight, layer.out_proj.bias)
    for weight, place in zip(weights, places, strict=True):
        assert place is not None
        place.copy_(weight.normal_(0.0, 0.3))
    return reference.double()


def test_encoder_self_attention() -> None:
    layer = SelfAttention(HIDDEN, HEADS, AttentionType.ENCODER, context=CONTEXT)
    reference = reference_of(layer)
    x = torch.randn(sum(LENGTHS), HIDDEN)
    expected = [reference(part, part, part, need_weights=False)[0] for part in x.double().split(LENGTHS)]
    assert_same(layer(x, None, planned(AttentionMetadata.for_encoder(LENGTHS))), expected)


def test_decoder_self_attention() -> None:
    layer = SelfAttention(HIDDEN, HEADS, AttentionType.DECODER, context=CONTEXT)
    reference = reference_of(layer)
    x = torch.randn(sum(COUNTS), HIDDEN)
    expected = []
    for part in x.double().split(COUNTS):
        hidden = torch.ones(len(part), len(part), dtype=torch.bool).triu(1)
        expected.append(reference(part, part, part, attn_mask=hidden, need_weights=False)[0])
    assert_same(layer(x, empty_cache(HEADS, HIDDEN // HEADS), decoder_metadata()), expected)


def test_cross_attention() -> None:
    layer = CrossAttention(HIDDEN, HEADS, context=CONTEXT)
    reference = reference_of(layer)
    x, encoder_hidden = torch.randn(sum(COUNTS), HIDDEN), torch.randn(sum(LENGTHS), HIDDEN)
    pairs = zip(x.double().split(COUNTS), encoder_hidden.double().split(LENGTHS), strict=True)
    expected = [reference(part, memory, memory, need_weights=False)[0] for part, memory in pairs]
    cache = with_keys(layer, encoder_hidden, empty_cache(HEADS, HIDDEN // HEADS))
    assert_same(layer(x, cache, decoder_metadata()), expected)


@pytest.mark.parametrize("encoder_hidden", [32, HIDDEN, 80])
def test_cross_attention_to_an_encoder_of_another_width(encoder_hidden: int) -> None:
    layer = CrossAttention(HIDDEN, HEADS, encoder_hidden_size=encoder_hidden, context=CONTEXT)
    reference = nn.MultiheadAttention(HIDDEN, HEADS, kdim=encoder_hidden, vdim=encoder_hidden, batch_first=True)
    for parameter in reference.parameters():
        parameter.normal_(0.0, 0.2)
    if encoder_hidden == HIDDEN:  # PyTorch stacks them then
        query, *rest = reference.in_proj_weight.chunk(3)
    else:
        query, *rest = (reference.q_proj_weight, reference.k_proj_weight, reference.v_proj_weight)
    layer.q_proj.weight.copy_(query)
    layer.kv_proj.weight.copy_(torch.cat(rest))
    layer.q_proj.bias.copy_(reference.in_proj_bias[:HIDDEN])
    layer.kv_proj.bias.copy_(reference.in_proj_bias[HIDDEN:])
    layer.out_proj.load_state_dict(reference.out_proj.state_dict())
    x, encoded = torch.randn(sum(COUNTS), HIDDEN), torch.randn(sum(LENGTHS), encoder_hidden)
    reference = reference.double()
    pairs = zip(x.double().split(COUNTS), encoded.double().split(LENGTHS), strict=True)
    expected = [reference(part, memory, memory, need_weights=False)[0] for part, memory in pairs]
    cache = with_keys(layer, encoded, empty_cache(HEADS, HIDDEN // HEADS))
    assert_same(layer(x, cache, decoder_metadata()), expected)


def test_queries_keys_and_values_may_have_biases_of_their_own() -> None:
    for layer in (
        SelfAttention(HIDDEN, HEADS, AttentionType.ENCODER, qkv_bias=False, context=CONTEXT),
        CrossAttention(HIDDEN, HEADS, qkv_bias=False, context=CONTEXT),
    ):
        assert {*layer.state_dict()} == {"qkv_proj.weight", "out_proj.weight", "out_proj.bias"}
    layer = CrossAttention(HIDDEN, HEADS, encoder_hidden_size=8, bias=False, qkv_bias=True, context=CONTEXT)
    names = {"q_proj.weight", "q_proj.bias", "kv_proj.weight", "kv_proj.bias", "out_proj.weight"}
    assert {*layer.state_dict()} == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"softcap": 0}, "softcap of attention must be a number above 0, or None, not 0"),
        ({"softcap": "50"}, "softcap .* not '50'"),
        ({"window": 0}, r"window of attention must be an integer of at least 1, a pair .*, or None, not 0"),
        ({"window": (4, -1)}, r"window .* not \(4, -1\)"),
        ({"window": 2.5}, "window .* not 2.5"),
        ({"rotary": -1.0}, "theta of rotary positions must be a number above 0, not -1.0"),
        ({"rotary": 1e4, "head_dim": 7}, "even size, and these have 7 dimensions"),
    ],
)
def test_values_that_cannot_be_meant_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        SelfAttention(HIDDEN, HEADS, AttentionType.DECODER, context=CONTEXT, **options)


def test_rotary_positions_have_to_be_given() -> None:
    layer = SelfAttention(HIDDEN, HEADS, AttentionType.ENCODER, rotary=1e4, context=CONTEXT)
    with pytest.raises(PluginError, match="call it with positions="):
        layer(torch.randn(sum(LENGTHS), HIDDEN), None, planned(AttentionMetadata.for_encoder(LENGTHS)))


@pytest.mark.parametrize("softcap", [None, 0.7])
def test_captured_weights_are_those_that_values_are_multiplied_by(softcap: float | None) -> None:
    attention = Attention(8, softcap=softcap, context=CONTEXT)
    query, key, value = torch.randn(sum(COUNTS), HEADS, 8), *torch.randn(2, sum(LENGTHS), 3, 8)
    cache, step = with_written(key, value, empty_cache(3, 8)), decoder_metadata()
    rows, first, head = slice(6, 9), LENGTHS[0] + LENGTHS[1], 4  # of the last request; its block is 5
    slots = torch.arange(5 * BLOCK_SIZE, 5 * BLOCK_SIZE + LENGTHS[2])
    step.capture = CrossAttentionCapture(
        {cache.data_ptr(): 1}, {"last": CaptureRequest(rows, slots, ((1, head), (0, head)))}
    )
    out = attention(query, None, None, cache, step, AttentionType.ENCODER_DECODER)
    assert {*step.capture.weights["last"]} == {(1, head)}
    weights = step.capture.weights["last"][1, head]
    assert_same(weights @ value[first:, head // 2], [out[rows].unflatten(1, (HEADS, 8))[:, head]])


def test_cross_attention_has_no_window() -> None:
    attention = Attention(8, window=4, context=CONTEXT)
    query = torch.randn(sum(COUNTS), HEADS, 8)
    with pytest.raises(PluginError, match="cross-attention cannot have a window"):
        attention(query, None, None, empty_cache(HEADS, 8), decoder_metadata(), AttentionType.ENCODER_DECODER)


def test_cross_attention_is_given_no_keys() -> None:
    x = torch.randn(sum(COUNTS), HEADS, 8)
    given = (empty_cache(HEADS, 8), decoder_metadata(), AttentionType.ENCODER_DECODER)
    with pytest.raises(PluginError, match=r"pass None, and return the layers .* from cross_attentions\(\)"):
        Attention(8, context=CONTEXT)(x, x, x, *given)


@pytest.mark.parametrize("num_kv_heads", [1, 3])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_query_heads_may_share_keys_and_values(kind: str, num_kv_heads: int) -> None:
    """As if each had its own, equal to the others' of its group."""
    attn_type = AttentionType.ENCODER if kind == "encoder" else AttentionType.DECODER
    layers = [
        CrossAttention(HIDDEN, HEADS, num_kv_heads=heads, context=CONTEXT)
        if kind == "cross"
        else SelfAttention(HIDDEN, HEADS, attn_type, num_kv_heads=heads, context=CONTEXT)
        for heads in (num_kv_heads, None)
    ]
    shared, apart = layers
    head_dim, group = HIDDEN // HEADS, HEADS // num_kv_heads
    for name in ("weight", "bias"):
        given = getattr(shared.qkv_proj, name).normal_(0.0, 0.3)
        query, *rest = given.split([HIDDEN, num_kv_heads * head_dim, num_kv_heads * head_dim])
        rest = [each.unflatten(0, (num_kv_heads, head_dim)).repeat_interleave(group, 0).flatten(0, 1) for each in rest]
        getattr(apart.qkv_proj, name).copy_(torch.cat([query, *rest]))
        getattr(apart.out_proj, name).copy_(getattr(shared.out_proj, name).normal_(0.0, 0.3))
    outputs = []
    for layer, heads in zip(layers, (num_kv_heads, HEADS), strict=True):
        cache, generator = empty_cache(heads, head_dim), torch.Generator().manual_seed(1)
        x = torch.randn(sum(LENGTHS if kind == "encoder" else COUNTS), HIDDEN, generator=generator)
        if kind == "encoder":
            outputs.append(layer(x, None, planned(AttentionMetadata.for_encoder(LENGTHS))))
        elif kind == "decoder":
            outputs.append(layer(x, cache, decoder_metadata()))
        else:
            encoded = torch.randn(sum(LENGTHS), HIDDEN, generator=generator)
            outputs.append(layer(x, with_keys(layer, encoded, cache), decoder_metadata()))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attn_type", [AttentionType.ENCODER, AttentionType.DECODER])
def test_heads_of_another_width_without_biases_unscaled_and_with_relative_positions(attn_type: AttentionType) -> None:
    decoder = attn_type is AttentionType.DECODER
    config = T5Config(d_model=HIDDEN, d_kv=10, num_heads=3, is_decoder=decoder, attn_implementation="eager")
    reference = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()
    layer = SelfAttention(HIDDEN, 3, attn_type, head_dim=10, bias=False, scale=1.0, context=CONTEXT)
    assert len(list(layer.parameters())) == 2
    layer.qkv_proj.weight.copy_(
        torch.cat([part.weight.normal_(0.0, 0.2) for part in (reference.q, reference.k, reference.v)])
    )
    layer.out_proj.weight.copy_(reference.o.weight.normal_(0.0, 0.2))
    bias = RelativePositionBias(reference.relative_attention_bias.weight.normal_(), bidirectional=not decoder)

    counts = COUNTS if decoder else LENGTHS
    metadata = decoder_metadata() if decoder else planned(AttentionMetadata.for_encoder(LENGTHS))
    x = torch.randn(sum(counts), HIDDEN)
    expected = []
    for part in x.split(counts):
        hidden = torch.zeros(len(part), len(part))
        if decoder:
            hidden = hidden.masked_fill(torch.ones_like(hidden).bool().triu(1), float("-inf"))
        expected.append(reference(part[None], mask=hidden[None, None])[0][0])
    assert_same(layer(x, empty_cache(3, 10) if decoder else None, metadata, bias), expected)


@pytest.mark.parametrize("rows", [8, 10])  # of 9
@pytest.mark.parametrize("attn_type", [AttentionType.DECODER, AttentionType.ENCODER_DECODER])
def test_a_decoder_s_rows_are_those_of_its_tokens(attn_type: AttentionType, rows: int) -> None:
    x, cache = torch.randn(rows, HEADS, HIDDEN // HEADS), empty_cache(HEADS, HIDDEN // HEADS)
    new = (x, x) if attn_type is AttentionType.DECODER else (None, None)
    with pytest.raises(RowsDifferError, match=f"{rows} tokens, and its metadata describes 9"):
        Attention(HIDDEN // HEADS, context=CONTEXT)(x, *new, cache, decoder_metadata(), attn_type)


@pytest.mark.parametrize("rows", [23, 25])  # of 24
def test_an_encoder_s_rows_are_those_of_its_tokens(rows: int) -> None:
    x, metadata = torch.randn(rows, HIDDEN), planned(AttentionMetadata.for_encoder(LENGTHS))
    with pytest.raises(RowsDifferError, match=f"{rows} tokens, and its metadata describes 24"):
        SelfAttention(HIDDEN, HEADS, AttentionType.ENCODER, context=CONTEXT).requires_grad_(False)(x, None, metadata)
