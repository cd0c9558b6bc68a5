"""Speech2Text (Wang et al. 2020): recognition and translation of speech, facebook/s2t-*."""

from __future__ import annotations

import re

from transept.authoring import CheckpointView, ModelSpec, ParameterError, SpeechSpec, SpeechTokens, dec_prompt, hookimpl

SAMPLE_RATE = 16_000  # Hz
FRAMES_PER_SECOND = 100
WINDOW_SECONDS = 30.0  # as in training; the models have positions for twice as much
LANGUAGES = ("en", "pt", "fr", "ru", "nl", "ro", "it", "es", "de")  # of MuST-C
LANGUAGE = re.compile(r"<lang:(.+)>")
NAMES = ("english", "portuguese", "french", "russian", "dutch", "romanian", "italian", "spanish", "german")


def window_seconds(view: CheckpointView) -> float:
    """Return WINDOW_SECONDS, or the encoder's positions in seconds if that is less."""
    return float(min(WINDOW_SECONDS, view.config.max_source_positions / FRAMES_PER_SECOND))


def target_languages(view: CheckpointView) -> dict[str, int]:
    """Return code -> token id; empty for a checkpoint that writes one language."""
    tokenizer = view.tokenizer
    if hasattr(tokenizer, "lang_code_to_id"):
        return dict(tokenizer.lang_code_to_id)
    return {match[1]: token for name, token in tokenizer.get_vocab().items() if (match := LANGUAGE.fullmatch(name))}


def decoder_prompt(
    view: CheckpointView,
    *,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = False,
    target_language: str | None = None,
) -> list[int]:
    """Return ``</s>`` and, for a checkpoint of several target languages, the target's token: ``</s> <lang:fr>``.

    Raises ParameterError if such a checkpoint gets no target language, or another spoken language than English. A
    checkpoint with one language refuses a task, because it always writes that language.
    """
    targets, start = target_languages(view), dec_prompt(view)
    if not targets:
        if task != "transcribe":
            message = "this checkpoint writes the one language that it was trained for; leave {task} out"
            raise ParameterError(message, param="task", value=task)
        return start
    if language not in (None, "en"):
        raise ParameterError(
            f"this checkpoint translates from English only, not {language!r}; leave {{language}} out if it is spoken",
            param="language",
            value=language,
        )
    if target_language is None:
        message = f"this checkpoint translates; say to which {{target_language}}: {', '.join(sorted(targets))}"
        raise ParameterError(message, param="target_language")
    return [*start, targets[target_language]]


def unspoken_tokens(view: CheckpointView) -> list[int]:
    """Return ``<s>``, ``<pad>``, ``<unk>`` and the language tokens."""
    return sorted({*view.tokenizer.all_special_ids, *target_languages(view).values()} - {view.config.eos_token_id})


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """Return the control tokens: ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` are first, then text and languages."""
    vocabulary = view.tokenizer.get_vocab()  # a padded model has more rows
    return SpeechTokens(
        end_of_text=view.config.eos_token_id,
        start_of_transcript=view.config.decoder_start_token_id,
        prompt_only=tuple(target_languages(view).values()),
        text=range(vocabulary["<unk>"] + 1, min(max(vocabulary.values()) + 1, view.config.vocab_size)),
    )


@hookimpl
def register_models() -> list[ModelSpec]:
    """One family, read from Hugging Face checkpoints."""
    return [
        ModelSpec(
            name="speech2text",
            architectures=("Speech2TextForConditionalGeneration",),
            model_class="transept_speech2text.model:Speech2TextForConditionalGeneration",
            default_decoder_prompt=dec_prompt,
            input_mappers={
                "audio": "transept_speech2text.audio:map_audio",
                "audio_features": "transept_speech2text.audio:map_features",
            },
            weight_maps={"huggingface": "transept_speech2text.weights:HUGGINGFACE"},
            speech=SpeechSpec(
                sample_rate=SAMPLE_RATE,
                window_seconds=window_seconds,
                languages=lambda view: {},
                target_languages=target_languages,
                decoder_prompt=decoder_prompt,
                tokens=speech_tokens,
                features="transept_speech2text.audio:recording_features",
                frames_per_second=FRAMES_PER_SECOND,
                language_names=dict(zip(NAMES, LANGUAGES, strict=True)),
                unspoken_tokens=unspoken_tokens,
            ),
        )
    ]
