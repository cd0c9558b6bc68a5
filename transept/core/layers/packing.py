"""WeightPacker: packs weights of a model in the order in which kernels read them. Called by the worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor, nn

from transept.core.kernels.dispatch import HUNDREDS, PACK, PACK_CONVOLUTION, Panels
from transept.core.layers.convolution import GeluConv1d, rows_of_products
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import Linear, StackedParameter
from transept.core.layers.packed_weights import PackedWeight
from transept.core.layers.transformer import EncoderLayer

Reader = Linear | VocabParallelEmbedding | VocabParallelHead | GeluConv1d


class WeightPacker:
    """Packs the weights of a model's linear layers, convolutions and vocabulary matrix, as each is loaded.

    Their parameters move to the meta device, with shape and dtype but without memory: the loader passes a checkpoint's
    tensors to `pack`. A weight that other modules also read, or that no kernel packs, is not changed.
    """

    def __init__(
        self, model: nn.Module, device: str, quantization: str | None = None, *, long_inputs: bool = False
    ) -> None:
        """Prepare a model. device: type of the device whose kernels multiply.

        long_inputs: True if encoders always read hundreds of tokens.
        """
        self._kernel_device, self._quantization = device, quantization
        self._encoder_rows = HUNDREDS if long_inputs else 1
        self._readers: dict[int, list[Reader]] = {}  # by the id of their parameter
        self._devices: dict[int, torch.device] = {}
        layers = [layer for layer in model.modules() if long_inputs and isinstance(layer, EncoderLayer)]
        self._of_long_inputs = {id(module) for layer in layers for module in layer.modules()}
        for weight, modules in _weights(model):
            embeds = all(isinstance(module, VocabParallelEmbedding) for module in modules)
            if not embeds and self._kernel(weight) is not None:
                empty = _without_memory(weight)
                for module in modules:
                    module.weight = empty
                self._readers[id(empty)], self._devices[id(empty)] = modules, weight.device

    def _kernel(self, weight: Tensor, *, long_inputs: bool = False) -> Callable[[Tensor], Panels] | None:
        operation = PACK_CONVOLUTION if weight.dim() == 3 else PACK
        return operation.find(
            device=self._kernel_device,
            dtype=weight.dtype,
            inputs=weight.shape[1],
            quantization=self._quantization,
            long_inputs=long_inputs,
        )

    def pack(self, parameter: Tensor, weight: Tensor) -> None:
        """Set `packed` of the modules that read a parameter.

        weight: the parameter's values, in any dtype; may be memory-mapped.
        """
        modules = self._readers[id(parameter)]
        long_inputs = all(id(module) in self._of_long_inputs for module in modules)
        pack = self._kernel(parameter, long_inputs=long_inputs)
        assert pack is not None
        if self._kernel_device != "cpu":  # CPU kernels pack any dtype
            weight = weight.to(self._devices[id(parameter)], parameter.dtype)
        if weight.dim() == 3:
            weight, long_inputs = rows_of_products(weight), True
        packed = PackedWeight(pack(weight), weight.shape, HUNDREDS if long_inputs else 1, self._encoder_rows)
        for module in modules:
            module.packed = packed


def _without_memory(weight: nn.Parameter) -> nn.Parameter:
    """Return a copy of the parameter on the meta device."""
    empty = type(weight)(torch.empty_like(weight, device="meta"), requires_grad=False)
    if isinstance(weight, StackedParameter) and isinstance(empty, StackedParameter):
        empty.parts, empty.shards = weight.parts, weight.shards
    return empty


def _weights(model: nn.Module) -> list[tuple[nn.Parameter, list[Reader]]]:
    """Return the weights that only Readers read, each with its Readers."""
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
