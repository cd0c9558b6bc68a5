"""load_weights: real checkpoint files into small models of our layers."""

import copy

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration

from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.load_weights import load_weights
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.kernels.dispatch import PACK
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import Linear, QKVParallelLinear, StackedParameter
from transept.core.layers.packing import WeightPacker
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError, PluginError

GROUP = ParallelGroup()


class Tower(nn.Module):
    """One attention, an embedding tied to a head, a persistent buffer and one that is not; filled with NaN."""

    def __init__(self, hidden=16, vocabulary=99, positions=22, tied=True):
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(vocabulary, hidden, group=GROUP)
        self.qkv_proj = QKVParallelLinear(hidden, 2, hidden // 2, group=GROUP)
        self.out_proj = Linear(hidden, hidden)
        weight = self.embed_tokens.weight if tied else None
        self.lm_head = VocabParallelHead(vocabulary, hidden, group=GROUP, weight=weight)
        self.register_buffer("positions", torch.empty(positions, hidden))
        self.register_buffer("scratch", torch.empty(3), persistent=False)
        for tensor in self.state_dict(keep_vars=True).values():
            tensor.data.fill_(torch.nan)


ATTENTION = r"model\.encoder\.layers\.0\.self_attn"
MAP = WeightMap(
    rules=(
        (r"model\.shared\.weight", "embed_tokens.weight"),
        (rf"{ATTENTION}\.([qkv])_proj\.(weight|bias)", r"qkv_proj.\2#\1"),
        (rf"{ATTENTION}\.out_proj\.(weight|bias)", r"out_proj.\1"),
        (r"model\.encoder\.embed_positions\.weight", "positions"),
    ),
    tied=(
        (r"model\.(encoder|decoder)\.embed_tokens\.weight", "embed_tokens.weight"),
        (r"lm_head\.weight", "lm_head.weight"),
    ),
    ignored=(
        r"model\.decoder\.(layers|embed_positions|layernorm_embedding)\..*",
        r"model\.encoder\.(layernorm_embedding\..*|layers\.0\.(fc.*|.*layer_norm.*))",
        "final_logits_bias",
    ),
)


@pytest.fixture(scope="module")
def bart():
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 99}
    counts = dict.fromkeys(("encoder_layers", "decoder_layers"), 1)
    heads = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2)
    config = BartConfig(**sizes, **counts, **heads, max_position_embeddings=20, bos_token_id=0, eos_token_id=2)
    model = BartForConditionalGeneration(config)
    for parameter in model.parameters():  # biases are zero at first
        nn.init.normal_(parameter)
    return model


