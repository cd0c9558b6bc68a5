"""Whisper: speech recognition and translation (Radford et al. 2022)."""

from __future__ import annotations

import logging

from transept.authoring import CheckpointView, ModelSpec, SpeechSpec, hookimpl
from transept.plugins.whisper import control_tokens
from transept.plugins.whisper.languages import LANGUAGE_NAMES
from transept.plugins.whisper.published import PUBLISHED, live_policy

logger = logging.getLogger(__name__)

SAMPLE_RATE = 16_000  # Hz
SECONDS_PER_POSITION = 0.02  # one encoder position is two log-mel frames of 10 ms
FRAMES_PER_SECOND = 100


def window_seconds(view: CheckpointView) -> float:
    """Return the longest audio of one request: 30 s for every released checkpoint."""
    return float(view.config.max_source_positions) * SECONDS_PER_POSITION


def alignment_heads(view: CheckpointView) -> tuple[tuple[int, int], ...]:
    """Return the heads that the checkpoint names and has, or else all heads of the upper half of the decoder.

    Distilled checkpoints may name heads of their teacher, which has more layers.
    """
    layers, heads = view.config.decoder_layers, view.config.decoder_attention_heads
    given = [(layer, head) for layer, head in getattr(view.generation_config, "alignment_heads", None) or ()]
    if named := tuple((layer, head) for layer, head in given if 0 <= layer < layers and 0 <= head < heads):
        return named
    if given:
        logger.warning("the decoder has none of the checkpoint's alignment_heads: its upper half times words")
    return tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))


@hookimpl
def register_models() -> list[ModelSpec]:
    """Return one family, for Hugging Face and CTranslate2 checkpoints."""
    return [
        ModelSpec(
            name="whisper",
            architectures=("WhisperForConditionalGeneration", "WhisperSpec"),
            model_class="transept.plugins.whisper.model:WhisperForConditionalGeneration",
            default_decoder_prompt=control_tokens.default_decoder_prompt,
            prepare_decoder_prompt=control_tokens.prepare_decoder_prompt,
            input_mappers={
                "audio": "transept.plugins.whisper.features:map_audio",
                "audio_features": "transept.plugins.whisper.features:map_features",
                "short_audio_features": "transept.plugins.whisper.features:map_short_features",
            },
            weight_maps={
                "huggingface": "transept.plugins.whisper.weights:HUGGINGFACE",
                "ctranslate2": "transept.plugins.whisper.weights:CTRANSLATE2",
            },
            speech=SpeechSpec(
                sample_rate=SAMPLE_RATE,
                window_seconds=window_seconds,
                languages=control_tokens.languages,
                target_languages=control_tokens.target_languages,
                decoder_prompt=control_tokens.decoder_prompt,
                language_prompt=control_tokens.language_prompt,
                tokens=control_tokens.speech_tokens,
                features="transept.plugins.whisper.features:recording_features",
                frames_per_second=FRAMES_PER_SECOND,
                short_features_modality="short_audio_features",
                language_names=LANGUAGE_NAMES,
                seconds_per_timestamp=SECONDS_PER_POSITION,
                timestamp_rules="transept.plugins.whisper.timestamp_rules:timestamp_rules",
                unspoken_tokens="transept.plugins.whisper.unspoken:unspoken_tokens",
                alignment_heads=alignment_heads,
                live_policy=live_policy,
            ),
            published=PUBLISHED,
        )
    ]
