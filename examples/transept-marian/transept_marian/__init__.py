"""Marian (Junczys-Dowmunt et al. 2018): the translation models of OPUS-MT, Helsinki-NLP/opus-mt-*."""

from __future__ import annotations

from transept.authoring import CheckpointView, ModelSpec, TextSpec, hookimpl
from transept_marian import tasks


def default_decoder_prompt(view: CheckpointView) -> list[int]:
    """``<DEC>`` alone, which is the padding token: Marian has no beginning-of-sequence token."""
    return [view.config.decoder_start_token_id]


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="marian",
            architectures=("MarianMTModel",),
            model_class="transept_marian.model:MarianMTModel",
            default_decoder_prompt=default_decoder_prompt,
            weight_maps={"huggingface": "transept_marian.weights:HUGGINGFACE"},
            text=TextSpec(translate=tasks.translate, languages=tasks.languages),
        )
    ]
