"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from transept.core.request.guided import Guide
from transept.speech.option_types import VadKeywords
from transept.speech.vad.options import VadOptions
from transept.speech.voices.store import Voices


class FasterWhisperKeywords(TypedDict, total=False):
    """The options of a transcription in faster-whisper's interface."""

    target_language: str | None
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
    guided: Guide | Mapping[str, Any] | Sequence[str] | str | None
    glossary: Sequence[tuple[str, str]] | Mapping[str, str] | pathlib.Path | str | None
    redact: Sequence[str] | str | None
    suppress_blank: bool
    suppress_tokens: Sequence[int] | str | None
    suppress_numerals: bool
    suppress_regex: str | None
    without_timestamps: bool
    max_initial_timestamp: float | None
    max_new_tokens: int | None
    token_logprobs: bool
    word_timestamps: bool
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
    vad: bool
    vad_options: VadOptions | VadKeywords | str
    lora: str | None
    seed: int
    channel: Literal["mix", "left", "right", "each"]
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
    num_beams: int | None
    log_prob_threshold: float | None
    condition_on_prev_tokens: bool
    prompt: str | Sequence[int] | None
    guided_choice: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_regex: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_json: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_grammar: Guide | Mapping[str, Any] | Sequence[str] | str | None
    structured_outputs: Guide | Mapping[str, Any] | Sequence[str] | str | None
    max_tokens: int | None
    chunk_length_s: float | None
    vad_filter: bool
    vad_parameters: VadOptions | VadKeywords | str
    num_speakers: int | None
    speakers_expected: int | None


class OpenaiWhisperKeywords(TypedDict, total=False):
    """The options of a transcription in openai-whisper's interface, without those in its signature."""

    language: str | None
    target_language: str | None
    task: Literal["transcribe", "translate"] | None
    quality: Literal["fast", "balanced", "best"] | None
    beam_size: int | None
    best_of: int | None
    patience: float | None
    length_penalty: float | None
    gnmt_length_penalty: float | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    prompt_reset_on_temperature: float
    prefix: str | None
    hotwords: str | None
    keywords: Sequence[tuple[str, float | None]] | Mapping[str, float] | Sequence[str] | str | None
    keyword_boost: float
    guided: Guide | Mapping[str, Any] | Sequence[str] | str | None
    glossary: Sequence[tuple[str, str]] | Mapping[str, str] | pathlib.Path | str | None
    redact: Sequence[str] | str | None
    suppress_blank: bool
    suppress_tokens: Sequence[int] | str | None
    suppress_numerals: bool
    suppress_regex: str | None
    without_timestamps: bool
    max_initial_timestamp: float | None
    max_new_tokens: int | None
    token_logprobs: bool
    refine_word_times: bool
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
    num_beams: int | None
    guided_choice: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_regex: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_json: Guide | Mapping[str, Any] | Sequence[str] | str | None
    guided_grammar: Guide | Mapping[str, Any] | Sequence[str] | str | None
    structured_outputs: Guide | Mapping[str, Any] | Sequence[str] | str | None
    max_tokens: int | None
    chunk_length_s: float | None
    vad_filter: bool
    vad_parameters: VadOptions | VadKeywords | str
    num_speakers: int | None
    speakers_expected: int | None
