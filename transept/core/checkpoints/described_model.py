"""From a checkpoint's config to the shape and the modules of its model; values that make none are CheckpointErrors.

Called by the engine, then by the worker. A plugin's code may raise anything over a config with a wrong value. What it
raised is the cause of the error here, which names the file and the values that were read of it last.
"""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral
from typing import Any

import torch

from transept.core.attention.layer import LayerContext
from transept.core.checkpoints.checkpoint import Checkpoint, cause_of
from transept.core.checkpoints.size_limit import SizeLimit
from transept.core.model import ForConditionalGeneration, ModelShape
from transept.errors import CheckpointError, PluginError, PromptError
from transept.registry.spec import ModelSpec

VALUES_SHOWN = 12
LONGEST_SHOWN = 60  # characters of a value


def model_shape(
    spec: ModelSpec, model_class: type[ForConditionalGeneration], config: Any, checkpoint: Checkpoint
) -> ModelShape:
    """The shape of the model that a config describes.

    Raises CheckpointError for a config of which the model class makes no shape, and for one whose default decoder
    prompt holds what is no token of the vocabulary.
    """
    try:
        shape = model_class.shape(config)
        _check_default_prompt(spec, config, shape.vocab_size)
    except PluginError:
        raise
    except Exception as error:
        read = _ReadValues(config)
        with suppress(Exception):
            _check_default_prompt(spec, read, model_class.shape(read).vocab_size)
        raise _undescribed(model_class, checkpoint, error, read) from error
    return shape


def build_model(
    model_class: type[ForConditionalGeneration], config: Any, context: LayerContext, checkpoint: Checkpoint
) -> ForConditionalGeneration:
    """The model that a config describes, its parameters empty, on the current default device and in the default dtype.

    Raises CheckpointError for a config that the model class cannot be built from, and for one that asks for far more
    than the checkpoint's weights could fill, before that is allocated.
    """
    try:
        with SizeLimit(checkpoint):
            return model_class(config, context)
    except (PluginError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        read = _ReadValues(config)
        with suppress(Exception), SizeLimit(checkpoint):
            model_class(read, context)
        raise _undescribed(model_class, checkpoint, error, read) from error


def _check_default_prompt(spec: ModelSpec, config: Any, vocab_size: int) -> None:
    """None in it is left to the request: a user may give a decoder prompt where a checkpoint has no default."""
    try:
        prompt: list[Any] = list(spec.default_decoder_prompt(config))
    except PromptError:  # a family that always wants one from the user
        return
    for token in prompt:
        if token is not None and not (isinstance(token, Integral) and 0 <= int(token) < vocab_size):
            raise CheckpointError(
                f"the default decoder prompt is {prompt}, where token ids go from 0 to {vocab_size - 1}"
            )


class _ReadValues:
    """A config that remembers which of its values were read, the last one at the end."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._read: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._config, name)
        self._read.pop(name, None)
        self._read[name] = value
        return value

    def __str__(self) -> str:
        last = list(self._read.items())[-VALUES_SHOWN:]
        return ", ".join(f"{name}={_shortened(value)}" for name, value in last if not callable(value))


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _undescribed(model_class: type, checkpoint: Checkpoint, error: Exception, read: _ReadValues) -> CheckpointError:
    cause = str(error) if isinstance(error, CheckpointError) else cause_of(error)
    return CheckpointError(
        f'"{checkpoint.config_file}" describes no {model_class.__name__}: {cause}. Of its values these were read last: '
        f"{read}"
    )
