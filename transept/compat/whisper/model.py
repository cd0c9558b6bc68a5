"""openai-whisper's ``load_model``, the model that it returns, and its ``transcribe`` of whole recordings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from transept.compat.transcribers import CompatTranscriber
from transept.compat.whisper.decoding import (
    RENAMED,
    DecodingOptions,
    decode,
    detect_language,
    heard_as,
    told_language,
)
from transept.errors import ParameterError, TranseptError
from transept.option_names import by_own_names, errors_as_given
from transept.options import declared
from transept.registry.plugins import discover
from transept.registry.published import published_checkpoints
from transept.speech.option_values import rising_temperatures
from transept.speech.options import (
    APPEND_PUNCTUATIONS,
    BATCHED,
    FALLBACK_TEMPERATURES,
    PREPEND_PUNCTUATIONS,
    SEQUENTIAL,
    TranscriptionOptions,
)
from transept.speech.output.writers import clock
from transept.speech.recording import AudioInput
from transept.speech.segments import Segment
from transept.speech.transcriber import Transcriber

if TYPE_CHECKING:
    import torch

    from transept.compat.option_types import OpenaiWhisperKeywords

    class DecodeKeywords(OpenaiWhisperKeywords, total=False):
        """Options of DecodingOptions and of openai-whisper's command, and aliases of those in the signature."""

        fp16: bool
        prompt: str | Sequence[int] | None
        sample_len: int | None
        temperature_increment_on_fallback: float | None
        condition_on_prev_tokens: bool
        log_prob_threshold: float | None


CONTROLS_AFTER_LANGUAGES = 5  # between the languages and <|notimestamps|>
WITHOUT_EFFECT = {"fp16", "prompt"}  # dtype is the model's; transcribe() makes the prompts


def available_models() -> list[str]:
    """Return the names that `load_model` knows."""
    return sorted(published_checkpoints(discover()))


def load_model(
    name: str, device: str | None = None, download_root: str | None = None, in_memory: bool = False
) -> Whisper:
    """Load a model by its name, such as ``"base"``, or by the path of its folder.

    device: None: a GPU if there is one. download_root: folder of models. in_memory has no effect.
    """
    given = "auto" if device is None else str(device)
    return Whisper(CompatTranscriber(name, device=given, model_dir=download_root))


@dataclass(frozen=True)
class ModelDimensions:
    """Sizes of a model, under openai-whisper's names. n_audio_ctx: length of the encoder's output for one window."""

    n_mels: int
    n_audio_ctx: int
    n_vocab: int
    n_text_ctx: int


