"""Whisper's control tokens: where they lie in the vocabulary, and the decoder prompts that they make.

The layout is openai-whisper's: text tokens, ``<|endoftext|>``, ``<|startoftranscript|>``, one token a language,
``<|translate|>``, ``<|transcribe|>``, ``<|startoflm|>``, ``<|startofprev|>``, ``<|nospeech|>``, ``<|notimestamps|>``,
then 1501 timestamps. English-only models have 51864 tokens, the language tokens among them, though they never use
those; large-v3 added Cantonese at the end of the languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transept.authoring import CheckpointError, CheckpointView, ParameterError, SpeechTokens, suggest
from transept.plugins.whisper.languages import LANGUAGES

NUM_TIMESTAMPS = 1501  # 0.00 s to 30.00 s, 20 ms apart
NUM_OTHER_CONTROLS = 7  # from <|translate|> to <|notimestamps|>, and <|startoftranscript|>
MULTILINGUAL_VOCABULARY = 51865  # tokens; fewer: English only


class ControlTokens:
    """The ids of one checkpoint's control tokens, from its config.

    generation_config: of one that may have more tokens after Whisper's own, as fine-tuned ones do, and then says where
    these end and whether there are languages. Raises CheckpointError where that cannot be.
    """

    def __init__(self, config: Any, generation_config: Any = None) -> None:
        multilingual = getattr(generation_config, "is_multilingual", None)
        self.multilingual = config.vocab_size >= MULTILINGUAL_VOCABULARY if multilingual is None else bool(multilingual)
        self.start_of_transcript: int = config.decoder_start_token_id
        no_timestamps = getattr(generation_config, "no_timestamps_token_id", None)
        first_timestamp = config.vocab_size - NUM_TIMESTAMPS if no_timestamps is None else no_timestamps + 1
        highest = config.vocab_size - NUM_TIMESTAMPS - 1
        if no_timestamps is not None and not self.start_of_transcript < no_timestamps <= highest:
            raise CheckpointError(
                f"no_timestamps_token_id of the generation config is {no_timestamps}; it must come after "
                f"decoder_start_token_id={self.start_of_transcript}, and {NUM_TIMESTAMPS} timestamps follow it within "
                f"vocab_size={config.vocab_size}"
            )
        num_languages = first_timestamp - self.start_of_transcript - NUM_OTHER_CONTROLS
        self.first_language = self.start_of_transcript + 1
        self.translate = self.first_language + num_languages
        self.transcribe = self.translate + 1
        self.start_of_previous = self.translate + 3
        self.no_speech = self.translate + 4
        self.no_timestamps = self.translate + 5
        self.first_timestamp = first_timestamp
        self.languages = dict(zip(LANGUAGES, range(self.first_language, self.translate), strict=False))


def _of(view: CheckpointView) -> ControlTokens:
    return ControlTokens(view.config, view.generation_config)


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """The control tokens that transcription tells apart."""
    tokens = _of(view)
    return SpeechTokens(
        end_of_text=tokens.start_of_transcript - 1,
        start_of_transcript=tokens.start_of_transcript,
        start_of_previous=tokens.start_of_previous,
        no_speech=tokens.no_speech,
        first_timestamp=tokens.first_timestamp,
        no_timestamps=tokens.no_timestamps,
        prompt_only=(tokens.start_of_transcript, *range(tokens.translate, tokens.no_timestamps)),
    )


def languages(view: CheckpointView) -> dict[str, int]:
    """Language code to token id; empty for an English-only checkpoint."""
    tokens = _of(view)
    return tokens.languages if tokens.multilingual else {}


def target_languages(view: CheckpointView) -> tuple[str, ...]:
    """English, of which there is no token: it is what the task "translate" means."""
    return ("en",) if _of(view).multilingual else ()


def decoder_prompt(
    view: CheckpointView,
    *,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = False,
    target_language: str | None = None,
) -> list[int]:
    """The tokens that open a transcript: ``<|startoftranscript|><|en|><|transcribe|><|notimestamps|>``.

    language: a code such as ``"de"``; default English. English-only checkpoints have neither language nor task tokens.
    target_language: of the task "translate", which has no other than English.
    Raises ParameterError for a language or a task that the checkpoint does not have.
    """
    tokens = _of(view)
    if task not in ("transcribe", "translate"):
        raise ParameterError(f'task must be "transcribe" or "translate", not {task!r}')
    prompt = [tokens.start_of_transcript]
    if tokens.multilingual:
        code = language or "en"
        if code not in tokens.languages:
            raise ParameterError(f"this checkpoint has no language {code!r}.{suggest(code, list(tokens.languages))}")
        prompt += [tokens.languages[code], tokens.translate if task == "translate" else tokens.transcribe]
    elif language not in (None, "en"):
        use = "use a multilingual one, or " if language in LANGUAGES else ""
        raise ParameterError(
            f"this checkpoint knows English only, not {language!r}; {use}leave language out if English is spoken"
        )
    elif task == "translate":
        raise ParameterError("this checkpoint knows English only and cannot translate; use a multilingual one")
    return prompt if timestamps else [*prompt, tokens.no_timestamps]


def language_prompt(view: CheckpointView) -> list[int]:
    """After ``<|startoftranscript|>`` alone, the next token names the language."""
    return [_of(view).start_of_transcript]


def prepare_decoder_prompt(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Prepend ``<|startoftranscript|>`` unless it is there.

    Earlier text that begins with ``<|startofprev|>`` stands before it, so there the default prompt is appended.
    """
    tokens = _of(view)
    if tokens.start_of_transcript in token_ids:
        return list(token_ids)
    if token_ids and token_ids[0] == tokens.start_of_previous:
        return [*token_ids, *decoder_prompt(view)]
    return [tokens.start_of_transcript, *token_ids]
