"""ModelDescription: a model as its checkpoint and its plugin describe it, before any weight is read.

The engine's process and every worker's process make it once. A plugin's code may raise anything for a config with a
wrong value. That exception becomes the cause of a CheckpointError, which names the file and the values that were read
last.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import torch

from transept.core.attention.attention import LayerContext
from transept.core.checkpoints.checkpoint import Checkpoint, cause_of
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config, load_generation_config, load_tokenizer, plain_files
from transept.core.checkpoints.size_limit import SizeLimit
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.model import ForConditionalGeneration
from transept.core.model_shape import ModelShape
from transept.errors import CheckpointError, ParameterError, PluginError, PromptError
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.lookup import find_model
from transept.registry.plugin_calls import call_prompt_rule, plugin_failure, plugin_named
from transept.registry.plugins import Plugins, discover
from transept.registry.spec import ModelSpec, resolve

VALUES_SHOWN = 12
LONGEST_VALUE = 60  # characters of a value


@dataclass(frozen=True)
class ModelDescription:
    """A model before its weights are read. view: for the plugin's functions; has the config of the model."""

    spec: ModelSpec
    checkpoint: Checkpoint
    weight_map: WeightMap
    view: CheckpointView
    model_class: type[ForConditionalGeneration]
    shape: ModelShape

    @property
    def config(self) -> Any:
        """The model's config: of transformers, or derived by the plugin's weight map."""
        return self.view.config

    @property
    def names_of_adapters(self) -> WeightMap:
        """The weight map for Hugging Face's names, which adapters have. Raises CheckpointError without one."""
        maps = self.spec.weight_maps
        if "huggingface" not in maps:
            raise CheckpointError(
                f"{self.spec.known_as} has no weight map for Hugging Face's names, which adapters have. Merge the "
                "adapter before the checkpoint is converted"
            )
        names = _imported(self.spec, maps["huggingface"])
        assert isinstance(names, WeightMap)
        return names


def describe_model(path: Path, source: str, plugin: str | None, plugins: Plugins | None = None) -> ModelDescription:
    """Read a checkpoint directory's config and find the plugin that runs it.

    source: the user's name for the checkpoint, for messages. plugin: its name, if several run the model.
    plugins: the discovered plugins; None: discover them.
    Raises CheckpointError, UnsupportedModelError, PluginError.
    """
    checkpoint = open_checkpoint(path)
    spec = find_model(plugins or discover(), checkpoint.architectures, checkpoint.config_dict, source, plugin)
    with plugin_named(spec):
        return _described(checkpoint, spec)


def _described(checkpoint: Checkpoint, spec: ModelSpec) -> ModelDescription:
    path = checkpoint.path
    if checkpoint.format not in spec.weight_maps:
        known = ", ".join(sorted(spec.weight_maps)) or "none"
        raise CheckpointError(f'"{path}" is a {checkpoint.format} checkpoint; the "{spec.name}" plugin reads: {known}')
    weight_map = _imported(spec, spec.weight_maps[checkpoint.format])
    if not isinstance(weight_map, WeightMap):
        kind = type(weight_map).__name__
        raise PluginError(f"the {checkpoint.format} weight map of {spec.known_as} is a {kind}; it must be a WeightMap")
    checkpoint.is_known = weight_map.is_known
    made_by = f"the weight map of {spec.known_as}"
    config = load_config(checkpoint, weight_map, made_by)
    model_class = _imported(spec, spec.model_class)
    if not (isinstance(model_class, type) and issubclass(model_class, ForConditionalGeneration)):
        raise PluginError(f'"{spec.model_class}" of {spec.known_as} must be a subclass of ForConditionalGeneration')
    shape = _model_shape(model_class, config, checkpoint, spec)
    view = CheckpointView(
        path,
        config,
        load_generation_config=partial(load_generation_config, checkpoint, weight_map, config, made_by),
        load_tokenizer=partial(load_tokenizer, path, plain_files(weight_map, config)),
    )
    return ModelDescription(spec, checkpoint, weight_map, view, model_class, shape)


def _imported(spec: ModelSpec, reference: Any) -> Any:
    """Import the object of a plugin's reference. Raises PluginError if that fails."""
    try:
        return resolve(reference)
    except PluginError:
        raise
    except Exception as error:  # of a plugin's module, or of its imports
        raise PluginError(f'"{reference}" of {spec.known_as} cannot be imported: {cause_of(error)}') from error


def _model_shape(
    model_class: type[ForConditionalGeneration], config: Any, checkpoint: Checkpoint, spec: ModelSpec
) -> ModelShape:
    """Return the shape of the model that a config describes.

    Raises CheckpointError if the model class raises.
    """
    try:
        shape: Any = model_class.shape(config)
    except PluginError:
        raise
    except Exception as error:
        read = _ReadValues(config)
        with suppress(Exception):
            model_class.shape(read)
        raise _undescribed(f"{model_class.__name__} of {spec.known_as}", checkpoint, error, read) from error
    if not isinstance(shape, ModelShape):
        raise PluginError(f"{model_class.__name__}.shape returned {type(shape).__name__}; it must return a ModelShape")
    return shape


