"""faster-whisper's interface over Transept: ``from transept.compat.faster_whisper import WhisperModel``.

`WhisperModel` and `BatchedInferencePipeline` take its arguments and return its results: a generator of segments, and an
info that is known before the first of them. An argument without a counterpart raises ParameterError.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import numpy as np

from transept.compat.transcribers import ClipTranscriber, CompatTranscriber
from transept.core.checkpoints.source import locate
from transept.errors import ParameterError
from transept.multimodal.audio import SAMPLE_RATE, load_audio, load_channels
from transept.option_names import by_own_names, errors_as_given
from transept.options import declared
from transept.registry.plugins import discover
from transept.registry.published import published_checkpoints
from transept.speech.options import BATCHED, SEQUENTIAL, TranscriptionOptions
from transept.speech.output.writers import clock
from transept.speech.recording import AudioInput
from transept.speech.segments import Word
from transept.speech.stream import SegmentStream
from transept.speech.transcriber import Transcriber
from transept.speech.vad.options import VadOptions

if TYPE_CHECKING:
    from transept.compat.option_types import FasterWhisperKeywords

Task: TypeAlias = Literal["transcribe", "translate"]

logger = logging.getLogger(__name__)

# where they differ from Transept's
DEFAULTS = {"beam_size": 5, "patience": 1.0, "mode": SEQUENTIAL, "refine_word_times": False}
BATCHED_DEFAULTS = {**DEFAULTS, "without_timestamps": True, "mode": BATCHED}
ENGINE_DEFAULTS = {"cpu_threads": 0, "download_root": None, "local_files_only": False}

__all__ = ["BatchedInferencePipeline", "Segment", "TranscriptionInfo", "WhisperModel", "Word", "available_models"]
__all__ += ["decode_audio", "download_model", "format_timestamp"]


@dataclass
class Segment:
    """A segment under faster-whisper's names, numbered from 1; see `transept.Segment`."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[Word] | None
    temperature: float | None


class FoundOptions(TranscriptionOptions):
    """The options of a transcription, with faster-whisper's name for one of them."""

    @property
    def log_prob_threshold(self) -> float | None:
        """The logprob_threshold."""
        return self.logprob_threshold


@dataclass
class TranscriptionInfo:
    """Facts about a recording before its first segment.

    all_language_probs: pairs, the most likely first; None if the language was not detected.
    """

    language: str
    language_probability: float
    duration: float
    duration_after_vad: float
    all_language_probs: list[tuple[str, float]] | None
    transcription_options: FoundOptions
    vad_options: VadOptions


def available_models() -> list[str]:
    """Return the names that WhisperModel knows."""
    return sorted(published_checkpoints(discover()))


def download_model(
    size_or_id: str, output_dir: str | None = None, local_files_only: bool = False, cache_dir: str | None = None
) -> str:
    """Return the folder of a model, downloaded if it is not on this machine.

    output_dir: a folder to copy its files to, created if needed. local_files_only, cache_dir: like local_files_only
    and download_root of WhisperModel. Raises CheckpointError, for example for an unknown name.
    """
    found = locate(size_or_id, model_dir=cache_dir, offline=local_files_only)
    return str(found if output_dir is None else shutil.copytree(found, output_dir, dirs_exist_ok=True))


def decode_audio(
    input_file: AudioInput, sampling_rate: int = SAMPLE_RATE, split_stereo: bool = False
) -> np.ndarray[Any, Any] | tuple[np.ndarray[Any, Any], ...]:
    """Return a recording's samples, [num_samples] float32 in [-1, 1], mono; with split_stereo, each of two channels.

    sampling_rate: Hz. Raises MediaError, for example if a recording with one channel should be split.
    """
    if split_stereo:
        return tuple(load_channels(input_file, sampling_rate)[:2])
    return load_audio(input_file, sampling_rate)


