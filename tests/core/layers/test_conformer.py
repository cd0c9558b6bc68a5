"""ConformerLayer and Subsampling2d beside transformers' Parakeet, whose encoder Canary and Cohere Transcribe share."""

from itertools import accumulate, pairwise

import pytest
import torch
from transformers import ParakeetEncoderConfig
from transformers.models.parakeet.modeling_parakeet import ParakeetEncoder

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.metadata import AttentionMetadata
from transept.core.layers import conformer
from transept.core.layers.conformer import ConformerConfig, ConformerLayer
from transept.core.layers.subsampling import Subsampling2d
from transept.core.parallel.group import ParallelGroup

HIDDEN, HEADS, BINS = 136, 2, 24  # more than one block of channels
LENGTHS = [70, 1, 9]  # encoder tokens: more than one block of tokens
STARTS = [0, *accumulate(LENGTHS)]
CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())


@pytest.fixture(scope="module")
def theirs() -> ParakeetEncoder:
    torch.manual_seed(0)
    config = ParakeetEncoderConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        intermediate_size=48,
        num_mel_bins=BINS,
        subsampling_conv_channels=8,
        initializer_range=0.2,
        scale_input=False,
    )
    encoder = ParakeetEncoder(config).eval()
    norm = encoder.layers[0].conv.norm
    for tensor in (norm.weight, norm.running_var):
        torch.nn.init.uniform_(tensor, 0.5, 2.0)
    for tensor in (
        norm.bias,
        norm.running_mean,
        encoder.layers[0].self_attn.bias_u,
        encoder.layers[0].self_attn.bias_v,
    ):
        torch.nn.init.normal_(tensor)
    return encoder


NAMES = {
    "feed_forward1.linear1": "ffn1.fc1",
    "feed_forward1.linear2": "ffn1.fc2",
    "feed_forward2.linear1": "ffn2.fc1",
    "feed_forward2.linear2": "ffn2.fc2",
    "norm_feed_forward1": "ffn1_norm",
    "norm_feed_forward2": "ffn2_norm",
    "norm_self_att": "self_attn_norm",
    "norm_conv": "conv_norm",
    "norm_out": "out_norm",
    "conv.pointwise_conv1": "conv.in_proj",
    "conv.depthwise_conv": "conv.conv",
    "conv.pointwise_conv2": "conv.out_proj",
    "self_attn.relative_k_proj": "self_attn.position_proj",
    "self_attn.bias_u": "self_attn.content_bias",
    "self_attn.bias_v": "self_attn.position_bias",
    "self_attn.o_proj": "self_attn.out_proj",
}


def layer_with(theirs: torch.nn.Module, **options: object) -> ConformerLayer:
    """Make a layer with the weights of a Parakeet block."""
    layer = ConformerLayer(ConformerConfig(HIDDEN, HEADS, 48, 9, longest=max(LENGTHS) + 3, **options), CONTEXT)
    state = {key: tensor for key, tensor in theirs.state_dict().items() if not key.endswith("num_batches_tracked")}
    for theirs_name, name in NAMES.items():
        state = {key.replace(theirs_name, name): tensor for key, tensor in state.items()}
    for kind in ("weight", "bias"):
        parts = [state.pop(f"self_attn.{part}_proj.{kind}") for part in "qkv"]
        state[f"self_attn.qkv_proj.{kind}"] = torch.cat(parts)
    for name in ("conv.in_proj.weight", "conv.out_proj.weight"):
        state[name] = state[name][..., 0]
    layer.load_state_dict(state)
    return layer.eval()


@pytest.mark.parametrize("kernels", [True, False])
@torch.inference_mode()
def test_parakeets_layer(theirs: ParakeetEncoder, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kernels:
        monkeypatch.setattr(conformer.GATE_AND_CONVOLVE, "kernels", ())
    layer = layer_with(theirs.layers[0])
    x = torch.randn(STARTS[-1], HIDDEN)
    metadata = AttentionMetadata.for_encoder(LENGTHS)
    CONTEXT.attention_backend.plan(metadata)
    ours = layer(x.clone(), metadata)
    for start, end in pairwise(STARTS):
        own = x[start:end][None]
        expected = theirs.layers[0](own, position_embeddings=theirs.encode_positions(own))
        torch.testing.assert_close(ours[start:end], expected[0], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_parakeets_subsampling(theirs: ParakeetEncoder, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Subsampling2d(BINS, HIDDEN, channels=8)
    layer.load_state_dict(theirs.subsampling.state_dict())
    features = [torch.randn(frames, BINS) for frames in (203, 1, 8, 9, 64)]
    expected = torch.cat([theirs.subsampling(each[None])[0] for each in features])
    assert len(expected) == sum(Subsampling2d.num_tokens(len(each)) for each in features)
    torch.testing.assert_close(layer(features), expected)
    monkeypatch.setattr("transept.core.layers.subsampling.FRAMES_AT_ONCE", 64)
    torch.testing.assert_close(layer(features), expected)