def check_default_prompt(described: ModelDescription) -> None:
    """Raise CheckpointError if a config's default decoder prompt has ids outside the vocabulary.

    Raises PluginError if the plugin is at fault: its function raises, does not return a list, or reads nothing of the
    checkpoint.
    """
    vocab_size, rule = described.shape.vocab_size, f"the default_decoder_prompt of {described.spec.known_as}"
    try:
        _check_prompt(described.spec, described.view, vocab_size)
    except CheckpointError as error:
        read = _ReadValues(described.config)
        view = _ReadValues(described.view.with_config(read))
        with suppress(Exception):
            _check_prompt(described.spec, view, vocab_size)
        if not view.any_read:
            raise PluginError(f"{rule} gives no list of token ids: {error}") from error
        raise _undescribed(f"prompt by {rule}", described.checkpoint, error, read) from error


def build_model(described: ModelDescription, context: LayerContext) -> ForConditionalGeneration:
    """Build the model of a config, with empty parameters on the default device and in the default dtype.

    Raises CheckpointError if the model class raises, and, before memory is allocated, for a model that is far larger
    than the checkpoint's weights. Raises ParameterError if the context's group does not divide its layers.
    """
    model_class, config, checkpoint = described.model_class, described.config, described.checkpoint
    try:
        with SizeLimit(checkpoint):
            model = model_class(config, context)
    except (ParameterError, PluginError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        read = _ReadValues(config)
        with suppress(Exception), SizeLimit(checkpoint):
            model_class(read, context)
        what = f"{model_class.__name__} of {described.spec.known_as}"
        raise _undescribed(what, checkpoint, error, read) from error
    if "_modules" not in vars(model):
        raise PluginError(f"{model_class.__name__}.__init__ does not call super().__init__(config, context)")
    _check_cross_attentions(model, described)
    return model


def _check_cross_attentions(model: ForConditionalGeneration, described: ModelDescription) -> None:
    """Raise PluginError unless the model has an object that makes keys and values for each decoder layer."""
    method, num_layers = f"{type(model).__name__}.cross_attentions", described.shape.num_decoder_layers
    try:
        found: Any = [*model.cross_attentions()]
    except Exception as error:
        raise plugin_failure(described.spec, method, error) from error
    unfit = [each for each in found if each is not None and not callable(getattr(each, "keys_and_values", None))]
    if len(found) != num_layers or unfit:
        returned = f"a {type(unfit[0]).__name__} without keys_and_values" if unfit else f"{len(found)} modules"
        raise PluginError(
            f"{method} of {described.spec.known_as} returned {returned}; its shape has {num_layers} decoder layers. "
            "Give each layer a CrossAttention, as DecoderLayer has, or override cross_attentions to return an object "
            "with keys_and_values(encoder_hidden) for each layer, None for one without cross-attention"
        )


def _check_prompt(spec: ModelSpec, view: Any, vocab_size: int) -> None:
    """Check the default prompt. None is allowed in it, because a request may have a decoder prompt."""
    try:
        prompt = call_prompt_rule(spec, "default_decoder_prompt", view)
    except PromptError:  # of a family that always requires a prompt from the user
        return
    if not prompt:
        raise CheckpointError("the default decoder prompt is empty")
    for token in prompt:
        if token is not None and not (isinstance(token, Integral) and 0 <= int(token) < vocab_size):
            raise CheckpointError(f"the default decoder prompt is {prompt}; token ids are from 0 to {vocab_size - 1}")


class _ReadValues:
    """Wraps a config or a view, and records the values that are read, the last one at the end."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._read: dict[str, Any] = {}
        self.any_read = False  # including failed attempts

    def __getattr__(self, name: str) -> Any:
        self.any_read = True
        value = getattr(self._config, name)
        self._read.pop(name, None)
        self._read[name] = value
        return value

    def __str__(self) -> str:
        last = list(self._read.items())[-VALUES_SHOWN:]
        return ", ".join(f"{name}={_shortened(value)}" for name, value in last if not callable(value))


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _undescribed(what: str, checkpoint: Checkpoint, error: Exception, read: _ReadValues) -> CheckpointError:
    """Return the error of a family's function, or of another file of the checkpoint if that is at fault."""
    message, folder, file = str(error), f'"{checkpoint.path}/', f'"{checkpoint.config_file}"'
    if isinstance(error, CheckpointError) and message.startswith(folder) and not message.startswith(file):
        return CheckpointError(message)
    values = f". Of its values these were read last: {read}" if str(read) else ""
    cause = message if isinstance(error, CheckpointError) else cause_of(error)
    return CheckpointError(f'"{checkpoint.config_file}" does not describe a {what}: {cause}{values}')
