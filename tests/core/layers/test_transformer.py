"""Encoder and decoder layers against PyTorch's and T5Gemma's, and steps that decode against the same in float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from interruptions import interrupted_after
from torch import Tensor, nn
from transformers import BartConfig, T5GemmaConfig
from transformers.masking_utils import sliding_window_bidirectional_overlay, sliding_window_overlay
from transformers.models.t5gemma.modeling_t5gemma import (
    T5GemmaDecoderLayer,
    T5GemmaEncoderLayer,
    T5GemmaRotaryEmbedding,
)

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.biases import RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.dispatch import DecoderLayersKernel, DecodeStep
from transept.core.layers.linear import Linear
from transept.core.layers.norm import RMSNorm
from transept.core.layers.packing import WeightPacker
from transept.core.layers.transformer import DecoderLayer, DecoderLayers, EncoderLayer, EncoderLayers, LayerConfig
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError, PluginError

HIDDEN, HEADS, INNER, BLOCK_SIZE = 48, 6, 80, 16
CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())
LENGTHS, ENCODED = [5, 3], [40, 9]  # tokens of the decoder's and the encoder's sequences


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.inference_mode():
        yield


def config(pre_norm: bool, **options: object) -> LayerConfig:
    return LayerConfig(HIDDEN, HEADS, INNER, pre_norm=pre_norm, **{"activation": "gelu", **options})


def metadata(cached: list[int]) -> AttentionMetadata:
    """What follows the cached tokens of two sequences in blocks 0 and 1, their encoders' in 2 to 5."""
    counts = [length - before for length, before in zip(LENGTHS, cached, strict=True)]
    starts = [0, counts[0], sum(counts)]
    step = AttentionMetadata(
        block_size=BLOCK_SIZE,
        query_start_loc=starts,
        seq_lens=LENGTHS,
        slot_mapping=torch.tensor(
            [BLOCK_SIZE * i + j for i in range(2) for j in range(cached[i], LENGTHS[i])], dtype=torch.int64
        ),
        block_tables=[[0], [1]],
        cross_query_start_loc=starts,
        cross_seq_lens=ENCODED,
        cross_block_tables=[[5, 2, 3], [4]],
    )
    CONTEXT.attention_backend.plan(step)
    return step


def write_encoded(layer: DecoderLayer, encoded: Tensor, cache: Tensor) -> None:
    """Write keys and values of both encoders' output."""
    places = zip([[5, 2, 3], [4]], ENCODED, strict=True)
    slots = np.concatenate([slots_of(table, length, BLOCK_SIZE) for table, length in places])
    backend = CONTEXT.attention_backend
    backend.write(*layer.cross_attn.keys_and_values(encoded), cache, torch.from_numpy(slots))


