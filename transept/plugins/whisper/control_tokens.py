"""Whisper's control tokens: their ids in the vocabulary, and decoder prompts made of them.

openai-whisper's layout: text tokens, ``<|endoftext|>``, ``<|startoftranscript|>``, one token a language,
``<|translate|>``, ``<|transcribe|>``, ``<|startoflm|>``, ``<|startofprev|>``, ``<|nospeech|>``, ``<|notimestamps|>``,
then 1501 timestamps. English-only models have 51864 tokens, the language tokens among them, though they never use
those; large-v3 added Cantonese at the end of the languages. Fine-tuned checkpoints have further tokens after the
timestamps: words, or padding of the vocabulary. So the size of the vocabulary locates tokens only in a checkpoint
whose settings and files do not name them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from transept.authoring import CheckpointError, CheckpointView, ParameterError, PromptError, SpeechTokens, suggest
from transept.plugins.whisper.languages import LANGUAGE_NAMES, LANGUAGES
from transept.plugins.whisper.token_names import TokenIds, names_of_tokenizer, no_names

NUM_TIMESTAMPS = 1501  # 0.00 s to 30.00 s, 20 ms apart
NUM_OTHER_CONTROLS = 7  # from <|translate|> to <|notimestamps|>, and <|startoftranscript|>
MULTILINGUAL_VOCABULARY = 51865  # tokens; fewer: English only
# id of <|startoftranscript|>: English-only models have GPT-2's vocabulary, multilingual ones a larger one
IS_MULTILINGUAL = {50257: False, 50258: True}
NO_SPEECH_NAMES = ("<|nospeech|>", "<|nocaptions|>")  # openai-whisper's name now, and until 2022


class ControlTokens:
    """The ids of one checkpoint's control tokens.

    They come from the generation config if it has them, else from the names in the vocabulary, else from
    openai-whisper's layout, which begins at decoder_start_token_id and ends with the vocabulary.

    token_id: returns the id of a token name. Raises CheckpointError for impossible ids.
    """

    def __init__(self, config: Any, generation_config: Any = None, token_id: TokenIds = no_names) -> None:
        vocabulary = _Vocabulary(config.vocab_size, token_id)
        self.start_of_transcript = _start(config, generation_config, vocabulary)
        given = getattr(generation_config, "no_timestamps_token_id", None)
        self.no_timestamps = _no_timestamps(given, self.start_of_transcript, vocabulary)
        self.first_timestamp = self.no_timestamps + 1
        self.last_timestamp = self.no_timestamps + NUM_TIMESTAMPS
        tasks = _ids_by_name(generation_config, "task_to_id", config.vocab_size)

        def find(given: int | None, *names: str, before: int) -> int:
            found = vocabulary.named(*names) if given is None else given
            return self.no_timestamps - before if found is None else found

        self.translate = find(tasks.get("translate"), "<|translate|>", before=5)
        self.transcribe = find(tasks.get("transcribe"), "<|transcribe|>", before=4)
        self.start_of_lm = find(None, "<|startoflm|>", before=3)
        previous = getattr(generation_config, "prev_sot_token_id", None)
        self.start_of_previous = find(previous, "<|startofprev|>", before=2)
        self.no_speech = find(None, *NO_SPEECH_NAMES, before=1)
        named = _ids_by_name(generation_config, "lang_to_id", config.vocab_size)
        self.languages = {name.strip("<|>"): token for name, token in named.items()} or self._languages(vocabulary)
        multilingual = getattr(generation_config, "is_multilingual", None)
        if multilingual is None:
            by_size = config.vocab_size >= MULTILINGUAL_VOCABULARY
            multilingual = bool(named) or IS_MULTILINGUAL.get(self.start_of_transcript, by_size)
        self.multilingual = bool(multilingual)

    def _languages(self, vocabulary: _Vocabulary) -> dict[str, int]:
        named = {code: vocabulary.named(f"<|{code}|>") for code in LANGUAGES}
        found = {code: token for code, token in named.items() if token is not None}
        if found:
            return found
        first = self.start_of_transcript + 1
        num_languages = self.first_timestamp - self.start_of_transcript - NUM_OTHER_CONTROLS
        return dict(zip(LANGUAGES, range(first, first + num_languages), strict=False))


def _ids_by_name(generation_config: Any, setting: str, vocab_size: int) -> dict[str, int]:
    """Return a setting's token ids by name, in the order of the ids; empty without it. Raises CheckpointError."""
    given = getattr(generation_config, setting, None)
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(type(token) is int for token in given.values()):
        raise CheckpointError(
            f"{setting} of the generation config is {str(given)[:200]}; it must have a token id for each name"
        )
    if outside := [name for name, token in given.items() if not 0 <= token < vocab_size]:
        raise CheckpointError(
            f"{setting} of the generation config has {given[outside[0]]} for {outside[0]}; token ids go from 0 to "
            f"{vocab_size - 1}"
        )
    return dict(sorted(given.items(), key=lambda each: each[1]))


