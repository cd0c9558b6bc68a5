"""BART (Lewis et al. 2020), mBART (Liu et al. 2020), Pegasus (Zhang et al. 2020) and M2M100 (Fan et al. 2020).

NLLB (NLLB team 2022) is M2M100 with another vocabulary. BlenderbotSmall (Roller et al. 2020) differs little from BART.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.authoring import (
    CheckpointError,
    CheckpointView,
    ModelSpec,
    TextSpec,
    dec_bos_prompt,
    dec_prompt,
    hookimpl,
    prepend_dec,
)
from transept.plugins.bart import tasks

_BART = {"huggingface": "transept.plugins.bart.weights:BART"}
_WEIGHT_MAPS = {"huggingface": "transept.plugins.bart.weights:HUGGINGFACE"}
_SINUSOIDAL = {"huggingface": "transept.plugins.bart.weights:SINUSOIDAL"}


def bart_default_decoder_prompt(view: CheckpointView) -> list[int]:
    """Return ``<DEC>``, and the token that the checkpoint forces: ``<BOS>`` in bart-large-cnn, none in KoBART.

    A checkpoint without generation settings begins with ``<DEC><BOS>``.
    Raises CheckpointError for a bos_token_id that is not a token.
    """
    forced, bos = tasks.forced_token(view), view.config.bos_token_id
    if bos is not None and not (isinstance(bos, int) and 0 <= bos < view.config.vocab_size):
        raise CheckpointError(f"bos_token_id is {bos!r}; it must be a token id below vocab_size, or null")
    if forced is None and bos is not None and not view.has_generation_settings:
        return dec_bos_prompt(view)
    return dec_prompt(view) if forced is None else [*dec_prompt(view), forced]


def mbart_default_decoder_prompt(view: CheckpointView) -> list[int]:
    """Return ``<DEC>``, and the target language if the checkpoint forces one (facebook/mbart-large-en-ro does not)."""
    language = tasks.forced_token(view)
    return dec_prompt(view) if language is None else [*dec_prompt(view), language]


def mbart_prepare_decoder_prompt(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Prepend ``<DEC>`` unless it is there. In mBART's first release it is a language code: any code may replace it."""
    starts_with_code = dec_prompt(view)[0] != view.config.eos_token_id
    if token_ids and starts_with_code and token_ids[0] in tasks.mbart_language_tokens(view):
        return list(token_ids)
    return prepend_dec(token_ids, view)


@hookimpl
def register_models() -> list[ModelSpec]:
    """Return families of one architecture, for Hugging Face checkpoints."""
    summarizes = TextSpec(summarize=tasks.summarize, translate=tasks.refuse_to_translate)
    return [
        ModelSpec(
            name="bart",
            architectures=("BartModel", "BartForConditionalGeneration"),
            model_class="transept.plugins.bart.model:BartForConditionalGeneration",
            default_decoder_prompt=bart_default_decoder_prompt,
            weight_maps=_BART,
            text=summarizes,
        ),
        ModelSpec(
            name="mbart",
            architectures=("MBartForConditionalGeneration",),
            model_class="transept.plugins.bart.model:MBartForConditionalGeneration",
            default_decoder_prompt=mbart_default_decoder_prompt,
            prepare_decoder_prompt=mbart_prepare_decoder_prompt,
            weight_maps=_WEIGHT_MAPS,
            text=TextSpec(translate=tasks.translate_mbart, languages=tasks.languages),
        ),
        ModelSpec(
            name="pegasus",
            architectures=("PegasusForConditionalGeneration",),
            model_class="transept.plugins.bart.model:PegasusForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            weight_maps=_SINUSOIDAL,
            text=summarizes,
        ),
        *(
            ModelSpec(
                name=name,
                architectures=(f"{prefix}ForConditionalGeneration",),
                model_class=f"transept.plugins.bart.long:{prefix}ForConditionalGeneration",
                default_decoder_prompt=dec_prompt,
                weight_maps={"huggingface": "transept.plugins.bart.weights:LONG"},
                text=summarizes,
            )
            for name, prefix in (("pegasus-x", "PegasusX"), ("bigbird-pegasus", "BigBirdPegasus"))
        ),
        ModelSpec(
            name="blenderbot-small",
            architectures=("BlenderbotSmallForConditionalGeneration",),
            model_class="transept.plugins.bart.model:BlenderbotSmallForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            weight_maps=_WEIGHT_MAPS,
            text=TextSpec(tasks.refuse_tasks, tasks.refuse_tasks),
        ),
        ModelSpec(
            name="m2m100",
            architectures=("M2M100ForConditionalGeneration",),
            model_class="transept.plugins.bart.model:M2M100ForConditionalGeneration",
            default_decoder_prompt=mbart_default_decoder_prompt,
            weight_maps=_SINUSOIDAL,
            text=TextSpec(tasks.refuse_to_summarize, tasks.translate_m2m100, tasks.languages),
        ),
    ]