def filled(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        parameter.normal_(0.0, 0.3)
    return layer


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    for name in ("weight", "bias"):
        getattr(ours.qkv_proj, name).copy_(getattr(theirs, f"in_proj_{name}"))
        getattr(ours.out_proj, name).copy_(getattr(theirs.out_proj, name))


def copy_plain(pairs: list[tuple[Linear | nn.LayerNorm, nn.Module]]) -> None:
    for ours, theirs in pairs:
        ours.weight.copy_(theirs.weight)
        ours.bias.copy_(theirs.bias)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_encoder_layer(pre_norm: bool) -> None:
    options = {"batch_first": True, "norm_first": pre_norm, "dtype": torch.float64, "activation": "gelu"}
    reference = filled(nn.TransformerEncoderLayer(HIDDEN, HEADS, INNER, 0.0, **options))
    layer = EncoderLayer(config(pre_norm), CONTEXT)
    copy_attention(layer.self_attn, reference.self_attn)
    copy_plain([(layer.ffn.fc1, reference.linear1), (layer.ffn.fc2, reference.linear2)])
    copy_plain([(layer.self_attn_norm, reference.norm1), (layer.ffn_norm, reference.norm2)])
    x = torch.randn(sum(ENCODED), HIDDEN)
    step = AttentionMetadata.for_encoder(ENCODED)
    CONTEXT.attention_backend.plan(step)
    expected = torch.cat([reference(part[None])[0] for part in x.double().split(ENCODED)])
    torch.testing.assert_close(layer(x, step).double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_decoder_layer_prefills_then_decodes(pre_norm: bool) -> None:
    options = {"batch_first": True, "norm_first": pre_norm, "dtype": torch.float64, "activation": "gelu"}
    reference = filled(nn.TransformerDecoderLayer(HIDDEN, HEADS, INNER, 0.0, **options))
    layer = DecoderLayer(config(pre_norm), CONTEXT)
    copy_attention(layer.self_attn, reference.self_attn)
    copy_attention(layer.cross_attn, reference.multihead_attn)
    copy_plain([(layer.ffn.fc1, reference.linear1), (layer.ffn.fc2, reference.linear2)])
    norms = (reference.norm1, reference.norm2, reference.norm3)
    copy_plain(list(zip((layer.self_attn_norm, layer.cross_attn_norm, layer.ffn_norm), norms, strict=True)))

    x, encoded = torch.randn(sum(LENGTHS), HIDDEN), torch.randn(sum(ENCODED), HIDDEN)
    expected = [
        reference(part[None], memory[None], tgt_mask=torch.ones(len(part), len(part)).triu(1).bool())[0]
        for part, memory in zip(x.double().split(LENGTHS), encoded.double().split(ENCODED), strict=True)
    ]
    cache = torch.full((2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS), float("nan"))
    write_encoded(layer, encoded, cache)
    whole = layer(x, cache, metadata([0, 0]))
    torch.testing.assert_close(whole.double(), torch.cat(expected), rtol=1e-4, atol=1e-4)

    last = metadata([length - 1 for length in LENGTHS])
    assert CONTEXT.attention_backend.decode_step(last, None) is not None
    cache[:, 0, LENGTHS[0] - 1] = cache[:, 1, LENGTHS[1] - 1] = float("nan")  # to be written again
    decoded = layer(x[[4, 7]], cache, last)
    torch.testing.assert_close(decoded.double(), torch.stack([part[-1] for part in expected]), rtol=1e-4, atol=1e-4)


GEMMA = {
    "activation": "gelu_pytorch_tanh",
    "norm": partial(RMSNorm, eps=1e-6, weight_offset=1.0),
    "sandwich_norm": True,
    "gated": True,
    "num_kv_heads": 3,
    "bias": False,
    "softcap": 2.0,
    "rotary": 100.0,
}
OTHER_HIDDEN = 60  # of the encoder that T5Gemma's decoder attends to
WINDOW = 3


def gemma_config() -> T5GemmaConfig:
    side = {
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 3,
        "head_dim": HIDDEN // HEADS,
        "query_pre_attn_scalar": HIDDEN // HEADS,
        "attn_logit_softcapping": 2.0,
        "sliding_window": WINDOW,
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
        "attn_implementation": "eager",
    }
    config = T5GemmaConfig(encoder={**side, "hidden_size": OTHER_HIDDEN}, decoder=side)
    config.decoder._attn_implementation = "eager"
    return config


def copy_gemma(ours: nn.Module, theirs: nn.Module) -> None:
    """Weights of T5Gemma's layer in float32."""
    stacked = {
        "self_attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attn.out_proj": ["self_attn.o_proj"],
        "cross_attn.q_proj": ["cross_attn.q_proj"],
        "cross_attn.kv_proj": ["cross_attn.k_proj", "cross_attn.v_proj"],
        "cross_attn.out_proj": ["cross_attn.o_proj"],
        "ffn.fc1": ["mlp.gate_proj"],
        "ffn.gate": ["mlp.up_proj"],
        "ffn.fc2": ["mlp.down_proj"],
    }
    for name, sublayer in (("self_attn", "self_attn"), ("cross_attn", "cross_attn"), ("ffn", "feedforward")):
        stacked[f"{name}_norm"] = [f"pre_{sublayer}_layernorm"]
        stacked[f"{name}_post_norm"] = [f"post_{sublayer}_layernorm"]
    for name, parameter in ours.named_parameters():
        parts = stacked[name.removesuffix(".weight")]
        parameter.copy_(torch.cat([theirs.get_submodule(part).weight for part in parts]))


def gemma_mask(length: int, window: int | None, causal: bool) -> Tensor:
    """What transformers adds to scores, made by its own function of positions."""
    overlay = sliding_window_overlay if causal else sliding_window_bidirectional_overlay
    seen = torch.tensor([[window is None or overlay(window)(0, 0, q, k) for k in range(length)] for q in range(length)])
    if causal:
        seen = seen.tril()
    return torch.where(seen, 0.0, float("-inf")).double()[None, None]


@pytest.mark.parametrize("window", [WINDOW, None])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_layers_are_those_of_t5gemma(kind: str, window: int | None) -> None:
    """Layer 0 of the reference has a window, layer 1 has none; neither looks at it, but for the mask."""
    side, index = gemma_config().decoder, 0 if window else 1
    decodes = kind == "decoder"
    reference = filled((T5GemmaDecoderLayer if decodes else T5GemmaEncoderLayer)(side, index).double())
    options = {**GEMMA, "window": window}
    if decodes:
        layer = DecoderLayer(config(True, encoder_hidden_size=OTHER_HIDDEN, **options), CONTEXT)
    else:
        layer = EncoderLayer(config(True, **options), CONTEXT)
    copy_gemma(layer, reference)
    lengths = LENGTHS if decodes else ENCODED
    x, encoded = torch.randn(sum(lengths), HIDDEN), torch.randn(sum(ENCODED), OTHER_HIDDEN)
    positions = torch.cat([torch.arange(length) for length in lengths])
    embedding = T5GemmaRotaryEmbedding(side)
    expected = []
    for part, memory in zip(x.double().split(lengths), encoded.double().split(ENCODED), strict=True):
        rotation = embedding(part, torch.arange(len(part))[None])
        given = (part[None], rotation, gemma_mask(len(part), window, decodes))
        others = {"encoder_hidden_states": memory[None]} if decodes else {}
        expected.append(reference(*given, **others)[0])
    near = {"rtol": 1e-4, "atol": 1e-4}
    if not decodes:
        step = AttentionMetadata.for_encoder(ENCODED)
        CONTEXT.attention_backend.plan(step)
        torch.testing.assert_close(layer(x, step, positions=positions).double(), torch.cat(expected), **near)
        return
    cache = torch.full((2, 6, BLOCK_SIZE, 3, HIDDEN // HEADS), float("nan"))
    write_encoded(layer, encoded, cache)
    whole = layer(x, cache, metadata([0, 0]), positions=positions)
    torch.testing.assert_close(whole.double(), torch.cat(expected), **near)
    last = metadata([length - 1 for length in LENGTHS])
    cache[:, 0, LENGTHS[0] - 1] = cache[:, 1, LENGTHS[1] - 1] = float("nan")  # to be written again
    decoded = packed(layer)(x[[4, 7]], cache, last, positions=positions[[4, 7]])
    torch.testing.assert_close(decoded.double(), torch.stack([part[-1] for part in expected]), **near)


CONFIGS = {
    **{name: config(True, activation=name) for name in ACTIVATIONS},
    "post-norm": config(False, activation="relu"),
    "gated": config(True, gated=True),
    "no biases, RMS norm, wide heads": config(
        True, norm=partial(RMSNorm, eps=1e-3), bias=False, head_dim=24, scale=1.0, gated=True
    ),
    "shared keys": config(True, num_kv_heads=2),
    "biases of queries, keys and values alone": config(True, bias=False, qkv_bias=True),
    "an encoder of another width": config(True, encoder_hidden_size=32),
    "RMS norm with an offset": config(True, norm=partial(RMSNorm, weight_offset=1.0)),
    "layer norm without bias": config(True, norm=partial(nn.LayerNorm, bias=False)),
    "layer norm without weight": config(False, norm=partial(nn.LayerNorm, elementwise_affine=False)),
}


def packed(layer: DecoderLayer) -> DecoderLayer:
    """With its weights as kernels read them."""
    weights = {name: weight.detach() for name, weight in layer.named_parameters()}
    packer = WeightPacker(layer, "cpu")
    for name, parameter in layer.named_parameters():
        if parameter.is_meta:
            packer.pack(parameter, weights[name])
    return layer


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_step_that_decodes_is_the_layer_in_float64(name: str, with_bias: bool) -> None:
    layer = filled(DecoderLayer(CONFIGS[name], CONTEXT))
    head_dim = CONFIGS[name].head_dim or HIDDEN // HEADS
    x = torch.randn(2, HIDDEN)
    cache = torch.randn(2, 6, BLOCK_SIZE, CONFIGS[name].num_kv_heads or HEADS, head_dim)
    bias = RelativePositionBias(torch.randn(32, HEADS), bidirectional=False) if with_bias else None
    step = metadata([length - 1 for length in LENGTHS])
    exact_cache = cache.double()
    exact_bias = None if bias is None else RelativePositionBias(bias.table.double(), bidirectional=False)
    exact = deepcopy(layer).double()(x.double(), exact_cache, step, exact_bias)

    step = metadata([length - 1 for length in LENGTHS])
    packed(layer)
    assert layer.kernel is not None
    actual = DecoderLayers([layer])(x, [cache], step, [bias])
    torch.testing.assert_close(actual.double(), exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(cache.double(), exact_cache, rtol=1e-4, atol=1e-4)


def one_after_the_other(layers: DecoderLayers, x: Tensor, caches: list[Tensor], *given) -> Tensor:
    step, biases = given
    for layer, cache, bias in zip(layers, caches, biases, strict=True):
        x = DecoderLayers([layer])(x, [cache], step, [bias])
    return x


class DoubledNorm(nn.LayerNorm):
    """No kernel knows it."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


NORMS = {
    "layer norm": partial(nn.LayerNorm, eps=0.1),
    "layer norm without bias": partial(nn.LayerNorm, bias=False),
    "layer norm of no parameters": partial(nn.LayerNorm, elementwise_affine=False),
    "rms norm": RMSNorm,
    "gemma's rms norm": partial(RMSNorm, eps=0.1, weight_offset=1.0),
    "of another kind": DoubledNorm,
    "in float64": partial(nn.LayerNorm, dtype=torch.float64),
    "none": nn.Identity,
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_after_the_last_layer(name: str) -> None:
    layers = packed(filled(DecoderLayers(DecoderLayer(config(True), CONTEXT) for _ in range(2))))
    norm = filled(NORMS[name](HIDDEN))
    x, encoded = torch.randn(sum(LENGTHS), HIDDEN), torch.randn(sum(ENCODED), HIDDEN)
    caches = [torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS) for _ in layers]
    last = [length - 1 for length in LENGTHS]
    for layer, cache in zip(layers, caches, strict=True):
        write_encoded(layer, encoded, cache)
    for rows, cached in ((slice(None), [0, 0]), ([4, 7], last)):
        if "float64" in name:
            with pytest.raises(RuntimeError, match="dtype"):
                layers(x[rows], caches, metadata(cached), last_norm=norm)
            continue
        without = layers(x[rows], caches, metadata(cached))
        actual = layers(x[rows], caches, metadata(cached), last_norm=norm)
        torch.testing.assert_close(actual, norm(without), rtol=1e-5, atol=1e-5)
        assert not torch.equal(actual, without) or name == "none"


def test_a_norm_of_another_width_is_refused() -> None:
    layers = packed(filled(DecoderLayers([DecoderLayer(config(True), CONTEXT)])))
    caches = [torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS)]
    step = metadata([length - 1 for length in LENGTHS])
    with pytest.raises(IndexError, match=f"last norm is {HIDDEN + 8} wide instead of {HIDDEN}"):
        layers(torch.randn(2, HIDDEN), caches, step, last_norm=nn.LayerNorm(HIDDEN + 8))


def test_a_norm_whose_result_is_narrow_is_not_read_as_float32() -> None:
    layers = packed(filled(DecoderLayers([DecoderLayer(config(True), CONTEXT)])))
    caches, norm = [torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS)], filled(RMSNorm(HIDDEN)).half()
    step = metadata([length - 1 for length in LENGTHS])
    hidden = layers(torch.randn(2, HIDDEN), caches, step, last_norm=norm)
    assert hidden.dtype is torch.float16
    for given in (hidden, hidden.to("meta", torch.float32)):
        with pytest.raises(TypeError, match="a packed weight takes rows in float32 on the CPU"):
            layers[0].ffn.fc1(given)


@pytest.mark.parametrize("biases", ["none", "one", "one each"])
def test_layers_in_one_call_are_those_one_after_the_other(biases: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = packed(filled(DecoderLayers(DecoderLayer(config(True), CONTEXT) for _ in range(3))))
    calls = []
    monkeypatch.setattr(DecoderLayersKernel, "__call__", _counted(DecoderLayersKernel.__call__, calls))
    tables = [RelativePositionBias(torch.randn(32, HEADS), bidirectional=False) for _ in layers]
    given = {"none": None, "one": tables[:1] * 3, "one each": tables}[biases]
    x, encoded = torch.randn(sum(LENGTHS), HIDDEN), torch.randn(sum(ENCODED), HIDDEN)
    shape = (2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS)
    ours = [torch.randn(shape) for _ in layers]
    for layer, cache in zip(layers, ours, strict=True):
        write_encoded(layer, encoded, cache)
    theirs = [cache.clone() for cache in ours]
    last, unchanged = [length - 1 for length in LENGTHS], x.clone()
    for rows, cached in ((slice(None), [0, 0]), ([4, 7], last)):
        calls.clear()
        actual = layers(x[rows], ours, metadata(cached), given)
        assert torch.equal(x, unchanged)
        assert calls == ([] if cached == [0, 0] else [3] if biases != "one each" else [1, 1, 1])
        step = metadata(cached)
        expected = one_after_the_other(layers, x[rows], theirs, step, given or [None] * 3)
        assert torch.equal(actual, expected)
        assert all(map(torch.equal, ours, theirs))
    moved = [cache.clone() for cache in ours]  # the kernel reads those that it is given, not the last ones
    changed = [cache.zero_() for cache in ours]
    assert torch.equal(layers(x[[4, 7]], moved, metadata(last), given), actual)
    assert not torch.equal(layers(x[[4, 7]], changed, metadata(last), given), actual)


def test_an_interruption_between_two_caches_leaves_no_mixture() -> None:
    layers = packed(filled(DecoderLayers(DecoderLayer(config(True), CONTEXT) for _ in range(2))))
    shape, last = (2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS), [length - 1 for length in LENGTHS]
    old, x, places = [torch.randn(shape) for _ in layers], torch.randn(2, HIDDEN), set()
    for num_lines in range(1, 60):
        new = [torch.randn(shape) for _ in layers]
        layers(x, old, metadata(last))
        with suppress(KeyboardInterrupt), interrupted_after(num_lines, ["decoder_layer"]) as struck:
            layers(x, new, metadata(last))
        places.update(struck)
        again = [cache.clone() for cache in new]
        expected = one_after_the_other(layers, x, again, metadata(last), [None, None])
        assert torch.equal(layers(x, new, metadata(last)), expected), struck
        old = new
    assert any("_take" in place for place in places)


def test_a_cache_with_gaps_is_refused() -> None:
    layers = packed(filled(DecoderLayers([DecoderLayer(config(True), CONTEXT)])))
    cache = torch.randn(2, BLOCK_SIZE, 6, HEADS, HIDDEN // HEADS).transpose(1, 2)
    with pytest.raises(RuntimeError, match="view"):
        layers(torch.randn(2, HIDDEN), [cache], metadata([length - 1 for length in LENGTHS]))


def test_biases_of_other_layers_are_refused() -> None:
    layers = packed(filled(DecoderLayers(DecoderLayer(config(True), CONTEXT) for _ in range(2))))
    caches = [torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS) for _ in layers]
    step = metadata([length - 1 for length in LENGTHS])
    for count in (0, 1, 3):
        with pytest.raises(ValueError, match=r"argument 2 is (shorter|longer)"):
            layers(torch.randn(2, HIDDEN), caches, step, [None] * count)


def _counted(call, calls: list[int]):
    def counted(kernel: DecoderLayersKernel, x: Tensor, caches: list[Tensor], step: DecodeStep) -> Tensor:
        calls.append(len(caches))
        return call(kernel, x, caches, step)

    return counted


def test_layers_of_several_kinds_are_called_one_by_one() -> None:
    class Doubled(DecoderLayer):
        def forward(self, *given: object) -> Tensor:
            return 2 * super().forward(*given)

    layers = packed(filled(DecoderLayers([DecoderLayer(config(True), CONTEXT), Doubled(config(True), CONTEXT)])))
    caches = [torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS) for _ in layers]
    x, last = torch.randn(2, HIDDEN), [length - 1 for length in LENGTHS]
    expected = one_after_the_other(layers, x, caches, metadata(last), [None, None])
    assert torch.equal(layers(x, caches, metadata(last)), expected)
    with pytest.raises(ValueError, match="argument 3 is shorter"):
        layers(x, caches[:1], metadata(last))
    alike = packed(filled(DecoderLayers(DecoderLayer(config(True), CONTEXT) for _ in range(2))))
    with pytest.raises(ValueError, match="shorter"):
        alike(x, caches[:1], metadata(last))


def test_a_norm_of_another_kind_leaves_the_layer_to_its_modules() -> None:
    layer = packed(filled(DecoderLayer(config(True, norm=nn.RMSNorm), CONTEXT)))
    assert layer.kernel is None
    cache = torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS)
    step = metadata([length - 1 for length in LENGTHS])
    assert layer(torch.randn(2, HIDDEN), cache, step).isfinite().all()


@pytest.mark.parametrize("option", [{"softcap": 5.0}, {"window": 4}, {"rotary": 1e4}, {"sandwich_norm": True}], ids=str)
def test_what_the_kernel_does_not_have_leaves_the_layer_to_its_modules(option: dict[str, object]) -> None:
    assert packed(filled(DecoderLayer(config(True), CONTEXT))).kernel is not None
    assert packed(filled(DecoderLayer(config(True, **option), CONTEXT))).kernel is None


def test_a_sandwich_norm_is_for_pre_norm() -> None:
    with pytest.raises(PluginError, match="pre_norm=True"):
        config(False, sandwich_norm=True)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("slot_mapping", [4, 96], "slot 96 of a cache of 96"),
        ("slot_mapping", [4, -3], "slot -3"),
        ("slot_mapping", [4], "2 rows have 1 slots"),
        ("block_tables", [[0], [6]], "112 slots"),
        ("cross_block_tables", [[5, 2], [4]], "2 blocks of 16 slots"),
        ("cross_block_tables", [[5, 2, 1 << 40], [4]], "slots"),
    ],
)
def test_a_step_that_reaches_beyond_the_cache_is_refused(field: str, value: list, message: str) -> None:
    layers = packed(filled(DecoderLayers([DecoderLayer(config(True), CONTEXT)])))
    cache = torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS)
    before, step = cache.clone(), metadata([length - 1 for length in LENGTHS])
    setattr(step, field, torch.tensor(value) if field == "slot_mapping" else value)
    with pytest.raises(IndexError, match=message):
        layers(torch.randn(2, HIDDEN), [cache], step)
    assert torch.equal(cache, before)


def test_hidden_states_of_another_width_are_refused() -> None:
    layers = packed(filled(DecoderLayers([DecoderLayer(config(True), CONTEXT)])))
    cache = torch.randn(2, 6, BLOCK_SIZE, HEADS, HIDDEN // HEADS)
    step = metadata([length - 1 for length in LENGTHS])
    with pytest.raises(IndexError, match=f"{HIDDEN - 8} wide instead of {HIDDEN}"):
        layers(torch.randn(2, HIDDEN - 8), [cache], step)
    with pytest.raises(IndexError, match=f"rows of {HIDDEN - 8} numbers"):
        layers[0].ffn.fc1(torch.randn(2, HIDDEN - 8))


def test_heads_that_no_key_heads_divide_are_refused() -> None:
    with pytest.raises(CheckpointError, match="4 heads of a layer are not a multiple of 3 key heads"):
        LayerConfig(64, 4, 128, "gelu", pre_norm=True, num_kv_heads=3)


def test_layers_of_a_config_with_barts_names() -> None:
    sizes = {"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
    sizes |= {"decoder_layers": 3, "decoder_attention_heads": 2, "decoder_ffn_dim": 24}
    given = BartConfig(d_model=HIDDEN, activation_function="relu", **sizes)
    encoder = EncoderLayers.of(given, CONTEXT, pre_norm=True)
    decoder = DecoderLayers.of(given, CONTEXT, pre_norm=False, encoder_hidden_size=32)
    assert [len(encoder), len(decoder)] == [2, 3]
    expected = EncoderLayer(LayerConfig(HIDDEN, 4, 48, "relu", pre_norm=True), CONTEXT)
    assert repr(encoder[1]) == repr(expected)
    expected = DecoderLayer(LayerConfig(HIDDEN, 2, 24, "relu", pre_norm=False, encoder_hidden_size=32), CONTEXT)
    assert repr(decoder[2]) == repr(expected)
    assert [encoder[0].pre_norm, decoder[0].pre_norm] == [True, False]


def test_encoder_layers_are_called_one_after_the_other() -> None:
    layers = filled(EncoderLayers(EncoderLayer(config(True), CONTEXT) for _ in range(2)))
    metadata = AttentionMetadata.for_encoder([5, 3])
    CONTEXT.attention_backend.plan(metadata)
    x = torch.randn(8, HIDDEN)
    assert torch.equal(layers(x, metadata), layers[1](layers[0](x, metadata), metadata))
