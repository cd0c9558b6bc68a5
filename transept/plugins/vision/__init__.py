"""TrOCR (Li et al. 2021): a vision transformer (Dosovitskiy et al. 2020; Touvron et al. 2020) that a decoder reads.

Checkpoints are transformers' VisionEncoderDecoderModel, an architecture of other families, too: the types of encoder
and decoder tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.authoring import CheckpointView, ModelSpec, VisionSpec, hookimpl


def default_decoder_prompt(view: CheckpointView) -> list[int]:
    """``<DEC>`` alone: of the generation settings, or else of the decoder's config."""
    start = view.generation_config.decoder_start_token_id
    return [view.config.decoder.decoder_start_token_id if start is None else start]


def prepare_decoder_prompt(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """``<DEC>`` first, unless it is there."""
    start = default_decoder_prompt(view)
    return list(token_ids) if list(token_ids[:1]) == start else [*start, *token_ids]


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="trocr",
            architectures=("VisionEncoderDecoderModel",),
            model_class="transept.plugins.vision.model:TrOCR",
            default_decoder_prompt=default_decoder_prompt,
            prepare_decoder_prompt=prepare_decoder_prompt,
            input_mappers={"image": "transept.plugins.vision.model:map_image"},
            weight_maps={"huggingface": "transept.plugins.vision.weights:HUGGINGFACE"},
            vision=VisionSpec(),
            requires={"encoder.model_type": {"vit", "deit"}, "decoder.model_type": "trocr"},
        )
    ]
