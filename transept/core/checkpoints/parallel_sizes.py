"""check_parallel_sizes: among how many processes a model's layers can be split. Called by the engine."""

from __future__ import annotations

import torch

from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.layer import LayerContext
from transept.core.checkpoints.model_description import ModelDescription, build_model
from transept.core.layers.staging import check_stages
from transept.core.parallel_group import ParallelGroup
from transept.errors import ParameterError, PluginError


def check_parallel_sizes(described: ModelDescription, size: int, num_stages: int) -> None:
    """Raise where a model cannot be split among so many stages of so many processes; it says among how many it can.

    Raises ParameterError, and PluginError for a model whose layers cannot be told.
    """
    why = _reason_against(described, size, num_stages)
    if isinstance(why, ParameterError):
        num_heads = described.shape.num_kv_heads
        fitting = [str(each) for each in range(1, num_heads + 1) if _reason_against(described, each, 1) is None]
        if str(size) not in fitting:
            raise ParameterError(
                f"{why}. All layers of this model can be split by tensor_parallel_size={', '.join(fitting)}"
            )
    if why is not None:
        raise why


def _reason_against(described: ModelDescription, size: int, num_stages: int) -> ParameterError | PluginError | None:
    """What the model's layers say, as one rank would build them, without memory for weights."""
    try:
        ParallelGroup(0, size).share(described.shape.num_kv_heads, "heads of keys and values")
        with torch.device("meta"):
            model = build_model(described, LayerContext(TorchBackend(), ParallelGroup(0, size)))
        check_stages(model, described.shape, num_stages)
    except (ParameterError, PluginError) as error:
        return error
    except Exception:  # what cannot be built without memory is built, or refused, by the workers
        return None
    return None
