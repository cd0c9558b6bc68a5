"""Transcriber: audio of any length to text, with a model that stays loaded.

Each recording is a job, `transept.speech.recording`. Here options are checked, the jobs are run over one engine, whose
batch the windows of all recordings and of all calls share, and results are handed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from transept.core.config import EngineConfig
from transept.core.engine import ClosesEngine, Engine
from transept.core.jobs.job import Job, Offload
from transept.errors import ParameterError, TranseptError
from transept.multimodal.waveforms import is_array
from transept.option_names import refuse_misplaced, shows_options
from transept.options import declared, split_options
from transept.speech import conversation, forced_alignment
from transept.speech.algorithms.language import Language, recording_language
from transept.speech.algorithms.passages import without_silence
from transept.speech.algorithms.source import Source
from transept.speech.events import Found, Opened
from transept.speech.lasting import lasting_transcript, with_lasting_words
from transept.speech.options import AUTO, DEFAULT_MODEL, NOT_OF_ALIGNMENT, TranscriptionOptions
from transept.speech.progress import AudioProgress
from transept.speech.recording import AudioInput
from transept.speech.segments import Segment
from transept.speech.speech_model import ONLY_LANGUAGE, SpeechModel
from transept.speech.stream import SegmentStream
from transept.speech.transcript import DetectedLanguage, Transcript, TranscriptionInfo
from transept.speech.vad.spans import SAMPLE_RATE as VAD_RATE

if TYPE_CHECKING:
    from torch import Tensor

    from transept.core.option_types import EngineKeywords
    from transept.speech.option_types import AlignmentKeywords, TranscriptionAndEngineKeywords, TranscriptionKeywords

MAX_RECORDINGS = 16  # in memory at a time: an hour of audio takes about 350 MB with its features
SEARCHED_SECONDS = 600  # of a recording, for the speech whose language is detected


class Transcriber(ClosesEngine):
    """Keeps a speech model loaded.

    model, engine_options: as for Engine. Raises UnsupportedModelError for a model that is not a speech model.

    Audio is a path, the bytes of a file, an open binary file, an array or tensor of floats at 16 kHz, or
    ``(waveform, sample rate)``, of any length that Limits allow
    (``Transcriber(model, limits={"max_audio_seconds": 3600})``); see `load_audio`.

    The options of every method are those of TranscriptionOptions, by keyword; a bad one is a ParameterError at once,
    before any work. Every method may be called from several threads, and several transcriptions may be under way in
    one: they share the engine's batch, and each gets what it would get alone. Closing what `transcribe_many`,
    `transcribe_as_completed` and `stream` return, or an exception such as KeyboardInterrupt, leaves nothing behind in
    the engine.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path = DEFAULT_MODEL, **engine_options: Unpack[EngineKeywords]) -> None:
        where = "the methods, as in transcriber.transcribe(audio, NAME=...)"
        refuse_misplaced(engine_options, declared(EngineConfig), declared(TranscriptionOptions), where)
        self._take(Engine(model, **engine_options))

    @classmethod
    def from_engine(cls, engine: Engine) -> Transcriber:
        """A Transcriber over an engine that is loaded. Raises UnsupportedModelError as the constructor."""
        transcriber = cls.__new__(cls)
        transcriber._take(engine)
        return transcriber

    def _take(self, engine: Engine) -> None:
        self.engine = engine
        self.model = SpeechModel(engine)

    @shows_options(TranscriptionOptions)
    def transcribe(
        self, audio: AudioInput, *, progress: bool | None = False, **options: Unpack[TranscriptionKeywords]
    ) -> Transcript:
        """Transcribe one recording, or translate it (``target_language="en"``).

        progress: show a bar in minutes of audio on stderr; None: where that is a terminal.
        Raises MediaError for audio that cannot be read.
        """
        _refuse_several(audio)
        with closing(self.transcribe_many([audio], progress=progress, **options)) as results:
            result = next(results)
        if isinstance(result, TranseptError):
            raise result
        return result

    @shows_options(TranscriptionOptions)
    def transcribe_many(
        self,
        audios: Iterable[AudioInput],
        *,
        progress: bool | None = False,
        on_info: Callable[[int, TranscriptionInfo], None] | None = None,
        on_segment: Callable[[int, Segment], None] | None = None,
        **options: Unpack[TranscriptionKeywords],
    ) -> Generator[Transcript | TranseptError, None, None]:
        """Transcribe recordings together, in their order; one that cannot be read gives its error in its place.

        The arguments are those of `transcribe_as_completed`. Raises ParameterError for a lone recording.
        """
        return _in_order(
            self.transcribe_as_completed(audios, progress=progress, on_info=on_info, on_segment=on_segment, **options)
        )

    @shows_options(TranscriptionOptions)
    def transcribe_as_completed(
        self,
        audios: Iterable[AudioInput],
        *,
        progress: bool | None = False,
        on_info: Callable[[int, TranscriptionInfo], None] | None = None,
        on_segment: Callable[[int, Segment], None] | None = None,
        **options: Unpack[TranscriptionKeywords],
    ) -> Generator[tuple[int, Transcript | TranseptError], None, None]:
        """Transcribe recordings together, and yield each with its number, from 0, as soon as it is done.

        audios: read as their turn comes. progress: see `transcribe`. on_info: called with the number of a recording
        and its TranscriptionInfo, once. on_segment: called with the number and each of its segments as soon as that is
        certain, in order of time.
        One that cannot be read, or that fails, gives its error. Raises ParameterError for a lone recording.
        """
        if _is_one_recording(audios):
            message = "this takes a list of recordings; for a single one call transcribe()"
            raise ParameterError(message, param="audios", value=audios)
        if isinstance(audios, Mapping | set | frozenset):
            kind = "dict, whose keys or values are meant" if isinstance(audios, Mapping) else "set, which has no order"
            message = f"this takes a list of recordings, not a {kind}: results come in the list's order"
            raise ParameterError(message, param="audios", value=audios)
        if not isinstance(audios, Iterable):
            raise ParameterError(
                f"this takes a list of recordings, not {type(audios).__name__}", param="audios", value=audios
            )
        return self._results(audios, self._checked(options), progress, on_info, on_segment)

    @shows_options(TranscriptionOptions)
    def stream(
        self, audio: AudioInput, *, progress: bool | None = False, **options: Unpack[TranscriptionKeywords]
    ) -> SegmentStream:
        """The segments of one recording, each as soon as it is certain; the stream's `info` is known before them.

        Raises MediaError as it is read.
        """
        _refuse_several(audio)
        return SegmentStream(self._events([audio], self._checked(options), progress))

    @shows_options(TranscriptionOptions, without=NOT_OF_ALIGNMENT)
    def align(
        self, audio: AudioInput, text: str, *, progress: bool | None = False, **options: Unpack[AlignmentKeywords]
    ) -> Transcript:
        """Find when each word of a text that is known was said: forced alignment.

        A segment of the result is a line of the text, or of a text of one line a sentence. The model hears the
        recording first, as the options say, to find which part of the text belongs where; so it may be of any length,
        and text that is not said takes the time of its neighbours. progress: see `transcribe`.
        Raises MediaError for audio that cannot be read or in which nothing is heard, ParameterError for no text.
        """
        limits = self.engine.config.limits
        forced_alignment.check_text(text, limits)
        if not self.model.alignment_heads:
            message = "this model tells no times of words, so it cannot align a text; Whisper does"
            raise ParameterError(message, param="model")
        for name in ("task", "target_language"):
            if name in options:
                message = f"align has no {{{name}}}: the text is in the language that is spoken"
                raise ParameterError(message, param=name)
        checked = self._checked({**options, "word_timestamps": True})
        checked.refuse_speakers()
        job = forced_alignment.align(self.model, audio, text, limits, checked)
        with closing(self._run([job], progress)) as events:
            *_, (_, result) = events
        if isinstance(result, TranseptError):
            raise result
        return lasting_transcript(result)

    @property
    def supported_languages(self) -> list[str]:
        """The codes of the languages that the model knows; ``["en"]`` for a model of one language."""
        return list(self.model.languages) or [ONLY_LANGUAGE]

    @property
    def supported_target_languages(self) -> list[str]:
        """The codes that target_language may have, beside that of the language that is spoken; often none."""
        return list(self.model.target_languages)

    def detect_language(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> DetectedLanguage:
        """The language of a recording: its code, its probability, and the probabilities of all languages by code.

        Long silence is left out first, as in auto mode, unless ``mode="sequential"``.
        options: language_detection_segments and language_detection_threshold. A recording shorter than the model's
        window is heard with silence after it, as openai-whisper's ``detect_language`` hears it. `transcribe` looks at
        the window that it will decode, whose padding is not silence, so its probability is a little different.
        Raises MediaError for audio that cannot be read, ParameterError for a model that knows one language only.
        """
        checked = self._options({**options, "language": None})
        checked.refuse_speakers()
        if not self.model.detects:
            advice = 'load a multilingual model, such as "base"'
            message = f"{self.model.why_it_detects_none}, so there is nothing to detect: {advice}"
            raise ParameterError(message, param="model")
        self.model.check(checked)

        def features() -> Tensor:
            rate = self.model.spec.sample_rate
            waveform = self.engine.config.limits.load_audio(audio, rate, checked.channel, checked.audio_track)
            window = rate * self.model.window_frames // self.model.fps  # samples
            if checked.mode == AUTO and rate == VAD_RATE:
                waveform = without_silence(self.model, waveform[: SEARCHED_SECONDS * rate], checked)
            heard = waveform[: checked.language_detection_segments * window]
            return self.model.features(np.pad(heard, (0, -len(heard) % window)))

        def job() -> Generator[Any, Any, Language]:
            return (yield from recording_language(Source(self.model, checked, (yield Offload(features)))))

        ((_, language),) = self.engine.runner.run([job()], max_jobs=1)
        if isinstance(language, TranseptError):
            raise language
        return DetectedLanguage(language.code, language.probability or 0.0, language.probabilities)

    @shows_options(TranscriptionOptions)
    def job(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> Job:
        """A job for `engine.runner` (docs/jobs.md), whose result is a Transcript.

        Its events are an Opened, a TranscriptionInfo, then Founds.
        Raises ParameterError at once for a bad option.
        """
        return self._recording(audio, self._checked(options))

    def _recording(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        """The job of one recording. `transept.compat` has another one."""
        return with_lasting_words(conversation.transcribe(self.model, audio, self.engine.config.limits, options))

    def _checked(self, options: Mapping[str, Any]) -> TranscriptionOptions:
        checked = self._options(options)
        self.model.check(checked)
        return checked

    def _options(self, options: Mapping[str, Any]) -> TranscriptionOptions:
        """The options, whatever the model has of what they ask for."""
        where = "Transcriber(model, NAME=...), where the model is loaded"
        refuse_misplaced(options, declared(TranscriptionOptions), declared(EngineConfig), where)
        return self.model.options(options)

    def _results(
        self,
        audios: Iterable[AudioInput],
        options: TranscriptionOptions,
        progress: bool | None,
        on_info: Callable[[int, TranscriptionInfo], None] | None,
        on_segment: Callable[[int, Segment], None] | None,
    ) -> Generator[tuple[int, Transcript | TranseptError], None, None]:
        with closing(self._events(audios, options, progress)) as events:
            for index, event in events:
                if isinstance(event, TranscriptionInfo) and on_info is not None:
                    on_info(index, event)
                if isinstance(event, Found) and on_segment is not None:
                    for segment in event.segments:
                        on_segment(index, segment)
                if isinstance(event, Transcript | TranseptError):
                    yield index, event

    def _events(
        self, audios: Iterable[AudioInput], options: TranscriptionOptions, progress: bool | None
    ) -> Generator[tuple[int, Any], None, None]:
        """All that comes up, with the index of the recording; the bar follows it."""
        return self._run((self._recording(audio, options) for audio in audios), progress)

    def _run(self, jobs: Iterable[Job], progress: bool | None) -> Generator[tuple[int, Any], None, None]:
        runner, max_jobs = self.engine.runner, min(MAX_RECORDINGS, self.engine.config.max_num_seqs)
        with (
            AudioProgress(progress) as bar,
            closing(runner.run(jobs, max_jobs, self.engine.config.max_num_seqs)) as events,
        ):
            for index, event in events:
                if isinstance(event, Opened):
                    bar.opened(event.duration)
                elif isinstance(event, Found):
                    bar.reached(index, event.progress_seconds)
                elif isinstance(event, Transcript):
                    bar.reached(index, event.duration)
                yield index, event


def _in_order(
    results: Generator[tuple[int, Transcript | TranseptError], None, None],
) -> Generator[Transcript | TranseptError, None, None]:
    """Results in the order of their recordings; those that are done before their turn wait."""
    early: dict[int, Transcript | TranseptError] = {}
    turn = 0
    with closing(results):
        for index, result in results:
            early[index] = result
            while turn in early:
                yield early.pop(turn)
                turn += 1


def _refuse_several(audio: Any) -> None:
    """Raise ParameterError for a list of files where one recording is wanted."""
    if isinstance(audio, list | tuple) and isinstance(next(iter(audio), None), str | bytes | os.PathLike):
        message = "this takes one recording; for a list of them call transcribe_many"
        raise ParameterError(message, param="audio", value=audio)


def _is_one_recording(audios: Any) -> bool:
    """Whether it is what `transcribe` takes, where a list of that is wanted."""
    if isinstance(audios, tuple):  # (waveform, sample rate), or a tuple of recordings
        return len(audios) == 2 and isinstance(audios[1], Real)
    if is_array(audios):  # of samples; of paths it is a list
        return getattr(getattr(audios, "dtype", None), "kind", "f") in "fiu"
    return isinstance(audios, str | bytes | bytearray | memoryview | os.PathLike) or hasattr(audios, "read")


@shows_options(TranscriptionOptions, EngineConfig)
def transcribe(
    audio: AudioInput,
    model: str | Path = DEFAULT_MODEL,
    *,
    progress: bool | None = False,
    **options: Unpack[TranscriptionAndEngineKeywords],
) -> Transcript:
    """Transcribe one recording with a model that is loaded for it; Transcriber keeps one loaded.

    options: those of TranscriptionOptions and of Engine. See Transcriber.transcribe.
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

    A recording that cannot be read gives its error in its place. options: those of TranscriptionOptions and of Engine.
    See Transcriber.transcribe_many.
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
    """The segments of one recording, each as soon as it is certain, with a model that is loaded for it.

    options: those of TranscriptionOptions and of Engine. See Transcriber.stream.
    """
    transcription, engine = split_options("transcription has no option", options, TranscriptionOptions, EngineConfig)
    return Transcriber(model, **engine).stream(audio, progress=progress, **transcription)


@shows_options(TranscriptionOptions, EngineConfig, without=("language",))
def detect_language(
    audio: AudioInput, model: str | Path = DEFAULT_MODEL, **options: Unpack[TranscriptionAndEngineKeywords]
) -> DetectedLanguage:
    """Find the language of a recording with a model that is loaded for it.

    options: those of Transcriber.detect_language and of Engine.
    """
    transcription, engine = split_options("transcription has no option", options, TranscriptionOptions, EngineConfig)
    return Transcriber(model, **engine).detect_language(audio, **transcription)
