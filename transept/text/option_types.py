"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

from transept.core.option_types import EngineKeywords
from transept.core.request.option_types import SingleTextKeywords


class TextKeywords(SingleTextKeywords, total=False):
    """The options of a text task."""

    truncate: bool
    chunk: bool
    max_source_tokens: int | None
    lora: str | None
    decoder_prompt: str | Sequence[int] | None
    truncation: bool


class TranslationKeywords(TextKeywords, total=False):
    """The options of a translation."""

    source: str | None
    target: str | None
    source_language: str | None
    src_lang: str | None
    target_language: str | None
    tgt_lang: str | None


class ScoringKeywords(TypedDict, total=False):
    """The options of a score."""

    truncate: bool
    max_source_tokens: int | None
    lora: str | None
    source: str | None
    target: str | None
    task: Literal["generate", "summarize", "translate"]
    truncation: bool
    source_language: str | None
    src_lang: str | None
    target_language: str | None
    tgt_lang: str | None


class ScoringAndEngineKeywords(ScoringKeywords, EngineKeywords, total=False):
    """The options of a score and of its engine."""


class EmbeddingKeywords(TypedDict, total=False):
    """The options of an embedding."""

    pooling: Literal["mean", "cls", "last", "max", "none"]
    normalize: bool
    truncate: bool
    max_source_tokens: int | None
    lora: str | None
    source: str | None
    target: str | None
    task: Literal["generate", "summarize", "translate"]
    normalize_embeddings: bool
    truncation: bool
    source_language: str | None
    src_lang: str | None
    target_language: str | None
    tgt_lang: str | None


class EmbeddingAndEngineKeywords(EmbeddingKeywords, EngineKeywords, total=False):
    """The options of an embedding and of its engine."""


class TextAndEngineKeywords(TextKeywords, EngineKeywords, total=False):
    """The options of a text task and of its engine."""


class TranslationAndEngineKeywords(TranslationKeywords, EngineKeywords, total=False):
    """The options of a translation and of its engine."""