@dataclass(frozen=True)
class _Vocabulary:
    """Names of the tokens that a model has; a tokenizer may know more."""

    size: int
    token_id: TokenIds

    def named(self, *names: str) -> int | None:
        """Return the id of a token by the first of its names that exists."""
        found = (self.token_id(name) for name in names)
        return next((token for token in found if token is not None and 0 <= token < self.size), None)


def _start(config: Any, generation_config: Any, vocabulary: _Vocabulary) -> int:
    """Return the id of <|startoftranscript|>."""
    for settings in (generation_config, config):
        if (start := getattr(settings, "decoder_start_token_id", None)) is not None:
            return int(start)
    if (named := vocabulary.named("<|startoftranscript|>")) is not None:
        return named
    raise CheckpointError(
        "decoder_start_token_id is missing, and no token is called <|startoftranscript|>; copy config.json and the "
        "tokenizer's files from where the checkpoint was published"
    )


def _no_timestamps(given: int | None, start: int, vocabulary: _Vocabulary) -> int:
    """Return the id of <|notimestamps|>. given: the id in the generation config, if any."""
    highest = vocabulary.size - NUM_TIMESTAMPS - 1
    found = vocabulary.named("<|notimestamps|>") if given is None else given
    if found is None:
        return highest
    if not start < found <= highest:
        by_name = "<|notimestamps|> of the tokenizer"
        raise CheckpointError(
            f"{by_name if given is None else 'no_timestamps_token_id of the generation config'} is {found}; it must "
            f"come after decoder_start_token_id={start}, and {NUM_TIMESTAMPS} timestamps follow it within "
            f"vocab_size={vocabulary.size}"
        )
    return found


_known: WeakKeyDictionary[CheckpointView, ControlTokens] = WeakKeyDictionary()


def tokens_of(view: CheckpointView) -> ControlTokens:
    """Return the control tokens of a checkpoint, cached."""
    if view not in _known:
        _known[view] = ControlTokens(view.config, view.generation_config, names_of_tokenizer(view.tokenizer))
    return _known[view]


def _added_text(view: CheckpointView, tokens: ControlTokens) -> tuple[int, ...]:
    """Return the text tokens after the timestamps: those that the tokenizer knows and that are not special."""
    added, tokenizer = range(tokens.last_timestamp + 1, view.config.vocab_size), view.tokenizer
    if tokenizer is None:
        return ()
    return tuple(token for token in added if tokenizer.decode([token], skip_special_tokens=True))


def speech_tokens(view: CheckpointView) -> SpeechTokens:
    """Return the control tokens for transcription."""
    tokens = tokens_of(view)
    return SpeechTokens(
        end_of_text=tokens.start_of_transcript - 1,
        start_of_transcript=tokens.start_of_transcript,
        start_of_previous=tokens.start_of_previous,
        no_speech=tokens.no_speech,
        first_timestamp=tokens.first_timestamp,
        no_timestamps=tokens.no_timestamps,
        last_timestamp=tokens.last_timestamp,
        added_text=_added_text(view, tokens),
        prompt_only=(
            *(tokens.start_of_transcript, tokens.translate, tokens.transcribe),
            *(tokens.start_of_lm, tokens.start_of_previous, tokens.no_speech),
        ),
    )


def languages(view: CheckpointView) -> dict[str, int]:
    """Return language code -> token id; empty for an English-only checkpoint."""
    tokens = tokens_of(view)
    return tokens.languages if tokens.multilingual else {}


