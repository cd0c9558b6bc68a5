"""SpeechT5 (Ao et al. 2022): English speech from the waveform, microsoft/speecht5_asr."""

from __future__ import annotations

from transept.authoring import CheckpointView, ModelSpec, ParameterError, SpeechSpec, SpeechTokens, dec_prompt, hookimpl

SAMPLE_RATE = 16_000  # Hz
WINDOW_SECONDS = 30.0  # about the longest recording in training; the encoder has positions for 80 s


def decoder_prompt(
    view: CheckpointView, *, language: str | None = None, task: str = "transcribe", timestamps: bool = False
) -> list[int]:
    """Return the default prompt. Raises ParameterError for another language or task, for which there is no token."""
    if language not in (None, "en"):
        message = f"SpeechT5 transcribes English only, not {language!r}; leave {{language}} out if English is spoken"
        raise ParameterError(message, param="language", value=language)
    if task != "transcribe":
        message = f"SpeechT5 transcribes speech and cannot {task}; leave {{task}} out"
        raise ParameterError(message, param="task", value=task)
    return dec_prompt(view)


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """Return the control tokens: ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` are first; each later token is a letter."""
    vocabulary = view.tokenizer.get_vocab()  # a padded model has more rows
    return SpeechTokens(
        end_of_text=view.config.eos_token_id,
        start_of_transcript=view.config.decoder_start_token_id,
        text=range(vocabulary["<unk>"] + 1, min(max(vocabulary.values()) + 1, view.config.vocab_size)),
    )


def unspoken_tokens(view: CheckpointView) -> list[int]:
    """Return ``<s>``, ``<pad>``, ``<unk>``, and ``<mask>`` and ``<ctc_blank>`` at the end of the vocabulary."""
    added = getattr(view.tokenizer, "added_tokens_decoder", ())
    return sorted({*view.tokenizer.all_special_ids, *added} - {view.config.eos_token_id})


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="speecht5",
            architectures=("SpeechT5ForSpeechToText",),
            model_class="transept_speecht5.model:SpeechT5ForSpeechToText",
            default_decoder_prompt=dec_prompt,
            input_mappers={
                "audio": "transept_speecht5.audio:map_audio",
                "audio_features": "transept_speecht5.audio:map_features",
            },
            weight_maps={"huggingface": "transept_speecht5.weights:HUGGINGFACE"},
            speech=SpeechSpec(
                sample_rate=SAMPLE_RATE,
                window_seconds=lambda view: WINDOW_SECONDS,
                languages=lambda view: {},
                decoder_prompt=decoder_prompt,
                tokens=speech_tokens,
                features="transept_speecht5.audio:recording_features",
                frames_per_second=SAMPLE_RATE,
                language_names={"english": "en"},
                unspoken_tokens=unspoken_tokens,
            ),
        )
    ]
