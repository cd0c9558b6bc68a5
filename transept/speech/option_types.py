"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from transept.core.option_types import EngineKeywords
from transept.core.request.guided import Guide
from transept.speech.vad.options import VadOptions
from transept.speech.voices.store import Voices


class VadKeywords(TypedDict, total=False):
    """The options of VadOptions."""

    threshold: float
    neg_threshold: float | None
    min_speech_duration_ms: float
    max_speech_duration_s: float
    min_silence_duration_ms: float | None
    speech_pad_ms: float


class SubtitleKeywords(TypedDict, total=False):
    """The options of SubtitleLayout."""

    style: Literal["plain", "netflix", "bbc", "youtube"]
    highlight_words: bool
    max_line_width: int | None
    max_line_count: int | None
    max_words_per_line: int | None
    max_chars_per_second: float | None
    max_words_per_minute: float | None
    min_duration: float | None
    max_duration: float | None
    min_gap: float | None
    close_gaps: float | None
    linger: float | None


class AlignmentKeywords(TypedDict, total=False):
    """The options of a forced alignment."""

    language: str | None
    quality: Literal["fast", "balanced", "best"] | None
    temperature: float | Sequence[float]
    beam_size: int | None
    best_of: int | None
    patience: float | None
    length_penalty: float | None
    gnmt_length_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    condition_on_previous_text: bool
    prompt_reset_on_temperature: float
    initial_prompt: str | Sequence[int] | None
    carry_initial_prompt: bool
    prefix: str | None
    hotwords: str | None
    keywords: Sequence[tuple[str, float | None]] | Mapping[str, float] | Sequence[str] | str | None
    keyword_boost: float
    suppress_blank: bool
    suppress_tokens: Sequence[int] | str | None
    suppress_numerals: bool
    suppress_regex: str | None
    without_timestamps: bool
    max_initial_timestamp: float | None
    max_new_tokens: int | None
    token_logprobs: bool
    refine_word_times: bool
    prepend_punctuations: str
    append_punctuations: str
    clip_timestamps: Sequence[float] | Sequence[Mapping[str, float]] | str | None
    hallucination_silence_threshold: float | None
    multilingual: bool
    language_detection_segments: int
    language_detection_threshold: float
    audio_track: int | str | None
    even_loudness: bool
    chunk_length: float | None
    encoder_context: str | float | None
    mode: Literal["auto", "sequential", "batched"]
    batched: bool
    batch_size: int | None
    vad: bool
    vad_options: VadOptions | VadKeywords | str
    lora: str | None
    seed: int
    channel: Literal["mix", "left", "right", "each"]
    num_beams: int | None
    log_prob_threshold: float | None
    condition_on_prev_tokens: bool
    prompt: str | Sequence[int] | None
    max_tokens: int | None
    chunk_length_s: float | None
    vad_filter: bool
    vad_parameters: VadOptions | VadKeywords | str


class TranscriptionKeywords(AlignmentKeywords, total=False):
    """The options of a transcription."""

    target_language: str | None
    task: Literal["transcribe", "translate"] | None
    guided: Guide | Mapping[str, Any] | Sequence[str] | str | None
    glossary: Sequence[tuple[str, str]] | Mapping[str, str] | pathlib.Path | str | None
    redact: Sequence[str] | str | None
    word_timestamps: bool
    diarize: bool
    speakers: int | None
    min_speakers: int | None
    max_speakers: int | None
    speaker_names: Sequence[str] | str | None
    voices: Voices | pathlib.Path | Mapping[str, Any] | str | None
    same_speakers: bool
    add_voices: bool
    target: str | None
    tgt_lang: str | None
    guided_choice: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_regex: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_json: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_grammar: Guide | Mapping[str, Any] | Sequence[str] | str | None
    structured_outputs: Guide | Mapping[str, Any] | Sequence[str] | str | None
    num_speakers: int | None
    speakers_expected: int | None


class LiveOptionKeywords(TypedDict, total=False):
    """The options of LiveOptions."""

    policy: Literal["auto", "attention", "agreement"]
    min_chunk: float
    passes: int
    frontier: float | None
    encoder_margin: float | None
    longest_audio: float
    vad_threshold: float
    vad_padding_ms: float
    vad_silence_ms: float


class LiveKeywords(LiveOptionKeywords, total=False):
    """The options of a live transcription."""

    language: str | None
    target_language: str | None
    task: Literal["transcribe", "translate"] | None
    quality: Literal["fast", "balanced", "best"] | None
    beam_size: int | None
    patience: float | None
    length_penalty: float | None
    gnmt_length_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    condition_on_previous_text: bool
    initial_prompt: str | Sequence[int] | None
    hotwords: str | None
    keywords: Sequence[tuple[str, float | None]] | Mapping[str, float] | Sequence[str] | str | None
    keyword_boost: float
    suppress_blank: bool
    suppress_tokens: Sequence[int] | str | None
    suppress_numerals: bool
    suppress_regex: str | None
    prepend_punctuations: str
    append_punctuations: str
    language_detection_threshold: float
    lora: str | None
    target: str | None
    tgt_lang: str | None
    num_beams: int | None
    log_prob_threshold: float | None
    condition_on_prev_tokens: bool
    prompt: str | Sequence[int] | None


class TranscriptionAndEngineKeywords(TranscriptionKeywords, EngineKeywords, total=False):
    """The options of a transcription and of its engine."""
