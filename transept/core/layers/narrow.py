"""Weights that lose nothing in float16 are stored in it: what decodes on a CPU is bound by reading them.

Whisper's weights were published in float16, and so are many others; a checkpoint in float32 may well hold such numbers.
Every sum is still float32, and the same to the last bit.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

from transept.core.kernels.float16 import widens_float16
from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from transept.core.layers.linear import Linear
from transept.core.layers.transformer import DecoderLayer


def narrow_weights(model: nn.Module) -> None:
    """Store the weights of decoder layers and of the vocabulary matrix in float16, where it holds them exactly.

    model: float32, on the CPU, with its weights loaded. A layer's weights are narrowed together or not at all, and a
    matrix only if all that share it can read it. A processor that cannot widen them as they are read leaves them alone.
    """
    if not widens_float16():
        return
    users: dict[int, list[nn.Module]] = defaultdict(list)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)].append(module)
        if isinstance(module, DecoderLayer):
            _narrow([linear.weight for linear in module.modules() if isinstance(linear, Linear)])
    for module in model.modules():
        if isinstance(module, VocabParallelHead) and all(
            isinstance(user, VocabParallelEmbedding | VocabParallelHead) for user in users[id(module.weight)]
        ):
            _narrow([module.weight])


def _narrow(weights: list[nn.Parameter]) -> None:
    if all(weight.dtype is torch.float32 and _fits(weight) for weight in weights):
        for weight in weights:
            weight.data = weight.to(torch.float16)


def _fits(weight: Tensor) -> bool:
    """Whether float16 holds every number of it. Most that do not fit show it in the first row."""
    return all(torch.equal(part.half().float(), part) for part in (weight[:1], weight))
