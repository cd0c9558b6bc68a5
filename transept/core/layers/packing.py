"""Packing: which weights of a model are packed as kernels read them, and as what. Called by the worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import Linear, StackedParameter
from transept.core.layers.packed_weights import (
    ALIGNED,
    CpuFloat,
    CpuFloatOfMany,
    CpuInt8,
    CpuWeight,
    GpuFp8,
    GpuInt8,
    PackedWeight,
)
from transept.core.layers.transformer import EncoderLayer

Reader = Linear | VocabParallelEmbedding | VocabParallelHead

# device type -> what quantization= packs weights as
QUANTIZED: Mapping[str, Mapping[str, type[PackedWeight]]] = {
    "cpu": {"int8": CpuInt8},
    "cuda": {"int8": GpuInt8, "fp8": GpuFp8},
}


def weight_class(device: torch.device, dtype: torch.dtype, quantization: str | None) -> type[PackedWeight] | None:
    """What weights are packed as; None where they stay parameters."""
    if quantization is not None:
        return QUANTIZED[device.type][quantization]
    return CpuFloat if device.type == "cpu" and dtype is torch.float32 else None


class WeightPacker:
    """Packs weights of a model's linear layers and its vocabulary matrix, each as soon as it is loaded.

    Their parameters move to the meta device, where they keep shape and dtype but no memory: what a checkpoint holds for
    one goes straight to `pack`. What other modules read too stays as it is, and so do, on a GPU, weights of sizes that
    its products do not take.
    """

    def __init__(self, model: nn.Module, packed_as: type[PackedWeight], *, long_inputs: bool = False) -> None:
        """packed_as: see `weight_class`. long_inputs: whether encoders always read hundreds of tokens."""
        self._packed_as = packed_as
        self._readers: dict[int, list[Reader]] = {}  # by the id of their parameter
        self._devices: dict[int, torch.device] = {}
        layers = [layer for layer in model.modules() if long_inputs and isinstance(layer, EncoderLayer)]
        self._reads_many = {id(module) for layer in layers for module in layer.modules()}
        for weight, modules in _weights(model):
            embeds = all(isinstance(module, VocabParallelEmbedding) for module in modules)
            if not embeds and (issubclass(packed_as, CpuWeight) or not weight.shape[1] % ALIGNED):
                empty = _without_memory(weight)
                for module in modules:
                    module.weight = empty
                self._readers[id(empty)], self._devices[id(empty)] = modules, weight.device

    def pack(self, parameter: Tensor, weight: Tensor) -> None:
        """Set `packed` of the modules that read a parameter.

        weight: what it stands for, in any dtype, from a file that may be mapped.
        """
        modules = self._readers[id(parameter)]
        many = self._packed_as is CpuFloat and all(id(module) in self._reads_many for module in modules)
        if not issubclass(self._packed_as, CpuWeight):
            weight = weight.to(self._devices[id(parameter)], parameter.dtype)
        packed = (CpuFloatOfMany if many else self._packed_as)(weight)
        for module in modules:
            module.packed = packed


def _without_memory(weight: nn.Parameter) -> nn.Parameter:
    """The same parameter on the meta device."""
    empty = type(weight)(torch.empty_like(weight, device="meta"), requires_grad=False)
    if isinstance(weight, StackedParameter) and isinstance(empty, StackedParameter):
        empty.parts = weight.parts
    return empty


def _weights(model: nn.Module) -> list[tuple[nn.Parameter, list[Reader]]]:
    """The weights of linear layers, embeddings and heads, with those that read each; none that another module reads."""
    readers: dict[int, list[nn.Module]] = defaultdict(list)
    weights: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            readers[id(parameter)].append(module)
            weights[id(parameter)] = parameter
    known = {
        key: [module for module in readers[key] if isinstance(module, Reader) and module.weight is weight]
        for key, weight in weights.items()
    }
    return [(weight, known[key]) for key, weight in weights.items() if len(known[key]) == len(readers[key])]
