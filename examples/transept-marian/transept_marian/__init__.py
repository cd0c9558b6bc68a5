"""Marian (Junczys-Dowmunt et al. 2018): the translation models of OPUS-MT, Helsinki-NLP/opus-mt-*."""

from __future__ import annotations

from transept.authoring import ModelSpec, TextSpec, dec_prompt, hookimpl
from transept_marian import tasks


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="marian",
            architectures=("MarianMTModel",),
            model_class="transept_marian.model:MarianMTModel",
            default_decoder_prompt=dec_prompt,
            weight_maps={"huggingface": "transept_marian.weights:HUGGINGFACE"},
            text=TextSpec(tasks.summarize, tasks.translate, tasks.languages),
        )
    ]
