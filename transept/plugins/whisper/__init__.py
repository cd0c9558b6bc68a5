"""Whisper: speech recognition and translation (Radford et al. 2022)."""

from __future__ import annotations

from typing import Any

from transept.authoring import ModelSpec, SpeechSpec, hookimpl
from transept.plugins.whisper import control_tokens

SAMPLE_RATE = 16_000  # Hz
SECONDS_PER_POSITION = 0.02  # one encoder position is two log-mel frames of 10 ms


def window_seconds(config: Any) -> float:
    """The longest audio that one request may carry: 30 s for every released checkpoint."""
    return float(config.max_source_positions) * SECONDS_PER_POSITION


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face and from CTranslate2 checkpoints."""
    return [
        ModelSpec(
            name="whisper",
            architectures=("WhisperForConditionalGeneration", "WhisperSpec"),
            model_class="transept.plugins.whisper.model:WhisperForConditionalGeneration",
            default_decoder_prompt=control_tokens.decoder_prompt,
            prepare_decoder_prompt=control_tokens.prepare_decoder_prompt,
            input_mappers={"audio": "transept.plugins.whisper.features:map_audio"},
            weight_maps={
                "huggingface": "transept.plugins.whisper.weights:HUGGINGFACE",
                "ctranslate2": "transept.plugins.whisper.weights:CTRANSLATE2",
            },
            speech=SpeechSpec(
                sample_rate=SAMPLE_RATE,
                window_seconds=window_seconds,
                languages=control_tokens.languages,
                decoder_prompt=control_tokens.decoder_prompt,
                language_prompt=control_tokens.language_prompt,
            ),
        )
    ]
