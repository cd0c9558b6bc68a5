"""Transcriber: audio of any length to text.

Recordings are cut into consecutive windows of the model's length, so nothing is lost however long they are; windows of
many recordings share the engine's batch. What is a family's own (control tokens, languages, window length) comes from
its plugin's SpeechSpec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from transept.core.engine import Engine
from transept.core.outputs import RequestOutput
from transept.core.prompts import TokensPrompt
from transept.core.sampling_params import SamplingParams
from transept.errors import TranseptError, UnsupportedModelError
from transept.multimodal.audio import load_audio
from transept.speech.transcript import Segment, Transcript

AudioInput: TypeAlias = str | Path | bytes | tuple[Any, int]  # path, file contents, or (waveform, sample rate)


@dataclass
class _Recording:
    """One input on its way through: its windows, or the error that reading it gave."""

    error: TranseptError | None = None
    duration: float = 0.0  # seconds
    windows: tuple[np.ndarray, ...] = ()
    language: str | None = None  # code; set by detection when the user names none


class Transcriber:
    """Keeps a speech model loaded.

    model, engine_options: as for Engine. Raises UnsupportedModelError for a model that is not a speech model.
    """

    def __init__(self, model: str | Path, **engine_options: Any) -> None:
        self.engine = Engine(model, **engine_options)
        speech = self.engine.spec.speech
        if speech is None:
            raise UnsupportedModelError(
                f'"{model}" is a "{self.engine.spec.name}" model; it does not transcribe speech'
            )
        self.speech = speech
        self.languages = dict(speech.languages(self.engine.model_config))
        self.window_seconds = speech.window_seconds(self.engine.model_config)

    def transcribe(self, audio: AudioInput, *, language: str | None = None, task: str = "transcribe") -> Transcript:
        """Transcribe one recording, or translate it to English.

        audio: a path, a file's bytes, or ``(waveform, sample rate)``. language: a code such as ``"de"``; detected from
        the first window when None. task: ``"transcribe"`` or ``"translate"``.
        Raises MediaError for audio that cannot be read, ParameterError for an unknown language or task.
        """
        result = next(self.transcribe_many([audio], language=language, task=task))
        if isinstance(result, TranseptError):
            raise result
        return result

    def transcribe_many(
        self, audios: Iterable[AudioInput], *, language: str | None = None, task: str = "transcribe"
    ) -> Iterator[Transcript | TranseptError]:
        """Transcribe recordings together, in their order; one that cannot be read gives its error in its place.

        See `transcribe`. Raises ParameterError at once for an unknown language or task.
        """
        self._control_tokens(language, task)
        return self._run(audios, language, task)

    def _run(
        self, audios: Iterable[AudioInput], language: str | None, task: str
    ) -> Iterator[Transcript | TranseptError]:
        for batch in self._batches(audios):
            self._set_languages(batch, language)
            yield from self._transcribe_batch(batch, task)

    def _batches(self, audios: Iterable[AudioInput]) -> Iterator[list[_Recording]]:
        """Recordings with about as many windows as the engine runs at a time; read only when their turn comes."""
        batch: list[_Recording] = []
        for audio in audios:
            batch.append(self._read(audio))
            if sum(len(recording.windows) for recording in batch) >= self.engine.config.max_num_seqs:
                yield batch
                batch = []
        if batch:
            yield batch

    def _read(self, audio: AudioInput) -> _Recording:
        rate = self.speech.sample_rate
        try:
            waveform = load_audio(audio, rate)
        except TranseptError as error:
            return _Recording(error=error)
        size = round(self.window_seconds * rate)  # samples
        windows = tuple(waveform[start : start + size] for start in range(0, len(waveform), size))
        return _Recording(duration=len(waveform) / rate, windows=windows)

    def _set_languages(self, batch: list[_Recording], language: str | None) -> None:
        """The language that the user named, or for each recording the likeliest one of its first window."""
        unknown = [recording for recording in batch if recording.windows]
        for recording in batch:
            recording.language = language or "en"
        if language is not None or not self.languages or not unknown:
            return
        prompt = self.speech.language_prompt(self.engine.model_config)
        codes = {token: code for code, token in self.languages.items()}
        params = SamplingParams(temperature=0.0, max_tokens=1, allowed_token_ids=list(codes), suppress_tokens=())
        outputs = self.engine.generate(
            [self._window_prompt(recording.windows[0], prompt) for recording in unknown], params, progress=False
        )
        for recording, output in zip(unknown, outputs, strict=True):
            recording.language = codes[output.outputs[0].token_ids[0]]

    def _transcribe_batch(self, batch: list[_Recording], task: str) -> Iterator[Transcript | TranseptError]:
        prompts = [
            self._window_prompt(window, self._control_tokens(recording.language, task))
            for recording in batch
            for window in recording.windows
            if window.any()  # digital silence has no words, but models make some up
        ]
        outputs = iter(self.engine.generate(prompts, SamplingParams(temperature=0.0), progress=False))
        for recording in batch:
            yield recording.error or self._transcript(recording, outputs)

    def _transcript(self, recording: _Recording, outputs: Iterator[RequestOutput]) -> Transcript:
        segments = []
        for index, window in enumerate(recording.windows):
            if window.any():
                completion = next(outputs).outputs[0]
                start = index * self.window_seconds
                end = start + len(window) / self.speech.sample_rate
                segments.append(Segment(start, end, completion.text, completion.token_ids))
        text = "".join(segment.text for segment in segments).strip()
        return Transcript(text, recording.language or "en", recording.duration, segments)

    def _control_tokens(self, language: str | None, task: str) -> list[int]:
        return self.speech.decoder_prompt(self.engine.model_config, language=language, task=task)

    def _window_prompt(self, window: np.ndarray, decoder_prompt: list[int]) -> TokensPrompt:
        return {"prompt_tokens": decoder_prompt, "multi_modal_data": {"audio": (window, self.speech.sample_rate)}}


def transcribe(
    audio: AudioInput,
    model: str | Path,
    *,
    language: str | None = None,
    task: str = "transcribe",
    **engine_options: Any,
) -> Transcript:
    """Transcribe one recording with a model that is loaded for it; see Transcriber, which keeps one loaded."""
    return Transcriber(model, **engine_options).transcribe(audio, language=language, task=task)
