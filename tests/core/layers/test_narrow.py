"""Which weights are stored in float16, and that nobody can tell by the results."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.layer import LayerContext
from transept.core.attention.metadata import AttentionMetadata
from transept.core.kernels.float16 import widens_float16
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import ParallelGroup
from transept.core.layers.narrow import narrow_weights
from transept.core.layers.transformer import DecoderLayer, LayerConfig

CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())
pytestmark = pytest.mark.skipif(not widens_float16(), reason="this processor cannot widen float16")


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
            newcomers=[] if cached else [0],
        )
        CONTEXT.attention_backend.plan(metadata)
        tokens, encoded = torch.arange(cached, length) % 50, torch.linspace(-1, 1, 20 * 32).view(20, 32)
        results.append(model(tokens, None if cached else encoded, cache, metadata))
    return results


@pytest.mark.parametrize("num_prompt", [1, 5, 70])
@pytest.mark.parametrize("gated", [False, True])
@torch.inference_mode()
def test_what_a_model_says_stays_the_same_to_the_last_bit(gated: bool, num_prompt: int) -> None:
    model = exact(Decoder(gated))
    narrowed = deepcopy(model)
    narrow_weights(narrowed)
    kept = {name for name, parameter in narrowed.named_parameters() if parameter.dtype is torch.float32}
    assert all("norm" in name or name.endswith("bias") for name in kept)
    for ours, before in zip(steps(narrowed, num_prompt), steps(model, num_prompt), strict=True):
        assert torch.equal(ours, before)


def test_a_layer_is_narrowed_as_a_whole() -> None:
    model = exact(Decoder())
    model.layer.ffn.fc2.weight[-1, -1] = 0.1
    narrow_weights(model)
    assert {parameter.dtype for parameter in model.layer.parameters()} == {torch.float32}
    assert model.head.weight.dtype is torch.float16
    assert model.head.weight is model.embedding.weight


@pytest.mark.parametrize("number", [0.1, 70_000.0, 1e-9, float("nan")])
def test_numbers_that_float16_does_not_hold_stay(number: float) -> None:
    model = exact(Decoder())
    model.head.weight[7, 3] = number
    narrow_weights(model)
    assert model.head.weight.dtype is torch.float32
    assert model.layer.ffn.fc1.weight.dtype is torch.float16


def test_a_matrix_that_another_module_reads_stays() -> None:
    model = exact(Decoder())
    model.other = nn.Embedding(50, 32)
    model.other.weight = model.head.weight
    narrow_weights(model)
    assert model.head.weight.dtype is torch.float32