def format_timestamp(seconds: float, always_include_hours: bool = False, decimal_marker: str = ".") -> str:
    """Format seconds as MM:SS.mmm, after HH: if there are any hours. Raises ParameterError below 0."""
    if seconds < 0:
        raise ParameterError(f"a timestamp is at least 0 seconds, not {seconds}", param="seconds", value=seconds)
    return clock(round(seconds * 1000.0), hours=always_include_hours, point=decimal_marker)


class WhisperModel:
    """A loaded model.

    model_size_or_path: a name or a folder. compute_type: ``"int8"`` and its mixtures round weights to 8 bits; on a CPU
    ``"float16"`` computes in float32. cpu_threads: 0: one for each core. download_root: folder of models.
    local_files_only: download nothing. num_workers has no effect: one engine serves all threads.
    model_kwargs: options of EngineConfig. Raises ParameterError for an unknown compute_type.
    """

    def __init__(
        self,
        model_size_or_path: str | Path,
        device: str = "auto",
        device_index: int = 0,
        compute_type: str = "default",
        cpu_threads: int = 0,
        num_workers: int = 1,
        download_root: str | None = None,
        local_files_only: bool = False,
        **model_kwargs: Any,
    ) -> None:
        if not isinstance(device_index, int):
            raise ParameterError(
                "an engine runs on one device; give {device_index} as an integer",
                param="device_index",
                value=device_index,
            )
        options = {"cpu_threads": cpu_threads, "download_root": download_root, "local_files_only": local_files_only}
        given: dict[str, Any] = {name: value for name, value in options.items() if value != ENGINE_DEFAULTS[name]}
        given |= {"device": f"cuda:{device_index}" if device == "cuda" else device, "compute_type": compute_type}
        self.transcriber = CompatTranscriber(model_size_or_path, **given, **model_kwargs)

    @property
    def supported_languages(self) -> list[str]:
        """Codes of the languages that the model knows."""
        return self.transcriber.supported_languages

    @property
    def is_multilingual(self) -> bool:
        """True if the model knows more than one language."""
        return len(self.supported_languages) > 1

    def transcribe(
        self,
        audio: AudioInput,
        language: str | None = None,
        task: Task | None = "transcribe",
        log_progress: bool = False,
        **options: Unpack[FasterWhisperKeywords],
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """Return an iterator over the segments, and the info.

        audio: a path, an open file, or samples at 16 kHz. options: faster-whisper's, and any of TranscriptionOptions.
        An English-only model ignores language, task and multilingual, with faster-whisper's warnings. Raises
        MediaError, and ParameterError for a bad option.
        """
        given = {"language": language, "task": task, **options}
        return _transcribe(self.transcriber, audio, DEFAULTS, given, log_progress)

    def detect_language(
        self,
        audio: AudioInput,
        features: Any = None,
        vad_filter: bool = False,
        vad_parameters: VadOptions | Mapping[str, Any] | None = None,
        language_detection_segments: int = 1,
        language_detection_threshold: float = 0.5,
    ) -> tuple[str, float, list[tuple[str, float]]]:
        """Return the language of a recording, its probability, and all languages, the most likely first.

        audio: as for `transcribe`; no samples are silence. vad_filter: leave out long silence first.
        Raises ParameterError for features, which the engine computes itself.
        """
        if features is not None:
            message = "{features} are computed by the engine; give the recording as {audio}"
            raise ParameterError(message, param="features", others=["audio"])
        is_empty = isinstance(audio, np.ndarray) and not audio.size
        given = {} if vad_parameters is None or not vad_filter else {"vad_options": _vad_options(vad_parameters)}
        language, probability, probabilities = self.transcriber.detect_language(
            np.zeros(1, np.float32) if is_empty else audio,
            mode="auto" if vad_filter else "sequential",
            language_detection_segments=language_detection_segments,
            language_detection_threshold=language_detection_threshold,
            **given,
        )
        return language, probability, _ranked(probabilities)


class BatchedInferencePipeline:
    """A model whose recordings are cut into windows in pauses; the windows are decoded concurrently."""

    def __init__(self, model: WhisperModel) -> None:
        self.model = model

    def transcribe(
        self,
        audio: AudioInput,
        language: str | None = None,
        task: Task | None = "transcribe",
        log_progress: bool = False,
        *,
        batch_size: int = 8,
        **options: Unpack[FasterWhisperKeywords],
    ) -> tuple[Iterator[Segment], TranscriptionInfo]:
        """Transcribe in batched mode; see `WhisperModel.transcribe`. batch_size: windows decoded at a time.

        Each of clip_timestamps is a window, without voice activity detection. With vad_filter=False and no
        clip_timestamps, the recording must fit into one window.
        """
        given = {"language": language, "task": task, "batch_size": batch_size, **options}
        transcriber: Transcriber = self.model.transcriber
        if options.get("clip_timestamps") or options.get("vad_filter", options.get("vad")) is False:
            transcriber = ClipTranscriber.from_engine(transcriber.engine)
        return _transcribe(transcriber, audio, BATCHED_DEFAULTS, given, log_progress)


def _transcribe(
    transcriber: Transcriber,
    audio: AudioInput,
    defaults: Mapping[str, Any],
    options: Mapping[str, Any],
    log_progress: bool,
) -> tuple[Iterator[Segment], TranscriptionInfo]:
    own = declared(TranscriptionOptions).values()
    given = by_own_names(options, own)
    if given.get("batched"):
        defaults = {**defaults, "mode": BATCHED}
    given = {**defaults, **given}
    if given.get("task") == "transcribe":
        given["task"] = None  # the default, which does not contradict target_language
    if transcriber.model.is_english_only:
        given |= _for_english_only(given)
    vad_options = given.pop("vad_options", None)
    if not given.get("word_timestamps"):
        given.pop("hallucination_silence_threshold", None)
    if given.get("multilingual"):
        given["language"] = None  # each window's language is detected
    with errors_as_given(options, own):
        if vad_options is not None and (given.get("vad") or given["mode"] == BATCHED):
            given["vad_options"] = _vad_options(vad_options)
        stream = transcriber.stream(audio, progress=bool(log_progress), **given)
        found = stream.info
    info = TranscriptionInfo(
        language=found.language,
        language_probability=1.0 if found.language_probability is None else found.language_probability,
        duration=found.duration,
        duration_after_vad=found.duration_after_vad,
        all_language_probs=_ranked(found.language_probabilities) or None,
        transcription_options=FoundOptions(**vars(found.options)),
        vad_options=found.options.vad_options,
    )
    return _segments(stream), info


def _for_english_only(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that an English-only model replaces, with faster-whisper's warnings."""
    found: dict[str, Any] = {}
    if given.get("multilingual") is True:
        logger.warning(
            "The current model is English-only but the multilingual parameter is set to True; setting to False instead."
        )
        found["multilingual"] = False
    if (language := given.get("language")) not in (None, "auto", "en"):
        logger.warning(
            "The current model is English-only but the language parameter is set to '%s'; using 'en' instead.", language
        )
        found["language"] = "en"
    if given.get("task") == "translate":
        found["task"] = None  # the model has no token for it; faster-whisper does not warn
    return found


def _segments(stream: SegmentStream) -> Iterator[Segment]:
    names = [each.name for each in dataclasses.fields(Segment)]
    with stream:
        for number, segment in enumerate((each for each in stream if each.text), 1):
            values = {name: getattr(segment, name) for name in names}
            yield Segment(**{**values, "id": number})


def _vad_options(given: Any) -> Any:
    """Convert faster-whisper's VadOptions to a dict without its default values; Transept's defaults replace them."""
    if isinstance(given, Mapping | VadOptions):
        return given
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        changed = {each.name: getattr(given, each.name) for each in dataclasses.fields(given)}
        defaults = {each.name: each.default for each in dataclasses.fields(given)}
        return {name: value for name, value in changed.items() if value != defaults[name]}
    message = f"{{vad_options}} must be a dict or VadOptions, not {type(given).__name__}"
    raise ParameterError(message, param="vad_options", value=given)


def _ranked(probabilities: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(probabilities.items(), key=lambda each: -each[1])
