"""Attention with embeddings of distances, beside the encoders of transformers that have them."""

from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from transformers import ParakeetEncoderConfig, SeamlessM4Tv2Config, SpeechT5Config
from transformers.models.parakeet.modeling_parakeet import (
    ParakeetEncoderAttention,
    ParakeetEncoderRelPositionalEncoding,
)
from transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2 import SeamlessM4Tv2ConformerSelfAttention
from transformers.models.speecht5.modeling_speecht5 import SpeechT5Attention, SpeechT5RelativePositionalEncoding

from transept.core.attention import relative_keys
from transept.core.attention.attention import Attention, LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.attention.relative_keys import RelativeKeys
from transept.core.parallel.group import ParallelGroup
from transept.errors import PluginError

HIDDEN, HEADS, HEAD_DIM = 48, 6, 8
LENGTHS = [9, 1, 23]
STARTS = [0, *accumulate(LENGTHS)]
CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())


def attended(
    projections: list[torch.nn.Linear],
    x: torch.Tensor,
    keys: RelativeKeys,
    context: LayerContext = CONTEXT,
    **options: Any,
) -> torch.Tensor:
    query, key, value = (projection(x).unflatten(-1, (HEADS, HEAD_DIM)) for projection in projections)
    metadata = AttentionMetadata.for_encoder(LENGTHS)
    context.attention_backend.plan(metadata)
    return Attention(HEAD_DIM, context=context, **options)(
        query, key, value, None, metadata, AttentionType.ENCODER, keys
    )


def by_pytorch(patch: pytest.MonkeyPatch, queries: int) -> None:
    """Compute without the CPU's kernel, so many queries at a time."""
    patch.setattr(relative_keys, "QUERIES_AT_A_TIME", queries)
    patch.setattr(relative_keys.RELATIVE_ATTENTION, "kernels", ())


@pytest.mark.parametrize("queries", [None, 4, 512])
@torch.inference_mode()
def test_speecht5s_attention(queries: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if queries is not None:
        by_pytorch(monkeypatch, queries)
    torch.manual_seed(0)
    farthest = SpeechT5Config(encoder_max_relative_position=7).encoder_max_relative_position
    embedding = SpeechT5RelativePositionalEncoding(HEAD_DIM, farthest)
    theirs = SpeechT5Attention(HIDDEN, HEADS)
    x = torch.randn(STARTS[-1], HIDDEN)
    # Its rows are by query minus key.
    keys = RelativeKeys(embedding.pe_k.weight.flip(0), before=farthest - 1)
    ours = theirs.out_proj(attended([theirs.q_proj, theirs.k_proj, theirs.v_proj], x, keys))
    for start, end in pairwise(STARTS):
        own = x[start:end][None]
        expected, _ = theirs(own, position_bias=embedding(own))
        torch.testing.assert_close(ours[start:end], expected[0])


@torch.inference_mode()
def test_seamless_attention() -> None:
    torch.manual_seed(0)
    config = SeamlessM4Tv2Config(
        hidden_size=HIDDEN,
        speech_encoder_attention_heads=HEADS,
        left_max_position_embeddings=11,
        right_max_position_embeddings=3,
    )
    config._attn_implementation = "eager"
    theirs = SeamlessM4Tv2ConformerSelfAttention(config)
    x = torch.randn(STARTS[-1], HIDDEN)
    keys = RelativeKeys(theirs.distance_embedding.weight, before=11)
    ours = theirs.linear_out(attended([theirs.linear_q, theirs.linear_k, theirs.linear_v], x, keys))
    for start, end in pairwise(STARTS):
        torch.testing.assert_close(ours[start:end], theirs(x[start:end][None])[0][0])


@pytest.mark.parametrize("window", [None, (5, 2)])
@pytest.mark.parametrize("quantization", [None, "bfloat16"])
@pytest.mark.parametrize("queries", [None, 4, 512])
@torch.inference_mode()
def test_parakeets_attention(
    queries: int | None, quantization: str | None, window: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if queries is not None:
        by_pytorch(monkeypatch, queries)
    torch.manual_seed(0)
    config = ParakeetEncoderConfig(hidden_size=HIDDEN, num_attention_heads=HEADS)
    config._attn_implementation = "eager"
    theirs = ParakeetEncoderAttention(config, 0).eval()
    torch.nn.init.normal_(theirs.bias_u)
    torch.nn.init.normal_(theirs.bias_v)
    x = torch.randn(STARTS[-1], HIDDEN)
    encode = ParakeetEncoderRelPositionalEncoding(config)
    longest = max(LENGTHS) + 2  # more distances than any sequence has
    table = theirs.relative_k_proj(encode(torch.zeros(1, longest, HIDDEN))[0]).unflatten(-1, (HEADS, HEAD_DIM))
    keys = RelativeKeys(table.transpose(0, 1), longest - 1, theirs.bias_u, theirs.bias_v)
    context = LayerContext(attention_backend=TorchBackend(quantization), group=ParallelGroup())
    ours = theirs.o_proj(attended([theirs.q_proj, theirs.k_proj, theirs.v_proj], x, keys, context, window=window))
    for start, end in pairwise(STARTS):
        own = x[start:end][None]
        distances = torch.arange(end - start) - torch.arange(end - start)[:, None]
        seen = None if window is None else ((distances >= -window[0]) & (distances <= window[1]))[None, None]
        expected, _ = theirs(own, encode(own), seen)
        tolerances = {} if quantization is None else {"rtol": 0.03, "atol": 0.03}
        torch.testing.assert_close(ours[start:end], expected[0], **tolerances)


def test_a_decoder_has_none() -> None:
    attention = Attention(HEAD_DIM, context=CONTEXT)
    x, keys = torch.zeros(1, HEADS, HEAD_DIM), RelativeKeys(torch.zeros(3, HEAD_DIM), 1)
    with pytest.raises(PluginError, match="an encoder's self-attention"):
        attention(x, x, x, None, AttentionMetadata.for_encoder([1]), AttentionType.DECODER, keys)
