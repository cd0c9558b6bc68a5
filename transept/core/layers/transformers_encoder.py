"""transformers_encoder: an encoder of transformers inside a model of ours, for families with an unusual one.

It computes what transformers computes, features of one shape in a batch, and knows nothing of steps: no packed weights,
no kernels, no sharding. It serves where the encoder runs once for many decoded tokens.
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
    """The model that AutoModel makes of an encoder's config, such as ``config.encoder``, for `__init__` of a model.

    model_class: ``"package.module:Name"`` of one of transformers, where AutoModel makes another of this config or none:
    one config may be of both sides. options: of the class that it makes, such as ``add_pooling_layer=False``.
    Its state_dict has the names of transformers' modules, which are mostly those of checkpoints. Call it with keywords,
    as in transformers: ``encoder(pixel_values=batch).last_hidden_state`` is [batch, tokens, hidden].
    Every process of a parallel group computes all of it, and pipeline_parallel_size is refused.
    Its numbers are drawn, until the checkpoint's take their place; the global random state stays as it was.
    """
    from transformers import AutoModel

    make = AutoModel.from_config if model_class is None else resolve(model_class)._from_config
    with torch.random.fork_rng(devices=[]):
        made: nn.Module = make(copy.deepcopy(config), dtype=torch.get_default_dtype(), **options)
    return made
