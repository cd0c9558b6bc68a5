"""Decoder prompts of Canary and Cohere Transcribe: the spoken language, the written one, and how to write it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from transept.authoring import CheckpointError, CheckpointView, ParameterError, SpeechTokens, dec_prompt

CONTROL = re.compile(r"<\|.*\|>|<(?:pad|unk|s|/s)>")
BLANK = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's sign for a blank, with which Cohere's prompts begin
ENGLISH = "en"


def vocabulary(view: CheckpointView) -> dict[str, int]:
    """Return token -> id; empty without a tokenizer."""
    tokenizer = view.tokenizer
    return {} if tokenizer is None else dict(tokenizer.get_vocab())


def languages(view: CheckpointView, codes: Sequence[str]) -> dict[str, int]:
    """Return code -> token id of those languages of a family that the checkpoint has."""
    ids = vocabulary(view)
    return {code: ids[f"<|{code}|>"] for code in codes if f"<|{code}|>" in ids}


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
    return control_tokens(view, spoken, target_language or spoken)


def cohere_prompt(
    view: CheckpointView, *, language: str | None = None, task: str = "transcribe", timestamps: bool = False
) -> list[int]:
    """Return the same after a blank. Raises ParameterError for a task other than "transcribe"."""
    if task != "transcribe":
        message = f"Cohere Transcribe transcribes speech and cannot {task}; leave {{task}} out"
        raise ParameterError(message, param="task", value=task)
    spoken = language or ENGLISH
    return [*_ids(view, [BLANK]), *control_tokens(view, spoken, spoken)]


def control_tokens(view: CheckpointView, spoken: str, written: str) -> list[int]:
    """Return the tokens that ask for a text with punctuation and capitals, numbers as they are spoken."""
    of_languages = (f"<|{spoken}|>", f"<|{written}|>")
    settings = ("<|pnc|>", "<|noitn|>", "<|notimestamp|>", "<|nodiarize|>")
    return _ids(view, ["<|startofcontext|>", "<|startoftranscript|>", "<|emo:undefined|>", *of_languages, *settings])


def cohere_default_prompt(view: CheckpointView) -> list[int]:
    """Return the prompt for English, or the decoder's start token if the config names one."""
    if getattr(view.config, "decoder_start_token_id", None) is not None:
        return dec_prompt(view)
    return cohere_prompt(view)


def unchanged(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Return a user's decoder prompt as it is: no one token begins all prompts."""
    return list(token_ids)


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """Return the control tokens. The vocabulary begins with them; then comes text."""
    ids = vocabulary(view)
    controls = {token for name, token in ids.items() if CONTROL.fullmatch(name)}
    first = next((token for token in range(view.config.vocab_size) if token not in controls), 0)
    end = _end(view)
    return SpeechTokens(
        end_of_text=end,
        start_of_transcript=_ids(view, ["<|startoftranscript|>"])[0],
        prompt_only=tuple(sorted(controls - {end})),
        text=range(first, view.config.vocab_size),
    )


def unspoken_tokens(view: CheckpointView) -> list[int]:
    """Return the control tokens, which a transcript never has."""
    return list(speech_tokens(view).prompt_only)


def _end(view: CheckpointView) -> int:
    end = view.config.eos_token_id
    return int(end[0] if isinstance(end, list) else end)


def _ids(view: CheckpointView, tokens: Sequence[str]) -> list[int]:
    """Return the ids of tokens. Raises CheckpointError if the tokenizer lacks one."""
    ids = vocabulary(view)
    if missing := [token for token in tokens if token not in ids]:
        raise CheckpointError(
            f'the tokenizer in "{view.path}" lacks {", ".join(missing)}, of which decoder prompts are made: copy the '
            "tokenizer's files from where the checkpoint was published"
        )
    return [ids[token] for token in tokens]
