"""How weights are stored once they are loaded: in float16 where it loses nothing, or in 8 bits where that is asked for.

What decodes on a CPU is bound by reading weights. Whisper's were published in float16, and so are many others; a
checkpoint in float32 may well hold such numbers. Every sum is still float32, and the same to the last bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from transept.core.kernels.float16 import widens_float16
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import Linear
from transept.core.layers.quantization import ALIGNED, CpuInt8, GpuFp8, GpuInt8, QuantizedWeight
from transept.core.layers.transformer import DecoderLayer

# device type -> the values of quantization= there
QUANTIZED: Mapping[str, Mapping[str, type[QuantizedWeight]]] = {
    "cpu": {"int8": CpuInt8},
    "cuda": {"int8": GpuInt8, "fp8": GpuFp8},
}


def narrow_weights(model: nn.Module) -> None:
    """Store the weights of decoder layers and of the vocabulary matrix in float16, where it holds them exactly.

    model: float32, on the CPU, with its weights loaded. A layer's weights are narrowed together or not at all, and a
    matrix only if all that share it can read it. A processor that cannot widen them as they are read leaves them alone.
    """
    if not widens_float16():
        return
    weights = _weights(model)
    for module in model.modules():
        if isinstance(module, DecoderLayer):
            linears = {id(linear.weight) for linear in module.modules() if isinstance(linear, Linear)}
            _narrow([weight for weight, _ in weights if id(weight) in linears])
    for weight, readers in weights:
        kinds = {type(reader) for reader in readers}
        if VocabParallelHead in kinds and kinds <= {VocabParallelEmbedding, VocabParallelHead}:
            _narrow([weight])


def quantize_weights(model: nn.Module, weight_class: type[QuantizedWeight]) -> Callable[[Tensor], None]:
    """What rounds weights of linear layers and of the vocabulary matrix to 8 bits; to be called with each once loaded.

    weight_class: one of QUANTIZED for the model's device. What other modules read too stays as it is, and so do, on a
    GPU, weights of sizes that its products do not take.
    """
    readers = {
        id(weight): modules
        for weight, modules in _weights(model)
        if not all(isinstance(module, VocabParallelEmbedding) for module in modules)
        and (weight_class is CpuInt8 or not weight.shape[1] % ALIGNED)
    }

    def quantize(weight: Tensor) -> None:
        modules = readers.pop(id(weight), [])
        if not modules:
            return
        quantized = weight_class(weight)
        for module in modules:
            del module.weight
            module.weight = quantized  # type: ignore[assignment]  # it is no Parameter, and need not be one
        weight.data = weight.new_empty(0)  # whoever still holds it holds no memory

    return quantize


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


def _narrow(weights: list[nn.Parameter]) -> None:
    if all(weight.dtype is torch.float32 and _fits(weight) for weight in weights):
        for weight in weights:
            weight.data = weight.to(torch.float16)


def _fits(weight: Tensor) -> bool:
    """Whether float16 holds every number of it. Most that do not fit show it in the first row."""
    return all(torch.equal(part.half().float(), part) for part in (weight[:1], weight))
