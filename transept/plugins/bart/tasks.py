"""Summaries and translations by BART, Pegasus, mBART, M2M100 and NLLB."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from transept.authoring import CheckpointView, ParameterError, TextTask, UnsupportedTaskError, dec_prompt, suggest

_MBART_LANGUAGES = 25  # of mBART's first release; its vocabulary ends with their codes and <mask>
NLLB_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
ANY_CODE = re.compile(rf"{NLLB_CODE.pattern}|[a-z]{{2}}_[A-Z]{{2}}|__([a-z]{{2,3}})__")  # NLLB, mBART, M2M100


def summarize(view: CheckpointView) -> TextTask:
    """Summarize the document with the prefix in the checkpoint's config; bart-large-cnn has a blank."""
    return TextTask("summarization", prefix=getattr(view.config, "prefix", None) or "")


def refuse_to_translate(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Raise UnsupportedTaskError: these families have one language."""
    raise UnsupportedTaskError(
        f'"{view.config.model_type}" models do not translate. This one summarizes, or does another task that it was '
        "trained for: call summarize or generate, or take an NLLB, mBART, Marian or T5 model",
        param="model",
    )


def refuse_to_summarize(view: CheckpointView) -> TextTask:
    """Raise UnsupportedTaskError: M2M100 and NLLB were trained only to translate."""
    raise UnsupportedTaskError(
        "this model translates, and does not summarize. Call translate, or take a BART, Pegasus or T5 model",
        param="model",
    )


def refuse_tasks(view: CheckpointView, *languages: str | None) -> TextTask:
    """Raise UnsupportedTaskError: BlenderbotSmall replies to a text, and does nothing else."""
    raise UnsupportedTaskError(
        "this model replies to a text, and neither summarizes nor translates. Call generate", param="model"
    )


def translate_mbart(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Mark the document with the source's code, and begin the output with the target's (Liu et al. 2020, Tang et al.).

    mBART puts the source's code after the document and starts the decoder from the target's. mBART-50 puts it before
    the document, and the target's after ``</s>``, which starts the decoder. The tokenizer shows which one it is.
    """
    if hasattr(view.tokenizer, "prefix_tokens"):
        starts_with_code = not view.tokenizer.prefix_tokens
    else:  # a tokenizer of no class for the family
        starts_with_code = dec_prompt(view)[0] != view.config.eos_token_id
    return _translate(view, source, target, starts_with_code=starts_with_code)


def translate_m2m100(view: CheckpointView, source: str | None, target: str | None) -> TextTask:
    """Mark the document with the source's code, and put the target's after ``</s>`` (Fan et al. 2020; NLLB team 2022).

    Languages are M2M100's codes, such as ``"de"``, or NLLB's, such as ``"deu_Latn"``, or ``"deu"`` if the
    language has one script.
    """
    return _translate(view, source, target, starts_with_code=False)


def languages(view: CheckpointView) -> tuple[list[str], list[str]]:
    """Return all codes, as sources and as targets."""
    codes = list(_codes(view.tokenizer))
    return codes, codes


def _translate(view: CheckpointView, source: str | None, target: str | None, *, starts_with_code: bool) -> TextTask:
    """Make the task. starts_with_code: True if the decoder starts with the target's code; else the code is forced."""
    tokenizer = view.tokenizer
    codes = _codes(tokenizer)
    if source is None:
        message = f"{{source}} is missing: the language of the documents.{suggest('', codes)}"
        raise ParameterError(message, param="source")
    source_code = _code("source", source, codes)
    before, after = _marked_by(tokenizer, codes, source_code, view.config, starts_with_code)
    target_code = _only_target(view, codes, starts_with_code) if target is None else _code("target", target, codes)
    target_id = codes[target_code]
    return TextTask(
        f"translation_{_short(source_code)}_to_{_short(target_code)}",
        special_tokens=(before, after),
        decoder_prompt=[target_id] if starts_with_code else [*dec_prompt(view), target_id],
        settings={} if starts_with_code else {"forced_bos_token_id": target_id},
    )


def _marked_by(
    tokenizer: Any, codes: dict[str, int], source: str, config: Any, starts_with_code: bool
) -> tuple[list[int], list[int]]:
    """Return the tokens before and after a document in a language."""
    if not hasattr(tokenizer, "src_lang"):  # a tokenizer of no class for the family
        end = config.eos_token_id
        return ([], [end, codes[source]]) if starts_with_code else ([codes[source]], [end])
    marks = {codes[tokenizer.src_lang]: codes[source]}
    before, after = (
        [marks.get(token, token) for token in each] for each in (tokenizer.prefix_tokens, tokenizer.suffix_tokens)
    )
    return before, after


def forced_token(view: CheckpointView) -> int | None:
    """Return the first token that the checkpoint forces the decoder to write, or None if the model chooses it."""
    forced: Any = token_of(view, "forced_bos_token_id")
    return next(iter(forced), None) if isinstance(forced, list | tuple) else forced


def mbart_language_tokens(view: CheckpointView) -> Collection[int]:
    """Return the ids of language codes; without a tokenizer, those at the end of the first mBART vocabulary."""
    if view.tokenizer is not None:
        return _named_codes(view.tokenizer).values()
    last = view.config.vocab_size - 1  # <mask>
    return range(last - _MBART_LANGUAGES, last)


def token_of(view: CheckpointView, name: str) -> int | None:
    """Return a token id from the generation config, or from the config, where older checkpoints have it."""
    token: int | None = getattr(view.generation_config, name, None)
    return getattr(view.config, name, None) if token is None else token


def _codes(tokenizer: Any) -> dict[str, int]:
    """Return language code -> token id. Raises UnsupportedTaskError without language codes."""
    codes = _named_codes(tokenizer)
    if not codes:
        raise UnsupportedTaskError(
            f"this checkpoint's {type(tokenizer).__name__} has no language codes: call generate, which reads documents "
            "unchanged",
            param="model",
        )
    return codes


def _named_codes(tokenizer: Any) -> dict[str, int]:
    """Return language code -> token id, by the tokenizer's class, its special tokens, or names in its vocabulary."""
    codes: dict[str, int] | None = getattr(tokenizer, "lang_code_to_id", None)
    if codes is not None:
        return codes
    special = filter(NLLB_CODE.fullmatch, getattr(tokenizer, "all_special_tokens", ()))
    if codes := {code: tokenizer.convert_tokens_to_ids(code) for code in special}:
        return codes
    in_order = sorted(getattr(tokenizer, "get_vocab", dict)().items(), key=lambda each: each[1])
    return {match[match.lastindex or 0]: token for name, token in in_order if (match := ANY_CODE.fullmatch(name))}


def _code(param: str, language: str, codes: dict[str, int]) -> str:
    """Return the code of a language: ``"ro_RO"`` for ``"ro"`` and ``"ro_RO"``. param: the language's option."""
    fitting = [code for code in codes if language.casefold() in (code.casefold(), _short(code))]
    if len(fitting) > 1:
        message = f"this model has {{{param}!}} in several scripts; choose one as {{{param}}}: {', '.join(fitting)}"
        raise ParameterError(message, param=param, value=language)
    if not fitting:
        message = f"this model has no language {{{param}!}} as {{{param}}}.{suggest(language, codes)}"
        raise ParameterError(message, param=param, value=language)
    return fitting[0]


def _short(code: str) -> str:
    return code.partition("_")[0]


def _only_target(view: CheckpointView, codes: dict[str, int], starts_with_code: bool) -> str:
    """Return the language that the checkpoint's settings fix as the target. Raises ParameterError without one."""
    token = token_of(view, "decoder_start_token_id" if starts_with_code else "forced_bos_token_id")
    for code, token_id in codes.items():
        if token_id == token:
            return code
    message = f"{{target}} is missing: the language to translate to.{suggest('', codes)}"
    raise ParameterError(message, param="target")
