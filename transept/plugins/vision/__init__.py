"""TrOCR (Li et al. 2021), which reads lines of text, and Donut (Kim et al. 2022), which reads documents.

Checkpoints of both are transformers' VisionEncoderDecoderModel; the types of encoder and decoder tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transept.authoring import CheckpointView, ModelSpec, VisionSpec, hookimpl


def default_decoder_prompt(view: CheckpointView) -> list[int]:
    """``<DEC>`` alone: of the generation settings, or else of the config or the decoder's."""
    sides = (view.generation_config, view.config, view.config.decoder)
    starts = [getattr(side, "decoder_start_token_id", None) for side in sides]
    prompt: list[Any] = [start for start in starts if start is not None]
    return prompt[:1] or [None]  # of which the engine tells


def prepare_decoder_prompt(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """``<DEC>`` first, unless it is there."""
    start = default_decoder_prompt(view)
    return list(token_ids) if list(token_ids[:1]) == start else [*start, *token_ids]


def as_given(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """A user's decoder prompt as it is: each task of a Donut starts with a token of its own."""
    return list(token_ids)


@hookimpl
def register_models() -> list[ModelSpec]:
    """Two families, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="trocr",
            architectures=("VisionEncoderDecoderModel",),
            model_class="transept.plugins.vision.model:TrOCR",
            default_decoder_prompt=default_decoder_prompt,
            prepare_decoder_prompt=prepare_decoder_prompt,
            input_mappers={"image": "transept.plugins.vision.model:map_image"},
            weight_maps={"huggingface": "transept.plugins.vision.weights:TROCR"},
            vision=VisionSpec(),
            requires={"encoder.model_type": {"vit", "deit"}, "decoder.model_type": "trocr"},
        ),
        ModelSpec(
            name="donut",
            architectures=("VisionEncoderDecoderModel",),
            model_class="transept.plugins.vision.donut:Donut",
            default_decoder_prompt=default_decoder_prompt,
            prepare_decoder_prompt=as_given,
            input_mappers={"image": "transept.plugins.vision.donut:map_image"},
            weight_maps={"huggingface": "transept.plugins.vision.weights:DONUT"},
            vision=VisionSpec(),
            requires={"encoder.model_type": "donut-swin", "decoder.model_type": "mbart"},
        ),
    ]
