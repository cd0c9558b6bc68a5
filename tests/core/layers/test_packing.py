"""Which weights are packed as kernels read them, and what a model says with them."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.metadata import AttentionMetadata
from transept.core.kernels.dispatch import HUNDREDS, PACK, reads_float16
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import EncoderDecoderQKVParallelLinear, Linear
from transept.core.layers.packed_weights import PackedWeight
from transept.core.layers.packing import WeightPacker
from transept.core.layers.transformer import DecoderLayer, DecoderLayers, EncoderLayer, LayerConfig
from transept.core.parallel.group import ParallelGroup

CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())
needs_float16 = pytest.mark.skipif(not reads_float16(), reason="this processor cannot widen float16")


class Decoder(nn.Module):
    """Embedding, one layer, tied head."""

    def __init__(self, gated: bool = False) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(50, 32, group=CONTEXT.group)
        self.layers = DecoderLayers([DecoderLayer(LayerConfig(32, 4, 64, "gelu", pre_norm=True, gated=gated), CONTEXT)])
        self.head = VocabParallelHead(50, 32, group=CONTEXT.group, weight=self.embedding.weight)

    def forward(self, token_ids: Tensor, cache: Tensor, metadata: AttentionMetadata) -> Tensor:
        return self.head(self.layers(self.embedding(token_ids), [cache], metadata))


def exact(model: nn.Module) -> nn.Module:
    """With numbers that float16 holds, in float32."""
    torch.manual_seed(0)
    for parameter in model.requires_grad_(False).parameters():
        parameter.copy_(torch.randn(parameter.shape).half() * 0.5)
    return model


def steps(model: nn.Module, num_prompt: int) -> list[Tensor]:
    """Logits of a prompt of one sequence, and of the step after it."""
    cache, results, encoded = torch.zeros(2, 8, 16, 4, 8), [], torch.linspace(-1, 1, 20 * 32).view(20, 32)
    written = model.layers[0].cross_attn.keys_and_values(encoded)
    CONTEXT.attention_backend.write(*written, cache, torch.arange(6 * 16, 6 * 16 + 20))
    for cached, length in ((0, num_prompt), (num_prompt, num_prompt + 1)):
        metadata = AttentionMetadata(
            block_size=16,
            query_start_loc=[0, length - cached],
            seq_lens=[length],
            slot_mapping=torch.arange(cached, length),
            block_tables=[list(range(6))],
            cross_query_start_loc=[0, length - cached],
            cross_seq_lens=[20],
            cross_block_tables=[[6, 7]],
        )
        CONTEXT.attention_backend.plan(metadata)
        results.append(model(torch.arange(cached, length) % 50, cache, metadata))
    return results


CPU, CPU_INT8 = ("cpu", None), ("cpu", "int8")
GPU_INT8, GPU_FP8 = ("cuda", "int8"), ("cuda", "fp8")
Way = tuple[str, str | None]  # type of device, quantization


def pack(model: nn.Module, way: Way, *, long_inputs: bool = False) -> None:
    """As if each weight had just been loaded."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    packer = WeightPacker(model, *way, long_inputs=long_inputs)
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            packer.pack(parameter, weights[name])


def error(ours: Tensor, expected: Tensor) -> float:
    """The root mean square of the differences, by that of the numbers."""
    return float((ours - expected).square().mean().sqrt() / expected.square().mean().sqrt())


def rounded(model: nn.Module) -> nn.Module:
    """The same with the weights that are packed as multiples of a 127th of a row's largest number."""
    model = deepcopy(model)
    for module in model.modules():
        if isinstance(module, Linear | VocabParallelHead):
            step = module.weight.abs().amax(1, keepdim=True) / 127
            module.weight.copy_((module.weight / step).round() * step)
    return model


@pytest.mark.parametrize("num_prompt", [1, 5, 70])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("way", [CPU, CPU_INT8])
@torch.inference_mode()
def test_a_model_says_what_it_says_by_pytorch(way: Way, gated: bool, num_prompt: int) -> None:
    """In int8 nothing but weights is rounded noticeably, neither by the modules nor by the kernel of a whole layer."""
    model = exact(Decoder(gated))
    reference = rounded(model) if way == CPU_INT8 else deepcopy(model)
    pack(model, way)
    kept = {name for name, parameter in model.named_parameters() if not parameter.is_meta}
    assert kept == {name for name, _ in reference.named_parameters() if "norm" in name or name.endswith("bias")}
    for ours, expected in zip(steps(model, num_prompt), steps(reference, num_prompt), strict=True):
        assert error(ours, expected) < 1e-4


