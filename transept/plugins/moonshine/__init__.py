"""Moonshine (Jeffries et al. 2024) and its streaming models: English speech from the waveform."""

from __future__ import annotations

from dataclasses import replace

from transept.authoring import CheckpointView, ModelSpec, ParameterError, SpeechSpec, SpeechTokens, dec_prompt, hookimpl

SAMPLE_RATE = 16_000  # Hz
STREAMING_FRAME = 80  # samples of a frame of the streaming models
STREAMING_TOKEN = 4 * STREAMING_FRAME  # samples of an encoder token
AUDIO = "transept.plugins.moonshine.audio"
WINDOW_SECONDS = 30.0  # the longest recording that one request carries


def decoder_prompt(
    view: CheckpointView, *, language: str | None = None, task: str = "transcribe", timestamps: bool = False
) -> list[int]:
    """Return the default prompt. Raises ParameterError for another language or task, for which there is no token."""
    if language not in (None, "en"):
        message = f"Moonshine transcribes English only, not {language!r}; leave {{language}} out if English is spoken"
        raise ParameterError(message, param="language", value=language)
    if task != "transcribe":
        message = f"Moonshine transcribes speech and cannot {task}; leave {{task}} out"
        raise ParameterError(message, param="task", value=task)
    return dec_prompt(view)


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """The vocabulary begins with ``<unk>``, ``<s>`` and ``</s>``; then comes text."""
    return SpeechTokens(
        end_of_text=view.config.eos_token_id,
        start_of_transcript=view.config.decoder_start_token_id,
        text=range(view.config.eos_token_id + 1, view.config.vocab_size),
    )


def unspoken_tokens(view: CheckpointView) -> list[int]:
    """Return ``<unk>``, ``<s>``, and the unused tokens at the end of the vocabulary."""
    tokenizer = view.tokenizer
    added = getattr(tokenizer, "added_tokens_decoder", None) or tokenizer.all_special_ids
    return [token for token in added if token != view.config.eos_token_id]


def window_seconds(view: CheckpointView) -> float:
    """Return WINDOW_SECONDS."""
    return WINDOW_SECONDS


def streaming_window_seconds(view: CheckpointView) -> float:
    """Return WINDOW_SECONDS, or the positions of the encoder's output in seconds if that is less."""
    return float(min(WINDOW_SECONDS, view.config.max_position_embeddings * STREAMING_TOKEN / SAMPLE_RATE))


def no_languages(view: CheckpointView) -> dict[str, None]:
    """Return none: the models know English only."""
    return {}


@hookimpl
def register_models() -> list[ModelSpec]:
    """Two families, read from Hugging Face checkpoints."""
    speech = SpeechSpec(
        sample_rate=SAMPLE_RATE,
        window_seconds=window_seconds,
        languages=no_languages,
        decoder_prompt=decoder_prompt,
        language_prompt=dec_prompt,
        tokens=speech_tokens,
        features=f"{AUDIO}:recording_features",
        frames_per_second=SAMPLE_RATE,
        language_names={"english": "en"},
        unspoken_tokens=unspoken_tokens,
    )
    moonshine = ModelSpec(
        name="moonshine",
        architectures=("MoonshineForConditionalGeneration",),
        model_class="transept.plugins.moonshine.model:MoonshineForConditionalGeneration",
        default_decoder_prompt=dec_prompt,
        input_mappers={"audio": f"{AUDIO}:map_audio", "audio_features": f"{AUDIO}:map_features"},
        weight_maps={"huggingface": "transept.plugins.moonshine.weights:HUGGINGFACE"},
        speech=speech,
    )
    streaming = replace(
        moonshine,
        name="moonshine-streaming",
        architectures=("MoonshineStreamingForConditionalGeneration",),
        model_class="transept.plugins.moonshine.streaming:MoonshineStreamingForConditionalGeneration",
        input_mappers={
            "audio": f"{AUDIO}:map_streaming_audio",
            "audio_features": f"{AUDIO}:map_streaming_features",
        },
        speech=replace(speech, window_seconds=streaming_window_seconds),
    )
    return [moonshine, streaming]
