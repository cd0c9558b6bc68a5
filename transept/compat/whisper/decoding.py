"""openai-whisper's ``whisper.decoding``: the text or the language of one window of 30 s, from its spectrogram.

`Whisper.decode` and `Whisper.detect_language` are these functions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from transept.core.jobs.job import Job
from transept.errors import MediaError, ParameterError, TranseptError, suggest
from transept.option_names import errors_as_given, refuse_unknown
from transept.options import declares_options, refusal, take_options
from transept.speech.algorithms.decoding import compression_ratio, decode_window
from transept.speech.algorithms.language import window_language
from transept.speech.algorithms.prompt import window_prompt
from transept.speech.algorithms.source import Source
from transept.speech.option_checks import check_options
from transept.speech.option_values import language_or_none
from transept.speech.options import SEQUENTIAL, TranscriptionOptions
from transept.speech.speech_model import SpeechModel
from transept.speech.transcriber import Transcriber

if TYPE_CHECKING:
    from torch import Tensor

RENAMED = {"prompt": "initial_prompt", "sample_len": "max_new_tokens", "length_penalty": "gnmt_length_penalty"}
ONE_LANGUAGE = "this model knows one language only, so there is nothing to detect"


class Loaded(Protocol):
    """The model of these functions: a `transept.compat.whisper.model.Whisper`."""

    transcriber: Transcriber


@declares_options("DecodingOptions has no")
@dataclass(frozen=True)
class DecodingOptions:
    """Options of decoding a window, as in openai-whisper. fp16 has no effect."""

    task: Literal["transcribe", "translate", "lang_id"] = "transcribe"
    language: str | None = None
    temperature: float = 0.0
    sample_len: int | None = None
    best_of: int | None = None
    beam_size: int | None = None
    patience: float | None = None
    length_penalty: float | None = None
    prompt: str | Sequence[int] | None = None
    prefix: str | None = None
    suppress_tokens: str | Iterable[int] | None = "-1"
    suppress_blank: bool = True
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0
    fp16: bool = True

    def __post_init__(self) -> None:
        take_options(self)

    def checked(self) -> TranscriptionOptions:
        """Convert to TranscriptionOptions with one attempt. Raises ParameterError."""
        given = {RENAMED.get(each.name, each.name): getattr(self, each.name) for each in dataclasses.fields(self)}
        del given["fp16"]
        if given["max_initial_timestamp"] == 0:
            given["max_initial_timestamp"] = None  # 0 means no bound in openai-whisper
        thresholds = ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold")
        task = "transcribe" if self.task == "lang_id" else self.task
        with errors_as_given(vars(self), (), RENAMED):
            return TranscriptionOptions(**{**given, "task": task, "mode": SEQUENTIAL, **dict.fromkeys(thresholds)})


@dataclass(frozen=True)
class DecodingResult:
    """The result for a window. tokens: without prompt and prefix. language_probs: only with the task lang_id.

    It has no ``audio_features``, because the encoder's output stays in the engine.
    """

    language: str
    language_probs: dict[str, float] | None = None
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    avg_logprob: float = math.nan
    no_speech_prob: float = math.nan
    temperature: float = math.nan
    compression_ratio: float = math.nan


def decode(model: Loaded, mel: Tensor, options: DecodingOptions | None = None, **changes: Any) -> Any:
    """Return the DecodingResult of a window, or a list for several windows.

    mel: [n_mels, up to 3000 frames], or [windows, n_mels, frames]. changes: options by their names.
    Raises MediaError for a spectrogram of another shape, ParameterError for a bad option.
    """
    options = DecodingOptions() if options is None else options
    refuse_unknown("DecodingOptions has no", changes, [each.name for each in dataclasses.fields(options)])
    options = dataclasses.replace(options, **changes)
    if options.task == "lang_id" and not model.transcriber.model.detects:
        raise refusal(options, ONE_LANGUAGE, "task")
    speech = model.transcriber.model
    heard = heard_as(speech, {"language": options.language, "task": options.task})
    checked = dataclasses.replace(options, **heard).checked()
    check_options(speech, checked)
    return _of_each(model.transcriber, mel, lambda window: _decoded(speech, window, options, checked))


def heard_as(speech: SpeechModel, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed options. An English-only model always transcribes English, as in openai-whisper.

    asked: options by their names. Raises ParameterError for a language that openai-whisper also refuses.
    """
    if not speech.is_english_only:
        return {}
    names, language = speech.spec.language_names, language_or_none("language", asked.get("language"))
    if names and language is not None and speech.language_code(language) not in names.values():
        message = f"there is no {{language}} {language!r}.{suggest(language, names)}"
        raise ParameterError(message, param="language", value=language)
    return {"language": None} | ({"task": "transcribe"} if asked.get("task") == "translate" else {})


