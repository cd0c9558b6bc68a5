"""Which weights of a model are stored as kernels read them, and how."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import Linear
from transept.core.layers.stored_weights import (
    ALIGNED,
    CpuFloat,
    CpuFloatOfMany,
    CpuInt8,
    CpuWeight,
    GpuFp8,
    GpuInt8,
    StoredWeight,
)
from transept.core.layers.transformer import EncoderLayer

# device type -> what quantization= stores weights as
QUANTIZED: Mapping[str, Mapping[str, type[StoredWeight]]] = {
    "cpu": {"int8": CpuInt8},
    "cuda": {"int8": GpuInt8, "fp8": GpuFp8},
}


def weight_class(device: torch.device, dtype: torch.dtype, quantization: str | None) -> type[StoredWeight] | None:
    """What weights are stored as; None where they stay parameters."""
    if quantization is not None:
        return QUANTIZED[device.type][quantization]
    return CpuFloat if device.type == "cpu" and dtype is torch.float32 else None


def store_weights(
    model: nn.Module, stored_as: type[StoredWeight], *, long_inputs: bool = False
) -> Callable[[Tensor], None]:
    """What stores weights of linear layers and of the vocabulary matrix so; to be called with each once it is loaded.

    stored_as: see `weight_class`. long_inputs: whether encoders always read hundreds of tokens. What other modules read
    too stays as it is, and so do, on a GPU, weights of sizes that its products do not take.
    """
    readers = {
        id(weight): modules
        for weight, modules in _weights(model)
        if not all(isinstance(module, VocabParallelEmbedding) for module in modules)
        and (issubclass(stored_as, CpuWeight) or not weight.shape[1] % ALIGNED)
    }

    layers = [layer for layer in model.modules() if long_inputs and isinstance(layer, EncoderLayer)]
    of_many = {id(module) for layer in layers for module in layer.modules()}

    def store(weight: Tensor) -> None:
        modules = readers.pop(id(weight), [])
        if not modules:
            return
        many = stored_as is CpuFloat and all(id(module) in of_many for module in modules)
        stored = CpuFloatOfMany(weight) if many else stored_as(weight)
        for module in modules:
            del module.weight
            module.weight = stored  # type: ignore[assignment]  # it is no Parameter, and need not be one
        weight.data = weight.new_empty(0)  # whoever still holds it holds no memory

    return store


def _weights(model: nn.Module) -> list[tuple[nn.Parameter, list[nn.Module]]]:
    """The weights of linear layers, embeddings and heads, with those that read each; none that another module reads."""
    readers: dict[int, list[nn.Module]] = defaultdict(list)
    weights: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            readers[id(parameter)].append(module)
            weights[id(parameter)] = parameter
    known = (Linear, VocabParallelEmbedding, VocabParallelHead)
    return [
        (weight, readers[key])
        for key, weight in weights.items()
        if all(isinstance(module, known) and module.weight is weight for module in readers[key])
    ]
