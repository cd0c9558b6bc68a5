"""Which weights are packed as kernels read them, and what a model says with them."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.layer import LayerContext
from transept.core.attention.metadata import AttentionMetadata
from transept.core.kernels.cpu.library import reads_float16
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import EncoderDecoderQKVParallelLinear, Linear
from transept.core.layers.packed_weights import (
    CpuFloat,
    CpuFloatOfMany,
    CpuInt8,
    CpuWeight,
    GpuFp8,
    GpuInt8,
    PackedWeight,
)
from transept.core.layers.packing import WeightPacker, weight_class
from transept.core.layers.transformer import DecoderLayer, EncoderLayer, LayerConfig
from transept.core.parallel_group import ParallelGroup

CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())
needs_float16 = pytest.mark.skipif(not reads_float16(), reason="this processor cannot widen float16")


class Decoder(nn.Module):
    """Embedding, one layer, tied head."""

    def __init__(self, gated: bool = False) -> None:
        super().__init__()
        self.embedding = VocabParallelEmbedding(50, 32, group=CONTEXT.group)
        self.layer = DecoderLayer(LayerConfig(32, 4, 64, "gelu", pre_norm=True, gated=gated), CONTEXT)
        self.head = VocabParallelHead(50, 32, group=CONTEXT.group, weight=self.embedding.weight)

    def forward(self, token_ids: Tensor, encoded: Tensor | None, cache: Tensor, metadata: AttentionMetadata) -> Tensor:
        return self.head(self.layer(self.embedding(token_ids), encoded, cache, metadata))


def exact(model: nn.Module) -> nn.Module:
    """With numbers that float16 holds, in float32."""
    torch.manual_seed(0)
    for parameter in model.requires_grad_(False).parameters():
        parameter.copy_(torch.randn(parameter.shape).half() * 0.5)
    return model


def steps(model: nn.Module, num_prompt: int) -> list[Tensor]:
    """Logits of a prompt of one sequence, and of the step after it."""
    cache, results = torch.zeros(2, 8, 16, 4, 8), []
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
            prefills=[] if cached else [0],
        )
        CONTEXT.attention_backend.plan(metadata)
        tokens, encoded = torch.arange(cached, length) % 50, torch.linspace(-1, 1, 20 * 32).view(20, 32)
        results.append(model(tokens, None if cached else encoded, cache, metadata))
    return results


def pack(model: nn.Module, packed_as: type[PackedWeight], *, long_inputs: bool = False) -> None:
    """As if each weight had just been loaded."""
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    packer = WeightPacker(model, packed_as, long_inputs=long_inputs)
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
@pytest.mark.parametrize("packed_as", [CpuFloat, CpuInt8])
@torch.inference_mode()
def test_a_model_says_what_it_says_by_pytorch(packed_as: type[PackedWeight], gated: bool, num_prompt: int) -> None:
    """In int8 nothing but weights is rounded noticeably, neither by the modules nor by the kernel of a whole layer."""
    model = exact(Decoder(gated))
    reference = rounded(model) if packed_as is CpuInt8 else deepcopy(model)
    pack(model, packed_as)
    kept = {name for name, parameter in model.named_parameters() if not parameter.is_meta}
    assert kept == {name for name, _ in reference.named_parameters() if "norm" in name or name.endswith("bias")}
    for ours, expected in zip(steps(model, num_prompt), steps(reference, num_prompt), strict=True):
        assert error(ours, expected) < 1e-4


@needs_float16
def test_what_float16_holds_is_packed_in_it() -> None:
    model = exact(Decoder())
    model.layer.ffn.fc2.weight[-1, -1] = 0.1
    pack(model, CpuFloat)
    dtypes = {name: part.packed.panels.dtype for name, part in model.named_modules() if isinstance(part, Linear)}
    assert dtypes.pop("layer.ffn.fc2") is torch.float32
    assert set(dtypes.values()) == {torch.float16}
    assert model.head.packed is model.embedding.packed
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("number", [0.1, 70_000.0, 1e-9, float("nan")])
def test_numbers_that_float16_does_not_hold_stay(number: float) -> None:
    weight = torch.ones(50, 32)
    weight[7, 3] = number
    packed = CpuFloat(weight)
    assert packed.panels.dtype is torch.float32
    assert torch.equal(packed.rows(torch.tensor([7]))[0].nan_to_num(), weight[7].nan_to_num())


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


@pytest.mark.parametrize("packed_as", [CpuFloat, CpuInt8, GpuInt8, GpuFp8])
def test_which_weights_are_packed(packed_as: type[PackedWeight]) -> None:
    model = exact(Strange())
    parts = model.cross.weight.parts
    pack(model, packed_as)
    assert isinstance(model.head.packed, packed_as)
    assert isinstance(model.cross.packed, packed_as)
    assert isinstance(model.odd.packed, packed_as) == issubclass(packed_as, CpuWeight)
    assert model.embedding.packed is model.read.packed is None
    assert model.read.weight is model.reader.weight
    kept = {name for name, parameter in model.named_parameters() if not parameter.is_meta}
    assert {"embedding.weight", "read.weight", "cross.bias"} <= kept
    assert not kept & {"head.weight", "cross.weight"}
    assert model.cross.weight.shape == (96, 32)  # it keeps no memory, but what it is
    assert model.cross.weight.parts == parts


@pytest.mark.parametrize("packed_as", [CpuFloat, CpuInt8])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_weights_are_packed_from_any_dtype(packed_as: type[CpuWeight], dtype: torch.dtype) -> None:
    """As if they had been converted first."""
    weight = torch.randn(50, 33).to(dtype)
    ours, expected = packed_as(weight).panels, packed_as(weight.float()).panels
    assert torch.equal(ours.values, expected.values)
    assert ours.scales is expected.scales is None or torch.equal(ours.scales, expected.scales)


def test_how_weights_are_packed_where() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert weight_class(cpu, torch.float32, None) is CpuFloat
    assert weight_class(cpu, torch.bfloat16, None) is None
    assert weight_class(cpu, torch.float32, "int8") is CpuInt8
    assert weight_class(gpu, torch.float16, None) is None
    assert weight_class(gpu, torch.float16, "int8") is GpuInt8
    assert weight_class(gpu, torch.bfloat16, "fp8") is GpuFp8


@needs_float16
@pytest.mark.parametrize(("long_inputs", "kind"), [(True, CpuFloatOfMany), (False, CpuFloat)])
def test_encoders_of_long_inputs_have_products_of_their_own(long_inputs: bool, kind: type[CpuWeight]) -> None:
    config = LayerConfig(64, 4, 128, "gelu", pre_norm=True)
    model = exact(nn.ModuleList([EncoderLayer(config, CONTEXT), DecoderLayer(config, CONTEXT)]))
    x = torch.randn(30, 64)
    metadata = AttentionMetadata.for_encoder([30])
    CONTEXT.attention_backend.plan(metadata)
    expected = model[0](x, metadata)
    pack(model, CpuFloat, long_inputs=long_inputs)
    kinds = [{type(m.packed) for m in layer.modules() if isinstance(m, Linear)} for layer in model]
    assert kinds == [{kind}, {CpuFloat}]
    torch.testing.assert_close(model[0](x, metadata), expected, rtol=1e-4, atol=1e-4)
