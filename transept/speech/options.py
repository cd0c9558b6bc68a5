"""TranscriptionOptions: all that may be asked of a transcription, under openai-whisper's and faster-whisper's names.

Made by the Transcriber from a user's keywords, checked at once, read by both modes, echoed in the Transcript. What only
a loaded model can judge (languages, tasks) is checked where the model is. No torch here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from transept.core.request.limits import LONE_SURROGATE, MAX_INTEGER, MAX_PATIENCE, MAX_SEED, MAX_TEMPERATURE
from transept.errors import ParameterError, shown
from transept.multimodal.audio_tracks import checked_track
from transept.multimodal.channels import CHANNELS, EACH, MIX
from transept.option_names import finite, made_of, refuses_unknown
from transept.speech.option_values import (
    LEAST_INCREMENT,
    check_regex,
    encoder_context,
    flat_clips,
    language_or_none,
    numbers,
    rising_temperatures,
    token_ids,
)
from transept.speech.vad.spans import VadOptions

DEFAULT_MODEL = "base"
TASKS = ("transcribe", "translate")
AUTO, SEQUENTIAL, BATCHED = MODES = ("auto", "sequential", "batched")
TRANSLATES_TO = "en"  # what the task "translate" writes where no target_language is given, as Whisper's
FALLBACK_TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
MOST_LENGTH_PENALTY = 100.0  # a power; beyond it numbers overflow
SHORTEST_CHUNK = 2.0  # seconds
MOST_TEMPERATURES = 101  # attempts at a window: from 0 to 1 in steps of 0.01
DEFAULT_BEST_OF = 5  # as in faster-whisper, and in openai-whisper's command
PATIENT_BEAMS = 5  # of a search with patience and no width, as of openai-whisper's and faster-whisper's commands
DEFAULT_VAD_OPTIONS = VadOptions()
PREPEND_PUNCTUATIONS = "\"'“¿([{-"
APPEND_PUNCTUATIONS = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001  full-width marks are meant

_COUNTS = ("beam_size", "best_of", "max_new_tokens", "language_detection_segments")
_FLAGS = (
    "condition_on_previous_text",
    "carry_initial_prompt",
    "suppress_blank",
    "suppress_numerals",
    "without_timestamps",
    "word_timestamps",
    "token_logprobs",
    "multilingual",
    "diarize",
    "batched",
    "vad",
)
_ABOVE_ZERO = ("patience", "repetition_penalty")
_FROM_ZERO = (
    "no_repeat_ngram_size",
    "compression_ratio_threshold",
    "no_speech_threshold",
    "prompt_reset_on_temperature",
    "max_initial_timestamp",
    "hallucination_silence_threshold",
    "language_detection_threshold",
    "length_penalty",
    "seed",
)


@refuses_unknown("transcription has no option")
@dataclass(frozen=True)
class TranscriptionOptions:
    """How a recording is transcribed.

    What is said, and how it is written:

    language: code or English name, in any case, such as ``"de"``, ``"German"`` or ``"de-AT"``; None, or ``"auto"``:
        detected.
        language_detection_segments: windows to look at until one is surer than language_detection_threshold; without
        such a one the language of most windows is taken. multilingual: detect it anew in every window, and cut a
        window where it changes.
    target_language: code or name, likewise, of the language that is to be written, where the model translates to it;
        None: the one that is spoken. Whisper translates to English.
    task: ``"transcribe"``: in the language that is spoken; or ``"translate"``: to target_language, and to English where
        that is None. None: translate to a target_language, and transcribe without one.
    initial_prompt: text (or token ids) that the recording is taken to follow: names, spelling, style.
        carry_initial_prompt: before every window instead of the first alone.
    hotwords: words to look out for, as a prompt before every window. prefix: how the first window's text begins.
    condition_on_previous_text: what was said before is the prompt of the next window, except after a window that took
        a temperature over prompt_reset_on_temperature.

    How it is decoded:

    temperature: 0 takes the most likely token, more draws; of several, the next one is tried when a window's result is
        too repetitive (compression ratio above compression_ratio_threshold) or too unlikely (mean log probability
        below logprob_threshold). At most 101. None as threshold: never. temperature_increment_on_fallback: the
        temperatures that follow the first, up to 1, in steps of so much.
    beam_size, patience, length_penalty: a beam search at temperature 0, instead of the most likely token. patience
        without beam_size is of 5 beams. length_penalty: None ranks by the mean log probability, a number by Google's
        formula (Wu et al. 2016, equation 14).
    best_of: draws at other temperatures, the most likely of which is taken; None: one. The default is as many as the
        engine's max_num_seqs allows, 5 at most. seed: of the draws.
    repetition_penalty, no_repeat_ngram_size: see SamplingParams.
    no_speech_threshold: a window is skipped when silence is likelier than this and its text is not likelier than
        logprob_threshold.
    suppress_blank: no window begins with a blank or its end, in families with a token for silence.
    suppress_tokens: ids that never come, also as text ``"-1,50"``; -1 stands for the family's tokens of what is not
        spoken; None or ``()``: all may come. suppress_numerals: nor do tokens with digits, % or signs of currencies, so
        that numbers are written as words. suppress_regex: nor do tokens whose whole text, with the blank before it,
        matches; as in whisper.cpp. max_new_tokens: of one window. token_logprobs: keep the log probability of every
        token.

    Times:

    without_timestamps: every window is one segment. max_initial_timestamp: seconds into a window at which its first
        segment begins at the latest; None: anywhere.
    word_timestamps: times and probabilities of words. prepend_punctuations, append_punctuations: marks that belong to
        the word after or before them. hallucination_silence_threshold: silence longer than this (seconds) around
        words that look made up is skipped; sets word_timestamps.
    clip_timestamps: start, end, start, end, ... in seconds, as text ``"0,10"``, or as dicts
        ``[{"start": 0, "end": 10}]``: only these stretches are transcribed; the last end may be left out.

    Speakers:

    audio_track: the audio track of a video or another container to transcribe: its number, from 0, or its language
        code, such as ``"eng"`` or ``"en"``. None: the one that FFmpeg deems best, or the loudest if that is silent.
    channel: ``"mix"``, the mean of a recording's channels; ``"left"`` or ``"right"``, the first or the second; or
        ``"each"``: all of them by themselves, in one transcript in which each segment's speaker is its channel.
    diarize: a plugin's diarizer tells who speaks when, which becomes each segment's speaker; segments are cut where it
        changes, between words, which are timed for that.

    The way through the recording:

    mode: ``"auto"`` leaves out silence of two seconds or more, and decodes passages of one to two minutes side by side,
        window after window as in sequential mode. It decodes speech that the text leaves out a second time.
        ``"sequential"`` is openai-whisper's algorithm. ``"batched"`` leaves out all silence, cuts the rest into windows
        in its pauses and decodes those side by side: the fastest. There a window's text is the next window's prompt
        only within chains of up to four windows, segments are sentences, and hallucination_silence_threshold has no
        effect. batched: True means ``mode="batched"``.
    chunk_length: seconds of a window at most; None: as many as the model hears, 30 for Whisper.
    encoder_context: seconds of silence after a window's sound that the encoder reads, in place of the whole window, for
        models whose encoder reads windows of one length; ``"auto"``: as many as ``transept calibrate`` found for the
        model. A window whose text is in doubt is encoded and decoded again as a whole. None: always the whole window.
    vad: in sequential mode, leave silence out first; the other modes always do. vad_options: VadOptions that define
        silence, or a dict of them.

    Raises ParameterError for an unknown option, a value out of range, or options that contradict each other.
    """

    language: str | None = None
    target_language: str | None = None
    task: str | None = None
    temperature: float | tuple[float, ...] = FALLBACK_TEMPERATURES
    temperature_increment_on_fallback: float | None = None
    beam_size: int | None = None
    best_of: int | None = DEFAULT_BEST_OF
    patience: float | None = None
    length_penalty: float | None = None
    repetition_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    compression_ratio_threshold: float | None = 2.4
    logprob_threshold: float | None = -1.0
    no_speech_threshold: float | None = 0.6
    condition_on_previous_text: bool = True
    prompt_reset_on_temperature: float = 0.5
    initial_prompt: str | tuple[int, ...] | None = None
    carry_initial_prompt: bool = False
    prefix: str | None = None
    hotwords: str | None = None
    suppress_blank: bool = True
    suppress_tokens: tuple[int, ...] = (-1,)
    suppress_numerals: bool = False
    suppress_regex: str | None = None
    without_timestamps: bool = False
    max_initial_timestamp: float | None = 1.0
    max_new_tokens: int | None = None
    token_logprobs: bool = False
    word_timestamps: bool = False
    prepend_punctuations: str = PREPEND_PUNCTUATIONS
    append_punctuations: str = APPEND_PUNCTUATIONS
    clip_timestamps: tuple[float, ...] = ()
    hallucination_silence_threshold: float | None = None
    multilingual: bool = False
    language_detection_segments: int = 1
    language_detection_threshold: float = 0.5
    channel: str = MIX
    audio_track: int | str | None = None
    diarize: bool = False
    chunk_length: float | None = None
    encoder_context: str | float | None = None
    mode: str = AUTO
    batched: bool = False
    vad: bool = False
    vad_options: VadOptions = DEFAULT_VAD_OPTIONS
    seed: int = 0

    @classmethod
    def names(cls) -> list[str]:
        """The names of all options."""
        return [each.name for each in dataclasses.fields(cls)]

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The temperatures in the order in which they are tried."""
        given = self.temperature if isinstance(self.temperature, tuple) else (self.temperature,)
        increment = self.temperature_increment_on_fallback
        return given if increment is None else rising_temperatures(given[0], increment)

    @property
    def num_beams(self) -> int:
        """The width of the beam search at temperature 0; 1: none."""
        return self.beam_size or (1 if self.patience is None else PATIENT_BEAMS)

    def clips(self, length: int, per_second: int) -> list[tuple[int, int]]:
        """The stretches to transcribe as (begin, end), of a recording with so many frames, or samples, in all."""
        points = [min(round(time * per_second), length) for time in self.clip_timestamps] or [0]
        if len(points) % 2:
            points.append(length)
        return list(zip(points[::2], points[1::2], strict=True))

    def refuse_speakers(self) -> None:
        """Raise ParameterError where speakers are to be told apart, for calls that make no transcript."""
        if self.channel == EACH or self.diarize:
            raise ParameterError(
                'channel="each" and diarize are for transcripts; channel="left" or "right" is one here'
            )

    def __post_init__(self) -> None:
        freeze = object.__setattr__
        if self.hallucination_silence_threshold is not None and self.word_timestamps is False:
            freeze(self, "word_timestamps", True)
        freeze(self, "language", language_or_none(self.language))
        freeze(self, "target_language", language_or_none(self.target_language))
        temperature: Any = self.temperature  # one of NumPy's numbers, too
        if not isinstance(temperature, bool):
            is_one = isinstance(temperature, Real)
            freeze(self, "temperature", finite(temperature) if is_one else numbers("temperature", temperature))
        freeze(self, "clip_timestamps", numbers("clip_timestamps", flat_clips(self.clip_timestamps)))
        freeze(self, "audio_track", checked_track(self.audio_track))
        freeze(self, "encoder_context", encoder_context(self.encoder_context))
        freeze(self, "suppress_tokens", token_ids("suppress_tokens", self.suppress_tokens, lowest=-1))
        if isinstance(self.vad_options, Mapping):
            freeze(self, "vad_options", made_of(VadOptions, "VadOptions has no", self.vad_options))
        if self.initial_prompt is not None and not isinstance(self.initial_prompt, str):
            freeze(self, "initial_prompt", token_ids("initial_prompt", self.initial_prompt, lowest=0))
        if self.task not in (None, *TASKS):
            raise ParameterError(f'task must be "transcribe" or "translate", not {self.task!r}')
        if self.mode not in MODES:
            raise ParameterError(f"mode must be one of {', '.join(MODES)}, not {shown(self.mode)}")
        if self.channel not in CHANNELS:
            raise ParameterError(f"channel must be one of {', '.join(CHANNELS)}, not {shown(self.channel)}")
        self._check_types()
        self._check_ranges()
        self._check_contradictions()
        if self.batched:
            freeze(self, "mode", BATCHED)
        freeze(self, "batched", self.mode == BATCHED)

    def _check_types(self) -> None:
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} must be True or False, not {getattr(self, name)!r}")
        texts = ("language", "target_language", "prefix", "hotwords", "suppress_regex")
        for name in (*texts, "prepend_punctuations", "append_punctuations"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name.endswith("punctuations")):
                raise ParameterError(f"{name} must be text, not {value!r}")
        check_regex(self.suppress_regex)
        for name in ("initial_prompt", "prefix", "hotwords"):
            value = getattr(self, name)
            if isinstance(value, str) and LONE_SURROGATE.search(value):
                raise ParameterError(f"{name} holds half a surrogate pair, which is no text: {value!r}")
        if not isinstance(self.vad_options, VadOptions):
            raise ParameterError(f"vad_options must be VadOptions or a dict of them, not {self.vad_options!r}")

    def _check_ranges(self) -> None:
        optional = {each.name for each in dataclasses.fields(self) if each.default is None}
        optional |= {
            "best_of",
            "compression_ratio_threshold",
            "logprob_threshold",
            "no_speech_threshold",
            "max_initial_timestamp",
        }
        lowest = dict.fromkeys(_COUNTS, 1.0) | dict.fromkeys(_FROM_ZERO, 0.0)
        lowest |= {"temperature_increment_on_fallback": LEAST_INCREMENT, "chunk_length": SHORTEST_CHUNK}
        lowest |= {"logprob_threshold": -math.inf, "patience": 0.0, "repetition_penalty": 0.0}
        for name, low in lowest.items():
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            whole = name in _COUNTS or name in ("no_repeat_ngram_size", "seed")
            kind = Integral if whole else Real
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= finite(value) < math.inf:
                bound = "above 0" if name in _ABOVE_ZERO else f"of at least {low:g}"
                raise ParameterError(f"{name} must be {'an integer' if whole else 'a number'} {bound}, not {value!r}")
        highest: dict[str, float] = dict.fromkeys((*_COUNTS, "no_repeat_ngram_size"), MAX_INTEGER)
        highest |= {"length_penalty": MOST_LENGTH_PENALTY, "patience": MAX_PATIENCE, "seed": MAX_SEED}
        for name, high in highest.items():
            if (getattr(self, name) or 0) > high:
                most = high if isinstance(high, int) else f"{high:g}"
                raise ParameterError(f"{name} must be at most {most}, not {getattr(self, name)!r}")
        for name in _ABOVE_ZERO:
            if getattr(self, name) == 0:
                raise ParameterError(f"{name} must be above 0")
        self._check_temperatures()
        times = self.clip_timestamps
        if list(times) != sorted(times) or not all(0.0 <= time < math.inf for time in times):
            raise ParameterError(f"clip_timestamps must be rising times in seconds from 0 up, not {list(times)}")

    def _check_temperatures(self) -> None:
        given = self.temperature if isinstance(self.temperature, tuple) else (self.temperature,)
        in_range = all(0.0 <= finite(each) <= MAX_TEMPERATURE for each in given)
        if not given or isinstance(self.temperature, bool) or not in_range:
            bounds = f"of at least 0 and at most {MAX_TEMPERATURE:g}, one or several"
            raise ParameterError(f"temperature must be numbers {bounds}, not {self.temperature!r}")
        if len(given) > MOST_TEMPERATURES:
            raise ParameterError(
                f"temperature holds {len(given)} numbers; a window is decoded at one after the other, and "
                f"{MOST_TEMPERATURES} are the most: take larger steps"
            )
        increment = self.temperature_increment_on_fallback
        if increment is not None and len(given) > 1 and given != FALLBACK_TEMPERATURES:
            raise ParameterError(
                f"temperature={given} says which follow the first, and so does temperature_increment_on_fallback="
                f"{increment}; give one temperature, or leave the increment out"
            )

    def _check_contradictions(self) -> None:
        if self.batched and self.mode == SEQUENTIAL:
            raise ParameterError('batched=True is mode="batched"; leave it out for mode="sequential"')
        if self.vad_options != DEFAULT_VAD_OPTIONS and self.mode == SEQUENTIAL and not self.vad:
            raise ParameterError("vad_options says what silence is; set vad=True to leave it out in sequential mode")
        if self.diarize and self.channel == EACH:
            raise ParameterError('channel="each" tells speakers apart by their channels; leave diarize=True out')
        if self.multilingual and self.language is not None:
            raise ParameterError(
                f"multilingual detects the language of every window, so language={self.language!r} has no meaning"
            )