def save(path, state):
    """A Hugging Face directory with these tensors."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text("{}")
    save_file({name: tensor.clone() for name, tensor in state.items()}, path / "model.safetensors")
    return open_checkpoint(path)


@pytest.mark.parametrize("tied_names", ["only shared", "every name", "only lm_head"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("saved", [torch.float32, torch.float16])
def test_bart_attention(tied_names, dtype, saved, bart, tmp_path):
    source = copy.deepcopy(bart).to(saved)
    state = source.state_dict()
    if tied_names == "only shared":
        source.save_pretrained(tmp_path)
        checkpoint = open_checkpoint(tmp_path)
    elif tied_names == "every name":
        checkpoint = save(tmp_path, state)
    else:
        several = ("model.shared.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
        checkpoint = save(tmp_path, {name: tensor for name, tensor in state.items() if name not in several})
    model = Tower().to(dtype)
    load_weights(model, checkpoint, MAP)
    attention = source.model.encoder.layers[0].self_attn
    projections = attention.q_proj, attention.k_proj, attention.v_proj
    for kind in ("weight", "bias"):
        stacked = torch.cat([getattr(projection, kind) for projection in projections])
        assert torch.equal(getattr(model.qkv_proj, kind), stacked.to(dtype))
        assert torch.equal(getattr(model.out_proj, kind), getattr(attention.out_proj, kind).to(dtype))
    assert torch.equal(model.embed_tokens.weight, source.model.shared.weight.to(dtype))
    assert model.lm_head.weight is model.embed_tokens.weight
    assert torch.equal(model.positions, source.model.encoder.embed_positions.weight.to(dtype))


@pytest.mark.parametrize("directory", ["tiny_en_dir", "base_dir"])
def test_whisper_cross_attention(directory, request):
    """CTranslate2: q alone, k and v stacked, in float16 at odd addresses."""
    checkpoint = open_checkpoint(request.getfixturevalue(directory))
    hidden = checkpoint.shape_of("decoder/layer_1/attention/linear_0/bias")[0]
    model = nn.Module()
    model.qkv_proj = QKVParallelLinear(hidden, 1, hidden, group=GROUP)
    layer = "decoder/layer_1/attention"
    weight_map = WeightMap(
        rules=(
            (rf"{layer}/linear_0/(\w+)", r"qkv_proj.\1#q"),
            (rf"{layer}/linear_1/(\w+)", r"qkv_proj.\1#k+v"),
        ),
        ignored=(rf"(?!{layer}/linear_[01]/).*",),
    )
    load_weights(model, checkpoint, weight_map)
    for kind in ("weight", "bias"):
        expected = torch.cat([checkpoint.tensor(f"{layer}/linear_{index}/{kind}") for index in (0, 1)])
        assert torch.equal(getattr(model.qkv_proj, kind), expected.float())


GOOD = {
    "embed_tokens.weight": torch.randn(99, 16),
    "q.weight": torch.randn(16, 16),
    "k.weight": torch.randn(16, 16),
    "v.weight": torch.randn(16, 16),
    "q.bias": torch.randn(16),
    "v.bias": torch.randn(16),
    "out_proj.weight": torch.randn(16, 16),
    "out_proj.bias": torch.randn(16),
    "positions": torch.randn(22, 16),
}
PLAIN = WeightMap(
    rules=((r"([qkv])\.(weight|bias)", r"qkv_proj.\2#\1"), (r"again\.(.*)", r"\1"), (r"((?!extra).*)", r"\1")),
    tied=((r"lm_head\.weight", "lm_head.weight"),),
    zeros=(r"qkv_proj\.bias#k",),
)


def problems(tmp_path, state, model=None, weight_map=PLAIN, packs=False):
    model = model or Tower()
    with pytest.raises(CheckpointError) as caught:
        load_weights(model, save(tmp_path, state), weight_map, WeightPacker(model, "cpu") if packs else None)
    first, *rest = str(caught.value).splitlines()
    assert first == f'the weights in "{tmp_path}" do not fit Tower:'
    return [line.strip() for line in rest]


def test_zeros_where_the_checkpoint_holds_none(tmp_path):
    model = Tower()
    load_weights(model, save(tmp_path, GOOD), PLAIN)
    assert torch.equal(model.qkv_proj.bias, torch.cat([GOOD["q.bias"], torch.zeros(16), GOOD["v.bias"]]))
    bias = torch.randn(16)
    load_weights(model, save(tmp_path, {**GOOD, "k.bias": bias}), PLAIN)
    assert torch.equal(model.qkv_proj.bias[16:32], bias)


@pytest.mark.parametrize("packs", [False, True])
def test_everything_that_does_not_fit_is_told_at_once(tmp_path, packs):
    state = {name: tensor for name, tensor in GOOD.items() if name not in ("v.weight", "v.bias", "positions")}
    state |= {
        "k.weight": torch.zeros(16, 8),
        "out_proj.bias": torch.zeros(1),
        "extra.weight": torch.zeros(1),
        "layers.9.weight": torch.zeros(1),
        "again.out_proj.weight": torch.zeros(16, 16),
        "lm_head.weight": torch.zeros(99, 16),
    }
    assert problems(tmp_path, state, packs=packs) == [
        "3 missing from the checkpoint:",
        "positions",
        "qkv_proj.weight#v",
        "qkv_proj.bias#v",
        "2 unexpected in the checkpoint:",
        "extra.weight",
        "layers.9.weight (for layers.9.weight, which the model does not have)",
        "2 of another shape:",
        "k.weight: [16, 8] in the checkpoint, [16, 16] in the model (qkv_proj.weight#k)",
        "out_proj.bias: [1] in the checkpoint, [16] in the model (out_proj.bias)",
        "1 loaded twice:",
        "out_proj.weight, from out_proj.weight after again.out_proj.weight",
        "1 tied in the model but different in the checkpoint:",
        "lm_head.weight (for lm_head.weight)",
    ]


def test_a_whole_weight_after_one_of_its_parts_is_loaded_twice(tmp_path):
    state = {**GOOD, "qkv_proj.weight": torch.zeros(48, 16)}
    (title, line) = problems(tmp_path, state)
    assert title == "1 loaded twice:"
    assert "qkv_proj.weight" in line


def test_untied_head(tmp_path):
    head = torch.randn(99, 16)
    model = Tower(tied=False)
    load_weights(model, save(tmp_path, {**GOOD, "lm_head.weight": head}), PLAIN)
    assert torch.equal(model.lm_head.weight, head)
    assert problems(tmp_path, GOOD, Tower(tied=False)) == ["1 missing from the checkpoint:", "lm_head.weight"]


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("head", ["shared", "tied copy", "its own"])
def test_weights_are_packed_as_they_lie(tmp_path, quantization, head):
    """In every dtype, with parts in any order: as if they had been converted, copied to their places and packed."""
    dtypes = {"k.weight": torch.bfloat16, "v.weight": torch.float32}
    state = {name: tensor.to(dtypes.get(name, torch.float16)) for name, tensor in GOOD.items()}
    if head == "tied copy":
        state["lm_head.weight"] = state["embed_tokens.weight"].float()
    elif head == "its own":
        state["lm_head.weight"] = torch.randn(99, 16).half()
    checkpoint = save(tmp_path, state)
    expected, model = (Tower(tied=head != "its own") for _ in range(2))
    load_weights(expected, checkpoint, PLAIN)
    load_weights(model, checkpoint, PLAIN, WeightPacker(model, "cpu", quantization))
    for name in ("qkv_proj", "out_proj", "lm_head"):
        assert model.get_submodule(name).weight.is_meta
        ours = model.get_submodule(name).packed.panels
        theirs = PACK.find(quantization=quantization)(expected.get_submodule(name).weight)
        assert ours.dtype is theirs.dtype
        assert torch.equal(ours.values, theirs.values)
        assert ours.scales is theirs.scales is None or torch.equal(ours.scales, theirs.scales)
    assert torch.equal(model.qkv_proj.bias, expected.qkv_proj.bias)
    assert (model.embed_tokens.packed is None) == (head == "its own")


def test_a_packed_weight_and_a_copy_that_differs(tmp_path):
    state = {**GOOD, "lm_head.weight": GOOD["embed_tokens.weight"] + 1e-3}
    assert problems(tmp_path, state, packs=True) == [
        "1 tied in the model but different in the checkpoint:",
        "lm_head.weight (for lm_head.weight)",
    ]


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float8_e4m3fn])
def test_quantized_checkpoint(dtype, tmp_path):
    state = {**GOOD, "q.weight": torch.zeros(16, 16).to(dtype), "extra.q.weight_scale": torch.ones(16)}
    (line,) = problems(tmp_path, state)
    assert "1 of them are quantized, such as q.weight (" in line
    assert "quantized checkpoints are not supported yet" in line


def test_integer_buffers_are_no_quantized_weights(tmp_path):
    model = nn.Module()
    model.register_buffer("buckets", torch.zeros(4, dtype=torch.int64))
    load_weights(model, save(tmp_path, {"buckets": torch.arange(4)}), WeightMap(rules=((r"(.*)", r"\1"),)))
    assert model.buckets.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (r"qkv_proj.weight#z", "names part z; qkv_proj.weight has q, k, v"),
        (r"out_proj.weight#q", "names part q; out_proj.weight has no parts"),
        (r"qkv_proj.weight#q+v", r"parts in .*#q\+v\" are not adjacent"),
        (r"qkv_proj.weight#v+k", "are not adjacent"),
    ],
)
def test_parts_that_the_model_does_not_have(target, message, tmp_path):
    with pytest.raises(PluginError, match=message):
        load_weights(Tower(), save(tmp_path, GOOD), WeightMap(rules=((r"q\.weight", target),), ignored=(r"(?!q\.).*",)))


@pytest.mark.parametrize("field", ["rules", "tied", "ignored", "zeros"])
def test_bad_regex(field):
    bad = (("(", "x"),) if field in ("rules", "tied") else ("(",)
    with pytest.raises(PluginError, match=r'"\(" is not a regular expression'):
        WeightMap(**{"rules": (), field: bad})


@pytest.mark.parametrize("field", ["rules", "tied"])
@pytest.mark.parametrize("target", [r"\1.\2", r"\g<name>", r"\q"])
def test_a_target_that_its_regex_does_not_fit(field, target):
    with pytest.raises(PluginError, match=r'WeightMap: target ".*" does not fit "q\\\.\(\.\*\)": '):
        WeightMap(**{"rules": (), field: ((r"q\.(.*)", target),)})


def test_parts_survive_a_change_of_dtype(tmp_path):
    model = Tower().to(torch.float16)
    assert isinstance(model.qkv_proj.weight, StackedParameter)
    load_weights(model, save(tmp_path, GOOD), PLAIN)
    assert torch.equal(model.qkv_proj.weight[32:], GOOD["v.weight"].half())
