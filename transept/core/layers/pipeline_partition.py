"""Staging: strip a model to its pipeline stage. Called by the worker before any weight is loaded.

Models call their layers one after the other, or let DecoderLayers do so. An identity module replaces each layer of
another stage. The identity before this stage's first layer receives hidden states from the previous stage, and the one
after its last layer sends them to the next stage. So models need no code for stages.
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
    """An identity in place of another stage's layer. pass_on: receives or sends the hidden states; None: neither."""

    def __init__(self, pass_on: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self._pass_on = pass_on

    def forward(self, x: Tensor, *others: Any, **options: Any) -> Tensor:
        """Pass on x, [tokens, hidden]. Returns the same shape."""
        return x if self._pass_on is None else self._pass_on(x)


def check_stages(model: nn.Module, shape: ModelShape, count: int) -> None:
    """Raise ParameterError if a model has fewer layers than stages, PluginError if its layers cannot be found."""
    if count == 1:
        return
    encoder, decoder = (len(layers) for layers in layer_lists(model, shape.num_decoder_layers))
    if count > min(encoder, decoder):
        fitting = ", ".join(map(str, range(1, min(encoder, decoder) + 1)))
        raise ParameterError(
            f"{{pipeline_parallel_size=}} is more than this model has layers: {encoder} in the encoder, {decoder} "
            f"in the decoder. It can be split by {{pipeline_parallel_size}} {fitting}",
            param="pipeline_parallel_size",
            value=count,
        )


def keep_stage(model: nn.Module, shape: ModelShape, stage: PipelineStage) -> set[str]:
    """Remove other stages' layers from a model, and embeddings and heads that this stage does not need.

    Returns the removed names of the model's state_dict, which other stages load.
    Raises ParameterError and PluginError, see `check_stages`.
    """
    if stage.count == 1:
        return set()
    check_stages(model, shape, stage.count)
    before = {*model.state_dict(keep_vars=True)}
    encoder, decoder = layer_lists(model, shape.num_decoder_layers)
    for layers, own in ((encoder, stage.layers(len(encoder))), (decoder, stage.decoder_layers(shape))):
        for index in range(len(layers)):
            if index not in own:
                hands = {own.start - 1: stage.recv, own.stop: stage.send}
                layers[index] = LayerElsewhere(hands.get(index))
    _keep_vocabulary(model, stage)
    return before - {*model.state_dict(keep_vars=True)}


def layer_lists(model: nn.Module, num_decoder_layers: int) -> tuple[nn.ModuleList, nn.ModuleList]:
    """Return the encoder's and the decoder's list of layers.

    They are the two ModuleLists whose modules all contain attention: one in an encoder layer, two (self- and
    cross-attention) in a decoder layer. Raises PluginError if there are other such lists, or fewer.
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
    """Keep embeddings only in the first stage, and heads only in the last; a tied matrix is in both.

    A matrix that another module also reads stays in every stage, and so do all matrices of a model without a head.
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
