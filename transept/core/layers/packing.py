"""Packing: which weights of a model are packed as kernels read them. Called by the worker."""

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
    """Packs weights of a model's linear layers, convolutions and its vocabulary matrix, each as soon as it is loaded.

    Their parameters move to the meta device, where they keep shape and dtype but no memory: what a checkpoint holds for
    one goes straight to `pack`. What other modules read too stays as it is, and so does what no kernel packs.
    """

    def __init__(
        self, model: nn.Module, device: str, quantization: str | None = None, *, long_inputs: bool = False
    ) -> None:
        """device: type of the one whose kernels are to multiply. long_inputs: whether encoders always read hundreds of
        tokens.
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

        weight: what it stands for, in any dtype, from a file that may be mapped.
        """
        modules = self._readers[id(parameter)]
        long_inputs = all(id(module) in self._of_long_inputs for module in modules)
        pack = self._kernel(parameter, long_inputs=long_inputs)
        assert pack is not None
        if self._kernel_device != "cpu":  # where kernels read any dtype
            weight = weight.to(self._devices[id(parameter)], parameter.dtype)
        if weight.dim() == 3:
            weight, long_inputs = rows_of_products(weight), True
        packed = PackedWeight(pack(weight), weight.shape, HUNDREDS if long_inputs else 1, self._encoder_rows)
        for module in modules:
            module.packed = packed


def _without_memory(weight: nn.Parameter) -> nn.Parameter:
    """The same parameter on the meta device."""
    empty = type(weight)(torch.empty_like(weight, device="meta"), requires_grad=False)
    if isinstance(weight, StackedParameter) and isinstance(empty, StackedParameter):
        empty.parts, empty.shards = weight.parts, weight.shards
    return empty


def _weights(model: nn.Module) -> list[tuple[nn.Parameter, list[Reader]]]:
    """The weights of Readers, with those that read each; none that another module reads."""
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
