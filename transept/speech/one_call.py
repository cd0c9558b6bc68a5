"""Functions that load a model for one call: `transept.transcribe`, and its neighbours.

`transept.speech.transcriber` keeps a model loaded for many calls.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from transept.core.config import EngineConfig
from transept.errors import TranseptError
from transept.option_names import shows_options
from transept.options import split_options
from transept.speech.options import DEFAULT_MODEL, TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.stream import SegmentStream
from transept.speech.transcriber import Transcriber
from transept.speech.transcript import DetectedLanguage, Transcript

if TYPE_CHECKING:
    from transept.speech.option_types import TranscriptionAndEngineKeywords


@shows_options(TranscriptionOptions, EngineConfig)
def transcribe(
    audio: AudioInput,
    model: str | Path = DEFAULT_MODEL,
    *,
    progress: bool | None = False,
    **options: Unpack[TranscriptionAndEngineKeywords],
) -> Transcript:
    """Transcribe one recording with a model that is loaded for it; Transcriber keeps one loaded.

    options: see TranscriptionOptions and Engine. See also Transcriber.transcribe.
    """
    transcription, engine = split_options("transcription has no option", options, TranscriptionOptions, EngineConfig)
    return Transcriber(model, **engine).transcribe(audio, progress=progress, **transcription)


@shows_options(TranscriptionOptions, EngineConfig)
def transcribe_many(
    audios: Iterable[AudioInput],
    model: str | Path = DEFAULT_MODEL,
    *,
    progress: bool | None = False,
    **options: Unpack[TranscriptionAndEngineKeywords],
) -> Generator[Transcript | TranseptError, None, None]:
    """Transcribe recordings together, in their order, with a model that is loaded for them.

    A recording that cannot be read yields its error. options: see TranscriptionOptions and Engine. See also
    Transcriber.transcribe_many.
    """
    transcription, engine = split_options("transcription has no option", options, TranscriptionOptions, EngineConfig)
    return Transcriber(model, **engine).transcribe_many(audios, progress=progress, **transcription)


@shows_options(TranscriptionOptions, EngineConfig)
def stream_transcribe(
    audio: AudioInput,
    model: str | Path = DEFAULT_MODEL,
    *,
    progress: bool | None = False,
    **options: Unpack[TranscriptionAndEngineKeywords],
) -> SegmentStream:
    """Load a model, and return an iterator over the segments of one recording, each once it is certain.

    options: see TranscriptionOptions and Engine. See also Transcriber.stream.
    """
    transcription, engine = split_options("transcription has no option", options, TranscriptionOptions, EngineConfig)
    return Transcriber(model, **engine).stream(audio, progress=progress, **transcription)


@shows_options(TranscriptionOptions, EngineConfig, without=("language",))
def detect_language(
    audio: AudioInput, model: str | Path = DEFAULT_MODEL, **options: Unpack[TranscriptionAndEngineKeywords]
) -> DetectedLanguage:
    """Find the language of a recording with a model that is loaded for it.

    options: see Transcriber.detect_language and Engine.
    """
    transcription, engine = split_options("transcription has no option", options, TranscriptionOptions, EngineConfig)
    return Transcriber(model, **engine).detect_language(audio, **transcription)