@needs_float16
def test_what_float16_holds_is_packed_in_it() -> None:
    model = exact(Decoder())
    model.layers[0].ffn.fc2.weight[-1, -1] = 0.1
    pack(model, CPU)
    dtypes = {name: part.packed.panels.dtype for name, part in model.named_modules() if isinstance(part, Linear)}
    assert dtypes.pop("layers.0.ffn.fc2") is torch.float32
    assert set(dtypes.values()) == {torch.float16}
    assert model.head.packed is model.embedding.packed
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("number", [0.1, 70_000.0, 1e-9, float("nan")])
def test_numbers_that_float16_does_not_hold_stay(number: float) -> None:
    weight = torch.ones(50, 32)
    weight[7, 3] = number
    panels = PACK.find()(weight)
    assert panels.dtype is torch.float32
    assert torch.equal(panels.rows(torch.tensor([7]))[0].nan_to_num(), weight[7].nan_to_num())


class Strange(nn.Module):
    """An untied embedding, a head, a matrix that something else reads, and a layer of an odd size."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(50, 32, group=CONTEXT.group)
        self.head = VocabParallelHead(50, 32, group=CONTEXT.group)
        self.cross = EncoderDecoderQKVParallelLinear(32, 4, 8, group=CONTEXT.group)
        self.read = Linear(32, 32)
        self.reader = nn.Linear(32, 32)
        self.reader.weight = self.read.weight
        self.odd = Linear(33, 32)


@pytest.mark.parametrize("way", [CPU, CPU_INT8, GPU_INT8, GPU_FP8])
def test_which_weights_are_packed(way: Way) -> None:
    model = exact(Strange())
    parts = model.cross.weight.parts
    pack(model, way)
    assert isinstance(model.head.packed, PackedWeight)
    assert isinstance(model.cross.packed, PackedWeight)
    assert (model.odd.packed is None) == (way[0] == "cuda")  # whose products want sizes that are multiples of 16
    assert model.embedding.packed is model.read.packed is None
    assert model.read.weight is model.reader.weight
    kept = {name for name, parameter in model.named_parameters() if not parameter.is_meta}
    assert {"embedding.weight", "read.weight", "cross.bias"} <= kept
    assert not kept & {"head.weight", "cross.weight"}
    assert model.cross.weight.shape == (96, 32)  # it keeps no memory, but what it is
    assert model.cross.weight.parts == parts


@pytest.mark.parametrize("quantization", [None, "int8"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_weights_are_packed_from_any_dtype(quantization: str | None, dtype: torch.dtype) -> None:
    """As if they had been converted first."""
    weight, kernel = torch.randn(50, 33).to(dtype), PACK.find(quantization=quantization)
    ours, expected = kernel(weight), kernel(weight.float())
    assert torch.equal(ours.values, expected.values)
    assert ours.scales is expected.scales is None or torch.equal(ours.scales, expected.scales)


def test_weights_of_half_precision_stay_parameters_without_quantization() -> None:
    for device, dtype in (("cpu", torch.bfloat16), ("cuda", torch.float16)):
        layer = Linear(32, 32).to(dtype)
        WeightPacker(layer, device)
        assert not layer.weight.is_meta


@needs_float16
@pytest.mark.parametrize("long_inputs", [True, False])
def test_encoders_of_long_inputs_have_products_of_their_own(long_inputs: bool) -> None:
    config = LayerConfig(64, 4, 128, "gelu", pre_norm=True)
    model = exact(nn.ModuleList([EncoderLayer(config, CONTEXT), DecoderLayer(config, CONTEXT)]))
    x = torch.randn(30, 64)
    metadata = AttentionMetadata.for_encoder([30])
    CONTEXT.attention_backend.plan(metadata)
    expected = model[0](x, metadata)
    pack(model, CPU, long_inputs=long_inputs)
    rows = [{m.packed.usual_rows for m in layer.modules() if isinstance(m, Linear)} for layer in model]
    assert rows == [{HUNDREDS if long_inputs else 1}, {1}]
    torch.testing.assert_close(model[0](x, metadata), expected, rtol=1e-4, atol=1e-4)
