"""Decoder prompts of Canary and Cohere Transcribe: the spoken language, the written one, and how to write it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transept.authoring import CheckpointError, CheckpointView, ParameterError, SpeechTokens, dec_prompt
from transept.plugins.conformer.languages import CANARY, COHERE

CONTROL = re.compile(r"<\|.*\|>|<(?:pad|unk|s|/s)>")
ENGLISH = "en"  # without a language, with which requests of `transept.speech` always come
BLANK = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's sign for a blank, with which Cohere's prompts begin


def canary_languages(view: CheckpointView) -> dict[str, int]:
    """Return code -> token id of those of Canary's languages that the checkpoint has."""
    return _languages(view, CANARY)


def cohere_languages(view: CheckpointView) -> dict[str, int]:
    """Return code -> token id of those of Cohere Transcribe's languages that the checkpoint has."""
    return _languages(view, COHERE)


def no_languages(view: CheckpointView) -> tuple[str, ...]:
    """Return none: Cohere Transcribe does not translate."""
    return ()


def _languages(view: CheckpointView, codes: str) -> dict[str, int]:
    ids = ((code, _id(view, f"<|{code}|>")) for code in codes.split())
    return {code: token for code, token in ids if token is not None}


def canary_prompt(
    view: CheckpointView,
    *,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = False,
    target_language: str | None = None,
) -> list[int]:
    """Return ``<|startofcontext|><|startoftranscript|><|emo:undefined|><|en|><|de|><|pnc|>...``."""
    spoken = language or ENGLISH
    return _control_tokens(view, spoken, target_language or spoken)


def cohere_prompt(
    view: CheckpointView, *, language: str | None = None, task: str = "transcribe", timestamps: bool = False
) -> list[int]:
    """Return the same after a blank. Raises ParameterError for a task other than "transcribe"."""
    if task != "transcribe":
        message = f"Cohere Transcribe transcribes speech and cannot {task}; leave {{task}} out"
        raise ParameterError(message, param="task", value=task)
    spoken = language or ENGLISH
    return [*_ids(view, BLANK), *_control_tokens(view, spoken, spoken)]


def _control_tokens(view: CheckpointView, spoken: str, written: str) -> list[int]:
    """Return the tokens that ask for a text with punctuation and capitals, and with numbers as words."""
    before = ("<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>")
    return _ids(
        view, *before, f"<|{spoken}|>", f"<|{written}|>", "<|pnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>"
    )


def cohere_default_prompt(view: CheckpointView) -> list[int]:
    """Return the decoder's start token, or the prompt for English if the config names none."""
    if getattr(view.config, "decoder_start_token_id", None) is not None:
        return dec_prompt(view)
    return cohere_prompt(view, language=ENGLISH)


def unchanged(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Return a user's decoder prompt as it is: there is no token with which all prompts begin."""
    return list(token_ids)


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """Return the control tokens. The vocabulary begins with them; then comes text."""
    tokens = enumerate(view.tokenizer.convert_ids_to_tokens(range(len(view.tokenizer))))
    controls = {token for token, name in tokens if name is not None and CONTROL.fullmatch(name)}
    size, end = view.config.vocab_size, view.config.eos_token_id
    first = next((token for token in range(size) if token not in controls), size)
    (start,) = _ids(view, "<|startoftranscript|>")
    others = tuple(sorted(controls - {end}))
    return SpeechTokens(end_of_text=end, start_of_transcript=start, prompt_only=others, text=range(first, size))


def _id(view: CheckpointView, token: str) -> int | None:
    """Return a token's id; None if the tokenizer does not have the token."""
    tokenizer = view.tokenizer
    found = tokenizer.convert_tokens_to_ids(token)
    return found if found is not None and tokenizer.convert_ids_to_tokens(found) == token else None


def _ids(view: CheckpointView, *tokens: str) -> list[int]:
    """Return the ids of tokens. Raises CheckpointError if the tokenizer lacks one."""
    ids = [(token, _id(view, token)) for token in tokens]
    if missing := [token for token, found in ids if found is None]:
        raise CheckpointError(
            f'the tokenizer in "{view.path}" lacks {", ".join(missing)}, of which decoder prompts are made: copy the '
            "tokenizer's files from where the checkpoint was published"
        )
    return [found for _, found in ids if found is not None]
