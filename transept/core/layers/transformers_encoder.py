"""transformers_encoder: a transformers encoder inside a Transept model, for families with an unusual encoder.

It runs transformers' code on batches of features of one shape: no packed weights, no kernels, no sharding. That is
acceptable if the encoder runs once for many decoded tokens.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from transept.registry.spec import resolve

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def transformers_encoder(config: PretrainedConfig, model_class: str | None = None, **options: Any) -> nn.Module:
    """Make the model that AutoModel makes from an encoder's config, such as ``config.encoder``.

    Call it in `__init__` of a model. The state_dict has transformers' names, which checkpoints usually also have.
    Call the encoder with keywords, as in transformers: ``encoder(pixel_values=batch).last_hidden_state`` is [batch,
    tokens, hidden].

    model_class: ``"package.module:Name"`` of a transformers class, if AutoModel makes another class from this config,
        or does not know it.
    options: of that class, such as ``add_pooling_layer=False``.

    The encoder runs transformers' code: no packed weights, no quantization. Every process of a parallel group computes
    the whole encoder. pipeline_parallel_size is refused, unless layers of Transept's follow it in the encoder. Weights
    are random until the checkpoint's are loaded; the global random state does not change.
    """
    from transformers import AutoModel

    make = AutoModel.from_config if model_class is None else resolve(model_class)._from_config
    with torch.random.fork_rng(devices=[]):
        made: nn.Module = make(copy.deepcopy(config), dtype=torch.get_default_dtype(), **options)
    return made
