"""SeamlessM4T (Barrault et al. 2023): speech to text in a hundred languages. The spoken language need not be known."""

from __future__ import annotations

from transept.authoring import (
    CheckpointView,
    ModelSpec,
    ParameterError,
    SpeechSpec,
    SpeechTokens,
    dec_prompt,
    hookimpl,
)
from transept_seamless.languages import LANGUAGE_NAMES

SAMPLE_RATE = 16_000  # Hz
WINDOW_SECONDS = 30.0  # the longest recording that one request carries
FRAMES_PER_SECOND = 100


def target_languages(view: CheckpointView) -> dict[str, int]:
    """Return code -> token id of the text decoder's languages. Raises CheckpointError if the checkpoint names none."""
    codes = getattr(view.generation_config, "text_decoder_lang_to_code_id", None)
    if not codes:
        raise view.lacks("text_decoder_lang_to_code_id")
    return dict(codes)


def decoder_prompt(
    view: CheckpointView,
    *,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = False,
    target_language: str | None = None,
) -> list[int]:
    """Return ``</s>`` and the token of the language to write: ``</s>__fra__``.

    Raises ParameterError without a language: the model does not detect the spoken one.
    """
    targets, written = target_languages(view), target_language or language
    if written is None:
        raise ParameterError(
            "this model needs the language to write: pass {target_language}, or {language} if it is the spoken one: "
            f"one of {', '.join(sorted(targets))}",
            param="target_language",
            others=["language"],
        )
    return [*dec_prompt(view), targets[written]]


def unspoken_tokens(view: CheckpointView) -> list[int]:
    """Return ``<pad>``, ``<unk>``, ``<s>``, the languages, and other tokens without text."""
    special = {*view.tokenizer.all_special_ids, *target_languages(view).values()}
    return sorted(special - {view.config.eos_token_id})


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """Return the control tokens. The vocabulary has ``<pad>``, ``<unk>``, ``<s>``, ``</s>``, text, then languages."""
    end = view.config.eos_token_id
    return SpeechTokens(
        end_of_text=end,
        start_of_transcript=view.config.decoder_start_token_id,
        prompt_only=tuple(target_languages(view).values()),
        text=range(end + 1, min(token for token in unspoken_tokens(view) if token > end)),
    )


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family of two generations, read from Hugging Face checkpoints of speech to text or of the whole model."""
    generations = ("SeamlessM4T", "SeamlessM4Tv2")
    return [
        ModelSpec(
            name="seamless",
            architectures=tuple(f"{each}{part}" for each in generations for part in ("ForSpeechToText", "Model")),
            model_class="transept_seamless.model:SeamlessForSpeechToText",
            default_decoder_prompt=dec_prompt,
            input_mappers={
                "audio": "transept_seamless.audio:map_audio",
                "audio_features": "transept_seamless.audio:map_features",
            },
            weight_maps={"huggingface": "transept_seamless.weights:HUGGINGFACE"},
            speech=SpeechSpec(
                sample_rate=SAMPLE_RATE,
                window_seconds=lambda view: WINDOW_SECONDS,
                languages=lambda view: dict.fromkeys(target_languages(view)),
                target_languages=target_languages,
                decoder_prompt=decoder_prompt,
                tokens=speech_tokens,
                features="transept_seamless.audio:recording_features",
                frames_per_second=FRAMES_PER_SECOND,
                language_names=LANGUAGE_NAMES,
                unspoken_tokens=unspoken_tokens,
            ),
        )
    ]
