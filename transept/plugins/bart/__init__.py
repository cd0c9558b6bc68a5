"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020): denoising encoder/decoders."""

from __future__ import annotations

from typing import Any

from transept.authoring import ModelSpec, hookimpl

_WEIGHT_MAPS = {"huggingface": "transept.plugins.bart.weights:HUGGINGFACE"}


def mbart_default_decoder_prompt(config: Any) -> list[int]:
    """``<DEC>``, then the target language where the checkpoint forces one (facebook/mbart-large-en-ro does not)."""
    language = getattr(config, "forced_bos_token_id", None)
    start = config.decoder_start_token_id
    return [start] if language is None else [start, language]


@hookimpl
def register_models() -> list[ModelSpec]:
    """Two families of one shape, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="bart",
            architectures=("BartModel", "BartForConditionalGeneration"),
            model_class="transept.plugins.bart.model:BartForConditionalGeneration",
            weight_maps=_WEIGHT_MAPS,
        ),
        ModelSpec(
            name="mbart",
            architectures=("MBartForConditionalGeneration",),
            model_class="transept.plugins.bart.model:MBartForConditionalGeneration",
            default_decoder_prompt=mbart_default_decoder_prompt,
            weight_maps=_WEIGHT_MAPS,
        ),
    ]
