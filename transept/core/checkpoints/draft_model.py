"""Draft models: smaller checkpoints whose tokens are drafts of another model's output.

`find_draft_model` reads and checks one before any weight is loaded. The engine calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.checkpoints.model_description import ModelDescription, build_model, describe_model
from transept.core.checkpoints.parallel_sizes import check_parallel_sizes
from transept.core.checkpoints.source import locate
from transept.core.config import EngineConfig
from transept.core.model import ForConditionalGeneration
from transept.core.model_shape import ModelShape
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError, ParameterError, PluginError, UnsupportedModelError
from transept.registry.plugin_calls import tokenizers_of
from transept.registry.plugins import Plugins

logger = logging.getLogger(__name__)


class DraftModel(NamedTuple):
    """The draft model of an engine. All fields are None or False for an engine without a draft model.

    path: of its checkpoint. shares_encoder: True if it reads the output of the target's encoder.
    """

    path: Path | None = None
    shape: ModelShape | None = None
    shares_encoder: bool = False


def find_draft_model(config: EngineConfig, target: ModelDescription, plugins: Plugins | None = None) -> DraftModel:
    """Find the draft model of a config, and check that it can draft for the target.

    Raises ParameterError if it cannot, and what `locate` raises.
    """
    name = config.draft_model
    if name is None:
        return DraftModel()
    if config.pipeline_parallel_size > 1:
        advice = "leave out one of them, or split the model by {tensor_parallel_size}"
        raise _refusal(name, "does not work with {pipeline_parallel_size}; " + advice, "pipeline_parallel_size")
    path = locate(name, model_dir=config.model_dir, offline=config.offline, plugins=plugins)
    try:
        draft = describe_model(path, name, config.plugin, plugins)
    except (CheckpointError, UnsupportedModelError, PluginError) as error:
        raise _refusal(name, f"cannot be read: {error}") from error
    if (difference := _difference(target, draft)) is not None:
        advice = "Give a smaller model of the same family, with the same tokenizer and the same kind of input"
        raise _refusal(name, f"cannot draft for {{model}}: {difference}. {advice}", "model")
    if config.num_ranks > 1:
        try:
            check_parallel_sizes(draft, config.tensor_parallel_size, 1)
        except (ParameterError, PluginError) as error:
            raise _refusal(name, f"cannot be split: {error}", "tensor_parallel_size") from error
    shares = _have_same_encoder(target, draft)
    logger.info("the draft model %s", "shares the encoder's output" if shares else "has its own encoder")
    return DraftModel(path, draft.shape, shares)


def _refusal(name: str, problem: str, *others: str) -> ParameterError:
    return ParameterError(f"{{draft_model}} {name!r} {problem}", param="draft_model", value=name, others=others)


def _difference(target: ModelDescription, draft: ModelDescription) -> str | None:
    """Return why a model cannot draft for another; None if it can."""
    ours, theirs = target.shape, draft.shape
    if ours.vocab_size != theirs.vocab_size:
        return f"its vocabulary has {theirs.vocab_size} tokens, and the model's has {ours.vocab_size}"
    if ours.encoder_takes_text != theirs.encoder_takes_text:
        text, other = "text", "other input"
        kinds = (text, other) if theirs.encoder_takes_text else (other, text)
        return "its encoder takes {}, and the model's takes {}".format(*kinds)
    if ours.encoder_takes_text and _source_size(target) != _source_size(draft):
        return f"its encoder knows {_source_size(draft)} tokens, and the model's knows {_source_size(target)}"
    if not ours.encoder_takes_text and ours.max_source_positions != theirs.max_source_positions:
        lengths = theirs.max_source_positions, ours.max_source_positions
        return "its encoder's longest output has {} rows, and the model's encoder's has {}".format(*lengths)
    shapes = [_feature_shapes(each) for each in (target, draft)]
    if shapes[0] != shapes[1]:
        return f"its encoder takes {shapes[1]}, and the model's takes {shapes[0]}"
    if ours.window is not None or theirs.window is not None:
        return "one of them has attention windows in all layers, and frees the blocks outside"
    for side, own, other in zip(("encoder", "decoder"), _vocabularies(target), _vocabularies(draft), strict=True):
        if own is not None and other is not None and own != other:
            return f"its {side}'s tokenizer has other tokens"
    return None


def _source_size(described: ModelDescription) -> int:
    return described.shape.source_vocab_size or described.shape.vocab_size


def _feature_shapes(described: ModelDescription) -> dict[str, list[int]]:
    """Return the shapes of the longest input's features, by name; empty if the plugin does not declare them."""
    try:
        features = described.model_class.longest_features(described.config)
    except PluginError:
        return {}
    return {name: [*each.shape] for name, each in features.items()}


def _vocabularies(described: ModelDescription) -> list[Any]:
    """Return the ids of the encoder's and the decoder's tokens; None without a tokenizer that lists them."""
    tokenizers = tokenizers_of(described.spec, described.view)
    return [each.get_vocab() if hasattr(each, "get_vocab") else None for each in tokenizers]


def encoder_names(model: ForConditionalGeneration) -> set[str]:
    """Return the names of the encoder's parameters and buffers in the model's state; empty without `encoder`.

    A parameter that the decoder shares has several names.
    """
    encoder = getattr(model, "encoder", None)
    if not isinstance(encoder, nn.Module):
        return set()
    own = {id(each) for each in encoder.state_dict(keep_vars=True).values()}
    return {name for name, each in model.state_dict(keep_vars=True).items() if id(each) in own}


def drop_encoder(model: ForConditionalGeneration) -> set[str]:
    """Remove the encoder of a draft model that shares the target's. Returns the names of weights not to load.

    An encoder that shares parameters with the decoder stays.
    """
    names = encoder_names(model)
    if any(not name.startswith("encoder.") for name in names):
        return set()
    model.encoder = None
    return names


def _have_same_encoder(target: ModelDescription, draft: ModelDescription) -> bool:
    """True if the two checkpoints have equal encoders: the same weights, by name, shape and value."""
    if target.model_class is not draft.model_class:
        return False
    try:
        with torch.device("meta"):
            models = [build_model(each, LayerContext(TorchBackend(), ParallelGroup())) for each in (target, draft)]
    except (CheckpointError, ParameterError, PluginError, RuntimeError):
        logger.debug("the encoders cannot be compared", exc_info=True)
        return False
    ours, theirs = (encoder_names(model) for model in models)
    if not ours or ours != theirs:
        return False
    shapes = [{name: each.shape for name, each in model.state_dict().items() if name in ours} for model in models]
    if shapes[0] != shapes[1]:
        return False
    drafted = dict(_weights(draft, theirs))
    num_equal = 0
    for name, tensor in _weights(target, ours):
        other = drafted.get(name)
        if other is None or tensor.shape != other.shape or not torch.equal(tensor, other.to(tensor.dtype)):
            return False
        num_equal += 1
    return num_equal == len(drafted) > 0


def _weights(described: ModelDescription, names: set[str]) -> Iterator[tuple[str, Tensor]]:
    """Yield the targets of a checkpoint's weights among some names of the model, and the weights."""
    weight_map = described.weight_map
    for name, tensor in described.checkpoint.tensors():
        if weight_map.is_ignored(name):
            continue
        target = weight_map.tied_target(name) or weight_map.target(name)
        if target is not None and target.partition("#")[0] in names:
            yield target, tensor
