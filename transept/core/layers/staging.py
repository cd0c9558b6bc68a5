"""Staging: a model is left what its pipeline stage computes. Called by the worker before any weight is loaded.

Models call their layers one after the other, or let DecoderLayers do so. In place of another stage's layer stands a
module that gives back what it is given. The one before this stage's first layer takes over what the stage before has
computed, and the one after its last hands that on. So no model knows of stages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from transept.core.attention.attention import Attention
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.model_shape import ModelShape
from transept.core.parallel.pipeline_stage import PipelineStage
from transept.errors import ParameterError, PluginError


class LayerElsewhere(nn.Module):
    """A layer that another stage has. pass_on: what becomes of the hidden states here; None: nothing."""

    def __init__(self, pass_on: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self._pass_on = pass_on

    def forward(self, x: Tensor, *others: Any, **options: Any) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        return x if self._pass_on is None else self._pass_on(x)


def check_stages(model: nn.Module, shape: ModelShape, count: int) -> None:
    """Raise ParameterError where a model's layers are fewer than stages, PluginError where they cannot be told."""
    if count == 1:
        return
    encoder, decoder = (len(layers) for layers in layer_lists(model, shape.num_decoder_layers))
    if count > min(encoder, decoder):
        raise ParameterError(
            f"pipeline_parallel_size={count} is more than this model has layers: {encoder} in the encoder, {decoder} "
            f"in the decoder. It can be split by pipeline_parallel_size={_up_to(min(encoder, decoder))}"
        )


def keep_stage(model: nn.Module, shape: ModelShape, stage: PipelineStage) -> set[str]:
    """Leave a model its stage's layers, and embeddings and heads only where they are needed.

    Returns the names, in the model's state_dict, of what has gone: other stages load it.
    Raises ParameterError and PluginError as `check_stages`.
    """
    if stage.count == 1:
        return set()
    check_stages(model, shape, stage.count)
    before = {*model.state_dict(keep_vars=True)}
    encoder, decoder = layer_lists(model, shape.num_decoder_layers)
    for layers, own in ((encoder, stage.layers(len(encoder))), (decoder, stage.decoder_layers(shape))):
        for index in range(len(layers)):
            if index not in own:
                hands = {own.start - 1: stage.take_over, own.stop: stage.hand_over}
                layers[index] = LayerElsewhere(hands.get(index))
    _keep_vocabulary(model, stage)
    return before - {*model.state_dict(keep_vars=True)}


def layer_lists(model: nn.Module, num_decoder_layers: int) -> tuple[nn.ModuleList, nn.ModuleList]:
    """The encoder's layers and the decoder's.

    They are the two lists of modules that all have attention in them: one in an encoder, in a decoder self- and
    cross-attention. Raises PluginError where there are others, or fewer.
    """
    found: dict[int, list[nn.ModuleList]] = {1: [], 2: []}  # by the attentions in each layer
    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) and id(module) not in seen:
            counts = {sum(isinstance(each, Attention) for each in layer.modules()) for layer in module}
            if 0 not in counts:
                seen |= {id(each) for each in module.modules()}
                found.setdefault(counts.pop() if len(counts) == 1 else 0, []).append(module)
    encoders, decoders = found.pop(1), found.pop(2)
    if len(encoders) != 1 or len(decoders) != 1 or found or len(decoders[0]) != num_decoder_layers:
        raise PluginError(
            f"the layers of {type(model).__name__} cannot be divided into stages: pipeline_parallel_size is for models "
            "with one nn.ModuleList of encoder layers, each with one Attention, and one of as many decoder layers as "
            "the model's shape says, each with two"
        )
    return encoders[0], decoders[0]


def _keep_vocabulary(model: nn.Module, stage: PipelineStage) -> None:
    """Embed in the first stage alone, and compute logits in the last; a matrix that serves both is in both.

    A matrix that another module has, too, stays everywhere, and so do all where logits are computed without a head.
    """
    readers: dict[int, list[nn.Module]] = {}
    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding):
            module.elsewhere = not stage.is_first
        for parameter in module.parameters(recurse=False):
            readers.setdefault(id(parameter), []).append(module)
    if not any(isinstance(module, VocabParallelHead) for module in model.modules()):
        return
    here = VocabParallelEmbedding if stage.is_first else VocabParallelHead if stage.is_last else ()
    for modules in readers.values():
        of_vocabulary = all(isinstance(module, VocabParallelEmbedding | VocabParallelHead) for module in modules)
        if of_vocabulary and not any(isinstance(module, here) for module in modules):
            for module in modules:
                module.register_parameter("weight", None)


def _up_to(size: int) -> str:
    return ", ".join(map(str, range(1, size + 1)))
