"""Transcriber: audio of any length to text, with a model that stays loaded.

Each recording is a job (`transept.speech.recording`). The Transcriber checks the options, and runs the jobs on one
engine, whose batch the windows of all recordings and all calls share.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from transept.core.config import EngineConfig
from transept.core.engine import ClosesEngine, Engine
from transept.core.jobs.job import Gather, Job, Offload
from transept.errors import ParameterError, TranseptError
from transept.multimodal.waveforms import is_array
from transept.option_names import refuse_misplaced, shows_options
from transept.options import declared, split_options
from transept.speech import conversation, forced_alignment
from transept.speech.algorithms.language import Language, recording_language
from transept.speech.algorithms.passages import without_silence
from transept.speech.algorithms.source import Source
from transept.speech.edits import Edits
from transept.speech.levelling import load_recording
from transept.speech.live.events import LiveEvent
from transept.speech.live.feed import Chunk, Feed
from transept.speech.live.stream import LiveStream, transcribed
from transept.speech.live.transcription import LiveTranscription
from transept.speech.live_options import NOT_OF_LIVE, LiveOptions
from transept.speech.option_checks import check_options
from transept.speech.options import AUTO, DEFAULT_MODEL, NOT_OF_ALIGNMENT, TranscriptionOptions
from transept.speech.progress import AudioProgress
from transept.speech.recording import AudioInput
from transept.speech.results import in_order, lasting_event, lasting_transcript, reported
from transept.speech.same_speakers import SameSpeakers
from transept.speech.segments import Found, Opened, Segment
from transept.speech.speech_model import ONLY_LANGUAGE, SpeechModel
from transept.speech.stream import SegmentStream
from transept.speech.transcript import DetectedLanguage, Transcript, TranscriptionInfo
from transept.speech.vad.spans import SAMPLE_RATE as VAD_RATE
from transept.speech.voices.store import Voices

if TYPE_CHECKING:
    from torch import Tensor

    from transept.core.option_types import EngineKeywords
    from transept.speech.option_types import AlignmentKeywords, LiveKeywords, TranscriptionKeywords

MAX_RECORDINGS = 16  # in memory at a time: an hour of audio takes about 350 MB with its features
LIVE_RATE = VAD_RATE  # Hz
SEARCHED_SECONDS = 600  # of a recording, for speech whose language is detected


class Transcriber(ClosesEngine):
    """Keeps a speech model loaded.

    model, engine_options: as for Engine. Raises UnsupportedModelError for a model that is not a speech model.

    Audio is a path, the bytes of a file, an open binary file, an array or tensor of floats at 16 kHz, or
    ``(waveform, sample rate)``, of any length that Limits allow
    (``Transcriber(model, limits={"max_audio_seconds": 3600})``); see `load_audio`.

    Every method takes the options of TranscriptionOptions, by keyword. A bad one raises ParameterError before
    any work. Every method may be called from several threads, and a thread may have several transcriptions in progress:
    they share the engine's batch, which does not change their results. Closing the iterators of `transcribe_many`,
    `transcribe_as_completed` and `stream`, or an exception such as KeyboardInterrupt, removes their requests from the
    engine.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path = DEFAULT_MODEL, **engine_options: Unpack[EngineKeywords]) -> None:
        where = "the methods, as in transcriber.transcribe(audio, NAME=...)"
        refuse_misplaced(engine_options, declared(EngineConfig), declared(TranscriptionOptions), where)
        self._take(Engine(model, **engine_options))

    @classmethod
    def from_engine(cls, engine: Engine) -> Transcriber:
        """Return a Transcriber for a loaded engine. Raises UnsupportedModelError like the constructor."""
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

        progress: show a bar in minutes of audio on stderr; None: if stderr is a terminal.
        Raises MediaError for audio that cannot be read.
        """
        _refuse_several(audio)
        checked = self._checked(options)
        transcript: Transcript = self._result(self._edited(audio, checked), progress, checked)
        return transcript

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
        """Transcribe recordings together, in their order. A recording that cannot be read yields its error.

        The arguments are those of `transcribe_as_completed`. Raises ParameterError for a single recording.
        """
        results = self.transcribe_as_completed(
            audios, progress=progress, on_info=on_info, on_segment=on_segment, **options
        )
        return in_order(results)

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
        """Transcribe recordings together, and yield each with its number, from 0, once it is done.

        audios: each is read when its job starts. progress: see `transcribe`. on_info: called once with the number of a
        recording and its TranscriptionInfo. on_segment: called with the number and each of its segments as soon as the
        segment is certain, in order of time.
        A recording that cannot be read, or fails, yields its error. Raises ParameterError for a single recording.
        """
        _refuse_other_than_list(audios)
        checked = self._checked(options)
        jobs = (self._edited(audio, checked) for audio in audios)
        return reported(self._run(jobs, progress, checked), on_info, on_segment)

    @shows_options(TranscriptionOptions)
    def stream(
        self, audio: AudioInput, *, progress: bool | None = False, **options: Unpack[TranscriptionKeywords]
    ) -> SegmentStream:
        """Return an iterator over the segments of one recording, each once it is certain; see SegmentStream.

        Reading from it raises MediaError for audio that cannot be read.
        """
        _refuse_several(audio)
        checked = self._checked(options)
        return SegmentStream(self._run([self._edited(audio, checked)], progress, checked))

    @shows_options(TranscriptionOptions, without=NOT_OF_ALIGNMENT)
    def align(
        self, audio: AudioInput, text: str, *, progress: bool | None = False, **options: Unpack[AlignmentKeywords]
    ) -> Transcript:
        """Find the time of each word of a known text: forced alignment.

        Each segment of the result is a line of the text, or a sentence if the text has one line. The recording may have
        any length: it is transcribed with the options first, to match the text with its windows. Text without speech
        gets the time of its neighbours. progress: see `transcribe`.
        Raises MediaError for audio that cannot be read or has no words, ParameterError for an empty text.
        """
        limits = self.engine.config.limits
        forced_alignment.check_text(text, limits)
        if not self.model.alignment_heads:
            message = "this model cannot time words, so it cannot align a text; Whisper can"
            raise ParameterError(message, param="model")
        for name in ("task", "target_language"):
            if name in options:
                message = f"align has no {{{name}}}: the text is in the language that is spoken"
                raise ParameterError(message, param=name)
        for name in ("glossary", "redact"):
            if name in options:
                message = f"align has no {{{name}}}: edit its transcript, with corrected() or redacted()"
                raise ParameterError(message, param=name)
        checked = self._checked({**options, "word_timestamps": True})
        checked.refuse_speakers()
        job = forced_alignment.align(self.model, audio, text, limits, checked)
        return lasting_transcript(self._result(job, progress))

    @property
    def supported_languages(self) -> list[str]:
        """Codes of the languages that the model knows; ``["en"]`` for a model of one language."""
        return list(self.model.languages) or [ONLY_LANGUAGE]

    @property
    def supported_target_languages(self) -> list[str]:
        """Codes that target_language may have besides the spoken language; often none."""
        return list(self.model.target_languages)

    def detect_language(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> DetectedLanguage:
        """Detect the language of a recording: its code, its probability, and the probabilities of all languages.

        Unless ``mode="sequential"``, long silence is left out first, as in auto mode, and the text also counts if the
        language is in doubt.
        options: language_detection_segments and language_detection_threshold. A recording shorter than the model's
        window is padded with silence, as in openai-whisper's ``detect_language``. `transcribe` uses the window that it
        will decode, whose padding is not silence, so its probability differs a little.
        Raises MediaError for audio that cannot be read, ParameterError for a model that knows one language only.
        """
        checked = self._options({**options, "language": None})
        checked.refuse_speakers()
        if not self.model.detects:
            advice = 'load a multilingual model, such as "base"'
            message = f"{self.model.why_it_detects_none}, so there is nothing to detect: {advice}"
            raise ParameterError(message, param="model")
        check_options(self.model, checked)

        def features() -> Tensor:
            rate = self.model.spec.sample_rate
            (waveform,) = load_recording(self.engine.config.limits, audio, rate, checked).waveforms
            window = rate * self.model.window_frames // self.model.fps  # samples
            if checked.mode == AUTO and rate == VAD_RATE:
                waveform = without_silence(self.model, waveform[: SEARCHED_SECONDS * rate], checked)
            heard = waveform[: checked.language_detection_segments * window]
            return self.model.features(np.pad(heard, (0, -len(heard) % window)))

        def job() -> Generator[Any, Any, Language]:
            return (yield from recording_language(Source(self.model, checked, (yield Offload(features)))))

        language = self._result(job())
        return DetectedLanguage(language.code, language.probability or 0.0, language.probabilities)

    @shows_options(TranscriptionOptions, LiveOptions, without=NOT_OF_LIVE)
    def live(
        self, chunks: Iterable[Chunk], rate: float = LIVE_RATE, **options: Unpack[LiveKeywords]
    ) -> Generator[LiveEvent, None, None]:
        """Transcribe speech while it is spoken: yield events (`transept.speech.live.events`) as they become known.

        chunks: audio as it arrives, such as from a microphone: PCM in 16 bits as bytes, or arrays. It is read in
        another thread. rate: of the chunks, in Hz. Closing the iterator ends the stream.
        """
        return transcribed(self.live_stream(rate, **options), chunks)

    @shows_options(TranscriptionOptions, LiveOptions, without=NOT_OF_LIVE)
    def live_stream(self, rate: float = LIVE_RATE, **options: Unpack[LiveKeywords]) -> LiveStream:
        """Return a live stream, to which any thread pushes audio while another reads its events.

        rate: of the audio, in Hz. Raises ParameterError for a bad option.
        """
        return LiveStream(self.live_transcription(rate, **options), self.engine.runner)

    @shows_options(TranscriptionOptions, LiveOptions, without=NOT_OF_LIVE)
    def live_transcription(self, rate: float = LIVE_RATE, **options: Unpack[LiveKeywords]) -> LiveTranscription:
        """Return the state of a live stream, whose `job` is for `engine.runner`; see `live_stream`."""
        for name in NOT_OF_LIVE:
            if name in options:
                message = f"live transcription has no {{{name}}}; see LiveOptions for its own options"
                raise ParameterError(message, param=name)
        given, live = split_options(
            "live transcription has no option", options, TranscriptionOptions, LiveOptions, without=NOT_OF_LIVE
        )
        checked = self._checked({"quality": "fast", **given, "without_timestamps": True, "word_timestamps": False})
        if self.model.spec.sample_rate != VAD_RATE:
            message = f"live transcription needs a model for audio at {VAD_RATE} Hz"
            raise ParameterError(message, param="model")
        return LiveTranscription(self.model, Feed(rate), checked, LiveOptions(**live))

    @shows_options(TranscriptionOptions)
    def job(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> Job:
        """Return a job for `engine.runner` (docs/jobs.md), whose result is a Transcript.

        Its events are an Opened, a TranscriptionInfo, then Founds. Raises ParameterError at once for a bad option.
        """
        checked = self._checked(options)
        checked.refuse_several("is for calls that take several recordings, such as transcribe_many; leave it out")
        return self._edited(audio, checked)

    def _edited(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        """Return the job of one recording, with its text corrected and redacted as the options ask."""
        job = self._recording(audio, options)
        if not (options.glossary or options.redact):
            return (yield from job)
        edits = Edits(self.model, options)
        (transcript,) = yield Gather([job], merge=edits)
        edited = yield Offload(partial(edits.of, transcript))
        if edits.find_names is not None:
            yield Found(edited.segments, edited.duration)
        return edited

    def _recording(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        """A job: one recording, all of whose words have a duration; not in `transept.compat`, as in other libraries."""
        job = conversation.transcribe(self.model, audio, self.engine.config.limits, options)
        (transcript,) = yield Gather([job], merge=lasting_event)
        return lasting_transcript(transcript)

    def _checked(self, options: Mapping[str, Any]) -> TranscriptionOptions:
        checked = self._options(options)
        check_options(self.model, checked)
        return checked

    def _options(self, options: Mapping[str, Any]) -> TranscriptionOptions:
        """Return the options without checking them against the model."""
        where = "Transcriber(model, NAME=...), where the model is loaded"
        refuse_misplaced(options, declared(TranscriptionOptions), declared(EngineConfig), where)
        return self.model.options(options)

    def _result(self, job: Job, progress: bool | None = False, options: TranscriptionOptions | None = None) -> Any:
        """Run one job and return its result. Raises the error that it ends with."""
        with closing(self._run([job], progress, options)) as events:
            *_, (_, result) = events
        if isinstance(result, TranseptError):
            raise result
        return result

    def _run(
        self, jobs: Iterable[Job], progress: bool | None, options: TranscriptionOptions | None
    ) -> Generator[tuple[int, Any], None, None]:
        """Run jobs together. Yields their events and results, each with its job's index, and updates the bar."""
        config, runner, named = self.engine.config, self.engine.runner, None
        if options is not None and options.same_speakers:
            model = self.model.voice_embedder.model
            named = SameSpeakers(options.voices or Voices(), model, writes=options.add_voices)
        with (
            AudioProgress(progress) as bar,
            closing(runner.run(jobs, min(MAX_RECORDINGS, config.max_num_seqs), config.max_num_seqs)) as events,
        ):
            for index, event in events:
                if isinstance(event, Opened):
                    bar.opened(event.duration)
                elif isinstance(event, Found):
                    bar.reached(index, event.progress_seconds)
                elif isinstance(event, Transcript):
                    bar.reached(index, event.duration)
                if named is None:
                    yield index, event
                else:
                    yield from named(index, event)


