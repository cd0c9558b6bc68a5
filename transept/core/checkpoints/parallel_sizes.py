"""Check that a model's layers can be split among the ranks and stages that are asked for. Called by the engine."""

from __future__ import annotations

import logging

import torch

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.torch import TorchBackend
from transept.core.checkpoints.model_description import ModelDescription, build_model
from transept.core.layers.pipeline_partition import check_stages
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError, ParameterError, PluginError

logger = logging.getLogger(__name__)


def check_parallel_sizes(described: ModelDescription, size: int, num_stages: int) -> None:
    """Raise ParameterError if a model cannot be split among `num_stages` stages of `size` ranks each.

    The message names the sizes that fit. Raises PluginError if the model's layers cannot be found.
    """
    why = _reason_against(described, size, num_stages)
    if isinstance(why, ParameterError):
        num_heads = described.shape.num_kv_heads
        fitting = [str(each) for each in range(1, num_heads + 1) if _reason_against(described, each, 1) is None]
        if str(size) not in fitting:
            message = f"{why.message}. All layers of this model can be split by {{tensor_parallel_size}}: "
            raise ParameterError(message + ", ".join(fitting), param="tensor_parallel_size", value=size)
    if why is not None:
        raise why


def _reason_against(described: ModelDescription, size: int, num_stages: int) -> ParameterError | PluginError | None:
    """Return the error of building one rank's layers, without memory for weights; None if they can be built."""
    try:
        ParallelGroup(0, size).share(described.shape.num_kv_heads, "heads of keys and values")
        with torch.device("meta"):
            model = build_model(described, LayerContext(TorchBackend(), ParallelGroup(0, size)))
        check_stages(model, described.shape, num_stages)
    except (ParameterError, PluginError) as error:
        return error
    except (CheckpointError, RuntimeError):  # a model that reads numbers while it is built, or a wrong checkpoint
        logger.debug("the model cannot be built without memory; its workers check the sizes", exc_info=True)
    return None