def told_language(speech: SpeechModel, asked: str | None, heard: str) -> str:
    """Return the language of a result; an English-only model repeats the requested one, as in openai-whisper."""
    return (speech.is_english_only and language_or_none("language", asked)) or heard


def detect_language(model: Loaded, mel: Tensor, tokenizer: Any = None) -> tuple[Tensor, Any]:
    """Return the token of a window's language, and the probabilities of all languages by code; lists for several.

    mel: as for `decode`. tokenizer has no effect. Raises ParameterError for a model that knows one language only.
    """
    import torch

    speech = model.transcriber.model
    if not speech.detects:
        raise ParameterError(ONE_LANGUAGE, param="model")
    options = TranscriptionOptions()
    found = _of_each(model.transcriber, mel, lambda window: window_language(Source(speech, options, window)))
    if isinstance(found, list):
        tokens = torch.tensor([speech.language_tokens[each.code] for each in found])
        return tokens, [each.probabilities for each in found]
    return torch.tensor(speech.language_tokens[found.code]), found.probabilities


def _decoded(speech: SpeechModel, window: Tensor, options: DecodingOptions, checked: TranscriptionOptions) -> Job:
    """A job: the DecodingResult of one window."""
    heard, language = Source(speech, checked, window), speech.language_code(checked.language)
    if speech.detects and (language is None or options.task == "lang_id"):
        detected = yield from window_language(heard)
        language = detected.code
        if options.task == "lang_id":
            return DecodingResult(language, detected.probabilities)
    language = language or speech.undetected_language
    prompt = [] if not options.prompt else speech.tokenizer.encode_prompt(checked.initial_prompt or "")
    heard = dataclasses.replace(heard, language=language)
    result = yield from decode_window(heard, prompt, options.prefix)
    tokens = result.tokens[len(window_prompt(heard, prompt, options.prefix).prefix) :]
    text = speech.tokenizer.decode(tokens).strip()
    return DecodingResult(
        told_language(speech, options.language, language),
        tokens=tokens,
        text=text,
        avg_logprob=result.avg_logprob,
        no_speech_prob=result.no_speech_prob,
        temperature=result.temperature,
        compression_ratio=compression_ratio(text),
    )


def _of_each(transcriber: Transcriber, mel: Tensor, job: Any) -> Any:
    """Run a job for each window. Returns the result of a single window, or a list of results."""
    if mel.ndim not in (2, 3):
        raise MediaError(f"a spectrogram is [n_mels, frames] or [windows, n_mels, frames], not {list(mel.shape)}")
    windows = [mel] if mel.ndim == 2 else list(mel)
    results: dict[int, Any] = {}
    runner, device = transcriber.engine.runner, transcriber.engine.config.device
    jobs = (job(window.to(device).float()) for window in windows)
    for index, result in runner.run(jobs, max_jobs=transcriber.engine.config.max_num_seqs):
        if isinstance(result, TranseptError):
            raise result
        results[index] = result
    found = [results[index] for index in range(len(windows))]
    return found[0] if mel.ndim == 2 else found
