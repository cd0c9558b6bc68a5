"""FSMT (Ng et al. 2019): fairseq's translation models, facebook/wmt19-* and allenai/wmt16-*, allenai/wmt19-*."""

from __future__ import annotations

from typing import Any

from transept.authoring import (
    CheckpointView,
    ModelSpec,
    ParameterError,
    TextSpec,
    TextTask,
    UnsupportedTaskError,
    dec_prompt,
    hookimpl,
)


def tokenizers(view: CheckpointView) -> tuple[Any, Any]:
    """Return a tokenizer for the source's language and vocabulary, and one for the target's.

    transformers' FSMTTokenizer encodes the source and decodes the target; each of these does both. A tokenizer of
    another class has one vocabulary, and is returned twice.
    """
    given = view.tokenizer
    if not hasattr(given, "src_vocab_file"):
        return given, given
    sides = ((given.src_lang, given.src_vocab_file), (given.tgt_lang, given.tgt_vocab_file))
    source, target = (
        type(given)(
            **{**given.init_kwargs, "langs": [language] * 2, "src_vocab_file": vocabulary, "tgt_vocab_file": vocabulary}
        )
        for language, vocabulary in sides
    )
    return source, target


def summarize(view: CheckpointView) -> TextTask:
    """Raise UnsupportedTaskError, so that a server lists the family only for translation."""
    raise UnsupportedTaskError("this model translates, and does not summarize. Call translate, or take a BART model")


def translate(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Return the checkpoint's translation. Raises ParameterError for languages other than its two."""
    languages = dict(zip(("source", "target"), view.config.langs, strict=True))
    for (name, own), asked in zip(languages.items(), (source, target), strict=True):
        if asked not in (None, own):
            message = f"{{{name}}} is {own!r} in this model, not {asked!r}; it may be left out"
            raise ParameterError(message, param=name, value=asked)
    return TextTask()


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="fsmt",
            architectures=("FSMTForConditionalGeneration",),
            model_class="transept_fsmt.model:FSMTForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            tokenizers=tokenizers,
            weight_maps={"huggingface": "transept_fsmt.weights:HUGGINGFACE"},
            text=TextSpec(summarize, translate),
        )
    ]
