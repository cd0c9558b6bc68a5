"""The declaration of the Skeleton family. Imported whenever plugins are listed, so it imports nothing heavy."""

from __future__ import annotations

from transept.authoring import CheckpointView, ModelSpec, ParameterError, SpeechSpec, SpeechTokens, dec_prompt, hookimpl

SAMPLE_RATE = 16_000  # Hz
FRAMES_PER_SECOND = 100


def window_seconds(view: CheckpointView) -> float:
    """Return the length of the encoder's positions, in seconds."""
    return float(view.config.max_source_positions / FRAMES_PER_SECOND)


def decoder_prompt(
    view: CheckpointView, *, language: str | None = None, task: str = "transcribe", timestamps: bool = False
) -> list[int]:
    """Return one token for every language. Raises ParameterError for a task other than transcription."""
    if task != "transcribe":
        message = f"this model transcribes only, and has no {{task}} {task!r}; leave it out"
        raise ParameterError(message, param="task", value=task)
    return dec_prompt(view)


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """The vocabulary begins with ``<s>``, ``<pad>``, ``</s>`` and ``<unk>``; then comes text."""
    end = view.config.eos_token_id
    return SpeechTokens(
        end_of_text=end,
        start_of_transcript=view.config.decoder_start_token_id,
        text=range(end + 2, view.config.vocab_size),
    )


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="skeleton",
            architectures=("SkeletonForConditionalGeneration",),  # as in config.json; there may be several
            model_class="transept_skeleton.model:SkeletonForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            weight_maps={"huggingface": "transept_skeleton.weights:HUGGINGFACE"},
            input_mappers={
                "audio": "transept_skeleton.mapper:map_audio",  # a recording of one window at most
                "audio_features": "transept_skeleton.mapper:map_features",  # a window of a longer one
            },
            speech=SpeechSpec(
                sample_rate=SAMPLE_RATE,
                window_seconds=window_seconds,
                languages=lambda view: {},  # one language
                decoder_prompt=decoder_prompt,
                tokens=speech_tokens,
                features="transept_skeleton.mapper:recording_features",
                frames_per_second=FRAMES_PER_SECOND,
                unspoken_tokens=lambda view: [0, 1, 3],  # <s>, <pad>, <unk>
            ),
        )
    ]
