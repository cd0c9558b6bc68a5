"""Speech families with a Fast Conformer encoder (Rekesh et al. 2023): Canary and Cohere Transcribe."""

from __future__ import annotations

from dataclasses import replace

from transept.authoring import CheckpointView, ModelSpec, SpeechSpec, dec_prompt, hookimpl
from transept.plugins.conformer import prompts
from transept.plugins.conformer.languages import LANGUAGE_NAMES

SAMPLE_RATE = 16_000  # Hz
CANARY_SECONDS, COHERE_SECONDS = 40.0, 35.0  # the longest audio of one request, as in training
FEATURES = "transept.plugins.conformer.features"


def canary_seconds(view: CheckpointView) -> float:
    """Return CANARY_SECONDS."""
    return CANARY_SECONDS


def cohere_seconds(view: CheckpointView) -> float:
    """Return COHERE_SECONDS."""
    return COHERE_SECONDS


@hookimpl
def register_models() -> list[ModelSpec]:
    """Two families, read from Hugging Face checkpoints."""
    speech = SpeechSpec(
        sample_rate=SAMPLE_RATE,
        window_seconds=canary_seconds,
        languages=prompts.canary_languages,
        target_languages=prompts.canary_languages,
        decoder_prompt=prompts.canary_prompt,
        tokens=prompts.speech_tokens,
        features=f"{FEATURES}:recording_features",
        frames_per_second=SAMPLE_RATE,  # the features of a recording are its samples
        language_names=LANGUAGE_NAMES,
    )
    canary = ModelSpec(
        name="canary",
        architectures=("CanaryForConditionalGeneration",),
        model_class="transept.plugins.conformer.model:CanaryForConditionalGeneration",
        default_decoder_prompt=dec_prompt,
        input_mappers={"audio": f"{FEATURES}:map_audio", "audio_features": f"{FEATURES}:map_features"},
        weight_maps={"huggingface": "transept.plugins.conformer.weights:CANARY"},
        speech=speech,
    )
    cohere = replace(
        canary,
        name="cohere",
        architectures=("CohereAsrForConditionalGeneration",),
        model_class="transept.plugins.conformer.model:CohereAsrForConditionalGeneration",
        default_decoder_prompt=prompts.cohere_default_prompt,
        prepare_decoder_prompt=prompts.unchanged,
        input_mappers={
            "audio": f"{FEATURES}:map_cohere_audio",
            "audio_features": f"{FEATURES}:map_cohere_features",
        },
        weight_maps={"huggingface": "transept.plugins.conformer.weights:COHERE"},
        speech=replace(
            speech,
            window_seconds=cohere_seconds,
            languages=prompts.cohere_languages,
            target_languages=prompts.no_languages,
            decoder_prompt=prompts.cohere_prompt,
        ),
    )
    return [canary, cohere]
