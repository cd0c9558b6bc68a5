"""check_parallel_size: among how many processes a model's layers can be split. Called by the engine."""

from __future__ import annotations

import torch

from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.layer import LayerContext
from transept.core.checkpoints.model_description import ModelDescription, build_model
from transept.core.parallel_group import ParallelGroup
from transept.errors import ParameterError


def check_parallel_size(described: ModelDescription, size: int) -> None:
    """Raise ParameterError where a model cannot be split among so many processes; it says among how many it can."""
    why = _reason_against(described, size)
    if why is None:
        return
    num_heads = described.shape.num_kv_heads
    fitting = [str(each) for each in range(1, num_heads + 1) if _reason_against(described, each) is None]
    raise ParameterError(f"{why}. All layers of this model can be split by tensor_parallel_size={', '.join(fitting)}")


def _reason_against(described: ModelDescription, size: int) -> str | None:
    """What the model's layers say, as one rank would build them, without memory for weights."""
    try:
        ParallelGroup(0, size).share(described.shape.num_kv_heads, "heads of keys and values")
        with torch.device("meta"):
            build_model(described, LayerContext(TorchBackend(), ParallelGroup(0, size)))
    except ParameterError as error:
        return str(error)
    except Exception:  # what cannot be built without memory is built, or refused, by the workers
        return None
    return None
