"""What stages of a pipeline give each other, and what of a model each has."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from thread_ranks import on_threads
from torch import Tensor, nn

from transept import Engine
from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.layers.pipeline_partition import keep_stage, layer_lists
from transept.core.layers.transformer import DecoderLayer, EncoderLayer, LayerConfig
from transept.core.model_shape import ModelShape
from transept.core.parallel.group import ExchangeError, ParallelGroup
from transept.core.parallel.pipeline_stage import Link, Message, PipelineStage
from transept.core.parallel.stage_links import SocketLink
from transept.errors import CheckpointError, ParameterError, PluginError

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
CONTEXT = LayerContext(attention_backend=TorchBackend(), group=ParallelGroup())
LAYER = LayerConfig(16, 2, 32, "gelu", pre_norm=True)


@pytest.fixture
def ends() -> Iterator[Callable[[], tuple[SocketLink, SocketLink]]]:
    """Makes both ends of a link."""
    made: list[SocketLink] = []

    def make() -> tuple[SocketLink, SocketLink]:
        one, other = (SocketLink(each.detach()) for each in socket.socketpair())
        made.extend((one, other))
        return one, other

    yield make
    for link in made:
        link._socket.close()


def test_two_stages_send_much_to_each_other_at_once(ends: Callable) -> None:
    """Neither waits for the other to receive; what was sent is what was there when it was sent."""
    one, other = ends()
    sent = [torch.randn(3, 700_000, generator=torch.Generator().manual_seed(seed)) for seed in range(2)]
    for link, tensor in ((one, sent[0]), (other, sent[1])):
        for step in range(3):
            content = tensor + step
            link.send(Message(step, content))
            content.zero_()
    for link, tensor in ((one, sent[1]), (other, sent[0])):
        for step in range(3):
            message = link.receive()
            assert message.step == step
            assert torch.equal(message.content, tensor + step)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 8), (0, 8), (2, 3, 4)])
def test_tensors_and_errors_arrive_as_they_were_sent(ends: Callable, dtype: torch.dtype, shape: Any) -> None:
    one, other = ends()
    one.send(Message(1, torch.ones(shape, dtype=dtype)))
    one.send(Message(2, ParameterError("it is wrong")))
    received = other.receive().content
    assert (received.dtype, received.shape) == (dtype, torch.Size(shape))
    assert torch.equal(received, torch.ones(shape, dtype=dtype))
    error = other.receive().content
    assert (type(error), str(error)) == (ParameterError, "it is wrong")


def test_a_stage_that_has_gone_is_told(ends: Callable) -> None:
    one, other = ends()
    other._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ExchangeError, match="has gone"):
        one.receive()


def stages(count: int, ends: Callable) -> list[PipelineStage]:
    """All stages of a pipeline, joined."""
    links: list[dict[int, Link]] = [{} for _ in range(count)]
    for index in range(count - 1):
        for other in {index + 1, count - 1}:
            links[index][other], links[other][index] = ends()
    return [PipelineStage(index, count, own) for index, own in enumerate(links)]


def compute(stage: PipelineStage, step: int, fails_at: int | None) -> Tensor | str:
    """An encoder pass in two pieces and a decoder pass of stages that each add 1; one of them may fail."""
    stage.step = step
    try:
        pieces = []
        for piece in range(2):
            x = torch.full((2, 3), float(step))
            x = x if stage.is_first else stage.recv(x)
            if piece == 1 and fails_at == stage.index:
                raise ValueError(f"step {step} fails")
            pieces.append(x + 1 if stage.is_last else stage.send(x + 1))
            if stage.is_last:
                stage.share_encoded(pieces[-1])
        if not stage.is_last:
            pieces = [stage.receive_encoded(x.device) for _ in range(2)]
        encoded = torch.cat(pieces)
        x = encoded if stage.is_first else stage.recv(encoded)
        if not stage.is_last:
            stage.send(x + 1)
        return torch.cat([x[0, :1] + 1, stage.add_up(torch.ones(1))])
    except ValueError as error:
        stage.fail(error, encodes=True)
        return str(error)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_step_that_fails_in_one_stage_fails_in_the_last_and_no_other_does(ends: Callable, count: int) -> None:
    plan = [None, 0, None, count - 1, count - 1, count // 2, None]

    def run(stage: PipelineStage) -> list[Any]:
        return [compute(stage, step, fails_at) for step, fails_at in enumerate(plan)]

    results = on_threads([partial(run, stage) for stage in stages(count, ends)])
    for step, fails_at in enumerate(plan):
        last = results[-1][step]
        if fails_at is None:
            assert last.tolist() == [step + 2 * count, count]  # each has added 1 in either pass
        else:
            assert last == f"step {step} fails"


@pytest.mark.parametrize("count", range(1, 6))
@pytest.mark.parametrize("total", range(5, 13))
def test_stages_have_all_layers_and_as_many_each(total: int, count: int) -> None:
    parts = [PipelineStage(index, count).layers(total) for index in range(count)]
    assert [layer for part in parts for layer in part] == [*range(total)]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("layers", "hidden", "vocabulary", "count", "lengths"),
    [
        (4, 384, 51864, 2, [3, 1]),  # Whisper tiny.en
        (6, 512, 51865, 3, [3, 2, 1]),  # base
        (32, 1280, 51866, 2, [17, 15]),  # large-v3
        (32, 1280, 51866, 4, [9, 9, 8, 6]),
        (2, 64, 320, 2, [1, 1]),
    ],
)
def test_the_last_stage_has_fewer_layers_of_a_decoder_as_it_computes_the_logits(
    layers: int, hidden: int, vocabulary: int, count: int, lengths: list[int]
) -> None:
    shape = ModelShape(layers, hidden // 64, 64, vocabulary, None, None)
    parts = [PipelineStage(index, count).decoder_layers(shape) for index in range(count)]
    assert [layer for part in parts for layer in part] == [*range(layers)]
    assert [*map(len, parts)] == lengths


class Model(nn.Module):
    """Some layers of each side."""

    def __init__(self, encoder: list[nn.Module], decoder: list[nn.Module]) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.others = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])


def test_a_stage_keeps_its_layers_alone() -> None:
    model = Model([EncoderLayer(LAYER, CONTEXT) for _ in range(3)], [DecoderLayer(LAYER, CONTEXT) for _ in range(4)])
    whole, shape = {*model.state_dict()}, ModelShape(4, 2, 8, 100, None, None)
    encoder, decoder = layer_lists(model, 4)
    assert (encoder, decoder) == (model.encoder, model.decoder)
    gone = keep_stage(model, shape, PipelineStage(1, 2))
    assert whole - gone == {*model.state_dict()}
    assert {name.rpartition(".self_attn_norm.weight")[0] for name in model.state_dict()} - {""} == {
        "encoder.2",
        "decoder.2",
        "decoder.3",
    }


@pytest.mark.parametrize(
    ("encoder", "decoder", "num_decoder_layers"),
    [
        ([nn.Linear(3, 3)], [DecoderLayer(LAYER, CONTEXT)], 1),
        ([EncoderLayer(LAYER, CONTEXT)], [EncoderLayer(LAYER, CONTEXT)], 1),
        ([EncoderLayer(LAYER, CONTEXT)], [DecoderLayer(LAYER, CONTEXT)], 2),
        ([EncoderLayer(LAYER, CONTEXT), DecoderLayer(LAYER, CONTEXT)], [DecoderLayer(LAYER, CONTEXT)], 1),
    ],
    ids=["no attention", "two encoders", "another number", "mixed"],
)
def test_layers_that_cannot_be_told_are_an_error(encoder: Any, decoder: Any, num_decoder_layers: int) -> None:
    with pytest.raises(PluginError, match=r"layers of Model cannot be divided into stages: .* one nn\.ModuleList"):
        layer_lists(Model(encoder, decoder), num_decoder_layers)


def test_more_stages_than_layers_are_an_error_that_says_what_fits() -> None:
    message = (
        r"pipeline_parallel_size=4 is more than this model has layers: 3 in the encoder, 2 in the decoder. It can be "
        r"split by pipeline_parallel_size 1, 2"
    )
    with pytest.raises(ParameterError, match=message):
        Engine(CHECKPOINT, device="cpu", pipeline_parallel_size=4)
    with pytest.raises(ParameterError, match="tensor_parallel_size=3 does not divide"):
        Engine(CHECKPOINT, device="cpu", tensor_parallel_size=3, pipeline_parallel_size=2)
    with pytest.raises(ParameterError, match="pipeline_parallel_size must be an integer of at least 1"):
        Engine(CHECKPOINT, device="cpu", pipeline_parallel_size=0)


@pytest.mark.slow
@pytest.mark.parametrize("layer", [0, 1])
def test_a_weight_that_is_missing_is_told_whichever_stage_has_it(layer: int, tmp_path: Path) -> None:
    for file in CHECKPOINT.iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).symlink_to(file)
    weights = load_file(CHECKPOINT / "model.safetensors")
    (name,) = [each for each in weights if each.endswith(f"decoder.layers.{layer}.fc1.weight")]
    del weights[name]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"1 missing from the checkpoint:\n.*decoder\.layers\.{layer}\.ffn\.fc1"):
        Engine(tmp_path, device="cpu", pipeline_parallel_size=2)