def target_languages(view: CheckpointView) -> tuple[str, ...]:
    """Return English, which has no target token: the task "translate" implies it."""
    return ("en",) if tokens_of(view).multilingual else ()


def decoder_prompt(
    view: CheckpointView,
    *,
    language: str | None = None,
    task: str = "transcribe",
    timestamps: bool = False,
    target_language: str | None = None,
) -> list[int]:
    """Return the tokens that begin a transcript: ``<|startoftranscript|><|en|><|transcribe|><|notimestamps|>``.

    language: a code such as ``"de"``; default English. English-only checkpoints have neither language nor task tokens.
    target_language: of the task "translate"; only English.
    Raises ParameterError for a language or a task that the checkpoint does not have.
    """
    tokens = tokens_of(view)
    if task not in ("transcribe", "translate"):
        message = '{task} must be "transcribe" or "translate", not {task!}'
        raise ParameterError(message, param="task", value=task)
    prompt = [tokens.start_of_transcript]
    if tokens.multilingual:
        code = language or "en"
        if code not in tokens.languages:
            message = f"this checkpoint has no {{language}} {{language!}}.{suggest(code, list(tokens.languages))}"
            raise ParameterError(message, param="language", value=language)
        prompt += [tokens.languages[code], tokens.translate if task == "translate" else tokens.transcribe]
    elif language not in (None, "en") and (near := suggest(language, ["english"])).startswith(" Did you mean"):
        message = f"this checkpoint has no {{language}} {{language!}}.{near}"
        raise ParameterError(message, param="language", value=language)
    elif language not in (None, "en"):
        use = "use a multilingual one, or " if language in LANGUAGES else ""
        raise ParameterError(
            f"this checkpoint knows English only, not {{language!}}; {use}leave {{language}} out if English is spoken",
            param="language",
            value=language,
        )
    elif task == "translate":
        message = "this checkpoint knows English only and has no {task=}; use a multilingual one"
        raise ParameterError(message, param="task", value=task)
    return prompt if timestamps else [*prompt, tokens.no_timestamps]


def default_decoder_prompt(view: CheckpointView) -> list[int]:
    """Return the tokens that begin a transcript in the language and task of the checkpoint's settings; default English.

    The settings are `language` and `task` of the generation config or, in older checkpoints, forced_decoder_ids of the
    generation config or the config. Raises PromptError for a language or a task that the checkpoint does not have.
    """
    tokens, settings = tokens_of(view), view.generation_config
    language, task = (getattr(settings, name, None) for name in ("language", "task"))
    if not tokens.multilingual:
        return decoder_prompt(view)
    if language is None and task is None:
        forced = _forced_tokens(view)
        language = next((code for code, token in tokens.languages.items() if token in forced), None)
        task = "translate" if tokens.translate in forced else None
    code = None if language is None else str(language).lower().strip("<|>")
    try:
        return decoder_prompt(view, language=code and LANGUAGE_NAMES.get(code, code), task=task or "transcribe")
    except ParameterError as error:
        raise PromptError(f"the generation config has language={language!r} and task={task!r}: {error}") from None


def _forced_tokens(view: CheckpointView) -> list[int]:
    """Return the tokens of forced_decoder_ids: pairs of a position and a token, or of a position and null."""
    settings = (view.generation_config, view.config)
    given: Any = next((ids for each in settings if (ids := getattr(each, "forced_decoder_ids", None)) is not None), [])
    pairs = [pair for pair in given if isinstance(pair, list | tuple) and len(pair) == 2]
    return [token for _, token in pairs if token is not None]


def language_prompt(view: CheckpointView) -> list[int]:
    """Return ``<|startoftranscript|>``, after which the next token is the language."""
    return [tokens_of(view).start_of_transcript]


def prepare_decoder_prompt(token_ids: Sequence[int], view: CheckpointView) -> list[int]:
    """Prepend ``<|startoftranscript|>`` unless it is there.

    Earlier text, which begins with ``<|startofprev|>``, precedes it: then the default prompt is appended.
    """
    tokens = tokens_of(view)
    if tokens.start_of_transcript in token_ids:
        return list(token_ids)
    if token_ids and token_ids[0] == tokens.start_of_previous:
        return [*token_ids, *default_decoder_prompt(view)]
    return [tokens.start_of_transcript, *token_ids]
