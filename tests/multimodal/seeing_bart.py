"""A plugin for tests: BART that reads images, whose patches take the place of the encoder's tokens."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointView,
    LayerContext,
    ModelShape,
    ModelSpec,
    hookimpl,
)
from transept.multimodal import MappedInput
from transept.multimodal.image import load_image
from transept.multimodal.image_processing import pixel_values
from transept.multimodal.image_settings import read_image_settings
from transept.plugins.bart.model import POSITION_OFFSET, BartForConditionalGeneration
from transept.plugins.bart.weights import HUGGINGFACE

PATCH = 16  # pixels, of its height and of its width


def map_image(data: Any, view: CheckpointView) -> MappedInput:
    values = pixel_values(load_image(data), read_image_settings(view))
    return MappedInput({"pixel_values": values}, num_tokens=(values.shape[1] // PATCH) * (values.shape[2] // PATCH))


class SeeingBart(BartForConditionalGeneration):
    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.patches = nn.Conv2d(3, config.d_model, PATCH, stride=PATCH)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        return dataclasses.replace(super().shape(config), encoder_takes_text=False)

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        embedding = self.encoder.embedding
        inputs = []
        for values in multimodal_kwargs["pixel_values"]:  # [3, height, width]
            patches = self.patches(values[None])[0].flatten(1).T  # [patches, d_model]
            inputs.append(patches + embedding.embed_positions[POSITION_OFFSET:][: len(patches)])
        x = embedding.layernorm_embedding(torch.cat(inputs))
        for layer in self.encoder.layers:
            x = layer(x, attn_metadata)
        return x


@hookimpl
def register_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="seeing-bart",
            architectures=("SeeingBart",),
            model_class="seeing_bart:SeeingBart",
            weight_maps={
                "huggingface": dataclasses.replace(
                    HUGGINGFACE,
                    rules=(*HUGGINGFACE.rules, (r"(patches\..*)", r"\1")),
                )
            },
            input_mappers={"image": map_image},
        )
    ]