class Whisper:
    """A loaded model. transcriber: the Transcriber that runs it."""

    def __init__(self, transcriber: Transcriber) -> None:
        self.transcriber = transcriber

    @property
    def is_multilingual(self) -> bool:
        """True if the model knows more than one language."""
        return bool(self.transcriber.model.languages)

    @property
    def num_languages(self) -> int:
        """Number of languages with tokens in the vocabulary; an English-only vocabulary also has them."""
        model = self.transcriber.model
        control = model.tokenizer.control
        if model.languages or control.no_timestamps is None:
            return len(model.languages)
        return control.no_timestamps - control.start_of_transcript - 1 - CONTROLS_AFTER_LANGUAGES

    @property
    def dims(self) -> ModelDimensions:
        """The model's sizes."""
        model = self.transcriber.model
        config = model.view.config
        return ModelDimensions(
            config.num_mel_bins, config.max_source_positions, model.vocab_size, config.max_target_positions
        )

    @property
    def device(self) -> torch.device:
        """The model's device."""
        import torch

        return torch.device(self.transcriber.engine.config.device)

    def to(self, device: str | torch.device) -> Whisper:
        """Return the model. Raises ParameterError for another device, which only `load_model` can choose."""
        import torch

        wanted = torch.device(device)
        if (wanted.type, wanted.index or 0) != (self.device.type, self.device.index or 0):
            raise ParameterError(
                f'this model runs on {self.device}; load_model(..., device="{wanted}") loads one there',
                param="device",
                value=device,
            )
        return self

    def eval(self) -> Whisper:
        """Return the model, which is never in training mode."""
        return self

    def transcribe(
        self,
        audio: AudioInput,
        *,
        verbose: bool | None = None,
        temperature: float | Sequence[float] = FALLBACK_TEMPERATURES,
        compression_ratio_threshold: float | None = 2.4,
        logprob_threshold: float | None = -1.0,
        no_speech_threshold: float | None = 0.6,
        condition_on_previous_text: bool = True,
        initial_prompt: str | None = None,
        carry_initial_prompt: bool = False,
        word_timestamps: bool = False,
        prepend_punctuations: str = PREPEND_PUNCTUATIONS,
        append_punctuations: str = APPEND_PUNCTUATIONS,
        clip_timestamps: str | Sequence[float] = "0",
        hallucination_silence_threshold: float | None = None,
        **decode_options: Unpack[DecodeKeywords],
    ) -> dict[str, Any]:
        """Return the text, the segments and the language of a recording, as openai-whisper's dict.

        audio: a path, or samples at 16 kHz. verbose: True prints each segment at once, False shows a bar.
        decode_options: language, task, beam_size, best_of, patience and the other options of openai-whisper's
        DecodingOptions; its command's temperature_increment_on_fallback; and any option of TranscriptionOptions. An
        English-only model ignores language and task, and the dict repeats the language, as in openai-whisper.
        Raises MediaError for audio that cannot be read, ParameterError for a bad option.
        """
        given: dict[str, Any] = {name: value for name, value in decode_options.items() if name not in WITHOUT_EFFECT}
        for name in WITHOUT_EFFECT & decode_options.keys():
            declared(DecodingOptions)[name].taken(dict(decode_options)[name])  # raises for a wrong value
        if (increment := given.pop("temperature_increment_on_fallback", None)) is not None:
            first = 0.0 if temperature is FALLBACK_TEMPERATURES else temperature
            temperature = rising_temperatures(first, increment)
        asked = {RENAMED.get(name, name): value for name, value in given.items()}
        own = declared(TranscriptionOptions).values()
        options = {
            "best_of": None,  # one sample, as in openai-whisper
            "temperature": temperature,
            "compression_ratio_threshold": compression_ratio_threshold,
            "logprob_threshold": logprob_threshold,
            "no_speech_threshold": no_speech_threshold,
            "condition_on_previous_text": condition_on_previous_text,
            "initial_prompt": initial_prompt,
            "carry_initial_prompt": carry_initial_prompt,
            "word_timestamps": word_timestamps,
            "prepend_punctuations": prepend_punctuations,
            "append_punctuations": append_punctuations,
            "clip_timestamps": clip_timestamps,
            "hallucination_silence_threshold": hallucination_silence_threshold,
            "refine_word_times": False,
            "mode": BATCHED if asked.get("batched") else SEQUENTIAL,
            **by_own_names(asked, own),
        }
        if not word_timestamps:
            del options["hallucination_silence_threshold"]
        if options.get("max_initial_timestamp") == 0:
            options["max_initial_timestamp"] = None  # 0 means no bound in openai-whisper
        options |= heard_as(self.transcriber.model, options)
        on_segment: Callable[[int, Segment], None] | None = _print_segment if verbose else None
        with errors_as_given(given, own, RENAMED):
            with closing(
                self.transcriber.transcribe_many([audio], progress=verbose is False, on_segment=on_segment, **options)
            ) as results:
                result = next(results)
            if isinstance(result, TranseptError):
                raise result
        tokens = [token for segment in result.segments for token in segment.tokens]
        return {
            "text": self.transcriber.model.tokenizer.decode(tokens),
            "segments": [segment.to_dict() for segment in result.segments],
            "language": told_language(self.transcriber.model, decode_options.get("language"), result.language),
        }

    decode = decode
    detect_language = detect_language


def transcribe(model: Whisper, audio: AudioInput, **options: Any) -> dict[str, Any]:
    """``model.transcribe(audio, ...)``."""
    return model.transcribe(audio, **options)


def _print_segment(_: int, segment: Segment) -> None:
    start, end = (clock(round(1000 * seconds)) for seconds in (segment.start, segment.end))
    print(f"[{start} --> {end}] {segment.text}", file=sys.stdout, flush=True)