def _refuse_several(audio: Any) -> None:
    if isinstance(audio, list | tuple) and isinstance(next(iter(audio), None), str | bytes | os.PathLike):
        message = "this takes one recording; for a list of them call transcribe_many"
        raise ParameterError(message, param="audio", value=audio)


def _refuse_other_than_list(audios: Any) -> None:
    """Raise ParameterError for one recording, or for a collection without order, in place of a list of recordings."""
    if isinstance(audios, tuple):  # (waveform, sample rate), or a tuple of recordings
        is_one = len(audios) == 2 and isinstance(audios[1], Real)
    elif is_array(audios):  # of samples; an array of paths is a list
        is_one = getattr(getattr(audios, "dtype", None), "kind", "f") in "fiu"
    else:
        is_one = isinstance(audios, str | bytes | bytearray | memoryview | os.PathLike) or hasattr(audios, "read")
    if is_one:
        message = "this takes a list of recordings; for a single one call transcribe()"
    elif isinstance(audios, Mapping | set | frozenset):
        kind = "dict, whose keys or values are meant" if isinstance(audios, Mapping) else "set, which has no order"
        message = f"this takes a list of recordings, not a {kind}: results come in the list's order"
    elif not isinstance(audios, Iterable):
        message = f"this takes a list of recordings, not {type(audios).__name__}"
    else:
        return
    raise ParameterError(message, param="audios", value=audios)
