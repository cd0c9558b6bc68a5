"""BART (Lewis et al. 2020) and its kin: mBART (Liu et al. 2020), Pegasus (Zhang et al. 2020), M2M100 (Fan et al. 2020).

NLLB (NLLB team 2022) is M2M100 with a vocabulary of its own. BlenderbotSmall (Roller et al. 2020) is BART nearly.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.authoring import CheckpointView, ModelSpec, TextSpec, dec_prompt, hookimpl, prepend_dec
from transept.plugins.bart import tasks

_BART = {"huggingface": "transept.plugins.bart.weights:BART"}
_WEIGHT_MAPS = {"huggingface": "transept.plugins.bart.weights:HUGGINGFACE"}
_SINUSOIDAL = {"huggingface": "transept.plugins.bart.weights:SINUSOIDAL"}
_MBART_LANGUAGES = 25  # of mBART's first release; its vocabulary ends with their codes and <mask>


def mbart_default_decoder_prompt(view: CheckpointView) -> list[int]:
    """``<DEC>``, then the target language where the checkpoint forces one (facebook/mbart-large-en-ro does not)."""
    language = tasks.token_of(view, "forced_bos_token_id")
    start = view.config.decoder_start_token_id
    return [start] if language is None else [start, language]


def mbart_prepare_decoder_prompt(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """``<DEC>`` first, but in mBART's first release, where it is a language code, any such code takes its place."""
    config = view.config
    codes = range(config.vocab_size - 1 - _MBART_LANGUAGES, config.vocab_size - 1)
    if token_ids and token_ids[0] in codes and config.decoder_start_token_id != config.eos_token_id:
        return list(token_ids)
    return prepend_dec(token_ids, view)


@hookimpl
def register_models() -> list[ModelSpec]:
    """Five families of one shape, read from Hugging Face checkpoints."""
    summarizes = TextSpec(summarize=tasks.summarize, translate=tasks.refuse_to_translate)
    return [
        ModelSpec(
            name="bart",
            architectures=("BartModel", "BartForConditionalGeneration"),
            model_class="transept.plugins.bart.model:BartForConditionalGeneration",
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
        ModelSpec(
            name="blenderbot-small",
            architectures=("BlenderbotSmallForConditionalGeneration",),
            model_class="transept.plugins.bart.model:BlenderbotSmallForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            weight_maps=_WEIGHT_MAPS,
            text=TextSpec(tasks.refuse_to_summarize_a_chat, tasks.refuse_to_translate_a_chat),
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
