"""T5 (Raffel et al. 2020), mT5 (Xue et al. 2021), UMT5 (Chung et al. 2023) and LongT5 (Guo et al. 2022).

T5 1.1, Flan-T5 and MADLAD-400 are also T5.
"""

from __future__ import annotations

from transept.authoring import ModelSpec, TextSpec, dec_prompt, hookimpl
from transept.plugins.t5 import tasks


@hookimpl
def register_models() -> list[ModelSpec]:
    """Return four families of one architecture, for Hugging Face checkpoints."""
    multilingual = TextSpec(tasks.summarize_plainly, tasks.translate_multilingual, tasks.named_languages)
    families = (
        (
            "t5",
            "T5ForConditionalGeneration",
            "HUGGINGFACE",
            TextSpec(tasks.summarize, tasks.translate, tasks.languages),
        ),
        ("longt5", "LongT5ForConditionalGeneration", "LONG", TextSpec(tasks.summarize_plainly)),
        ("mt5", "MT5ForConditionalGeneration", "HUGGINGFACE", multilingual),
        ("umt5", "UMT5ForConditionalGeneration", "HUGGINGFACE", multilingual),
    )
    return [
        ModelSpec(
            name=name,
            architectures=(architecture,),
            model_class=f"transept.plugins.t5.model:{architecture}",
            default_decoder_prompt=dec_prompt,
            weight_maps={"huggingface": f"transept.plugins.t5.weights:{weights}"},
            text=text,
        )
        for name, architecture, weights, text in families
    ]
