"""T5Gemma (Zhang et al. 2025): Gemma 2 as an encoder and a decoder, google/t5gemma-*."""

from __future__ import annotations

from transept.authoring import CheckpointView, ModelSpec, dec_bos_prompt, hookimpl


def default_decoder_prompt(view: CheckpointView) -> list[int]:
    """Return ``<bos>``, with which Gemma's decoders start, unless the checkpoint has another start token."""
    start, bos = dec_bos_prompt(view)
    return [bos if start is None else start]


def prepare_decoder_prompt(token_ids: list[int], view: CheckpointView) -> list[int]:
    """Prepend ``<bos>`` unless it is there."""
    start = default_decoder_prompt(view)
    return token_ids if token_ids[:1] == start else start + token_ids


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="t5gemma",
            architectures=("T5GemmaForConditionalGeneration",),
            model_class="transept_t5gemma.model:T5GemmaForConditionalGeneration",
            default_decoder_prompt=default_decoder_prompt,
            prepare_decoder_prompt=prepare_decoder_prompt,
            weight_maps={"huggingface": "transept_t5gemma.weights:HUGGINGFACE"},
        )
    ]
