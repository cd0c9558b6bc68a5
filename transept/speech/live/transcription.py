"""The job of one live stream: audio in, events out (`live.events`). It shares the engine with all other jobs.

    feed ─▶ resample ─▶ voice activity ─▶ utterance ─▶ passes ─▶ policy ─▶ committed and tentative words

While there is too little unread audio for a step, the job sleeps on the feed's signal. After each pass it reads the
audio that has arrived since, at most MOST_AT_ONCE seconds. So a slow machine makes fewer passes, each with more new
audio.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np

from transept.core.jobs.job import Job, Offload, Submit
from transept.core.jobs.urgent import urgent
from transept.multimodal.waveforms import NO_SAMPLES
from transept.speech.algorithms.language import detected, language_request
from transept.speech.live.context import Context
from transept.speech.live.events import (
    Committed,
    Lagging,
    LanguageDetected,
    SpeechStarted,
    SpeechStopped,
    Tentative,
    UtteranceEnded,
)
from transept.speech.live.feed import Arrived, Feed
from transept.speech.live.hypothesis import Hypothesis
from transept.speech.live.policies import policy_of
from transept.speech.live.utterance import Utterance
from transept.speech.live_options import AUTO, LiveOptions
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Word
from transept.speech.speech_model import SpeechModel
from transept.speech.vad.listener import Heard, SpeechListener
from transept.speech.vad.spans import SAMPLE_RATE

MOST_AT_ONCE = 4.0  # seconds of audio that the job reads between two passes
LAGGING = 2.0  # seconds of unread audio from which on a Lagging event is sent
EARLY_SILENCE = 0.25  # seconds of silence before a pass that may be the utterance's last
LEAST_SPEECH = 0.4  # seconds of audio before the first pass
LONGEST_GAP = 10.0  # seconds without speech after which the context is cleared
DETECTED_SECONDS = 1.0  # of audio that language detection needs before the utterance ends


class LiveTranscription:
    """The state of one stream. `job` may be called once."""

    def __init__(self, model: SpeechModel, feed: Feed, options: TranscriptionOptions, live: LiveOptions) -> None:
        self.model, self.feed, self.options, self.live = model, feed, options, live
        self.policy = model.live_policy if live.policy == AUTO else live.policy
        self.context = Context(model, options)
        self.language = model.language_code(options.language)
        if self.language is None and not model.detects:
            self.language = model.undetected_language
        self._number = 0  # of utterances with text
        self._listener = SpeechListener(live.vad_threshold, live.vad_padding_ms / 1000, live.vad_silence_ms / 1000)
        self._utterance: Utterance | None = None
        self._settled: int | None = None  # speech_end of the utterance when a pass was made in silence
        self._tentative = ""
        self._spoken_to = 0  # sample after the last utterance's speech
        self._arrivals: deque[tuple[int, float]] = deque()  # (sample of the stream, seconds of the clock)
        self._num_arrived = 0  # samples at SAMPLE_RATE
        self.num_passes = 0

    def job(self) -> Job:
        """A job that ends after the feed is closed. Its events are LiveEvents. Its requests are urgent."""
        return urgent(self._listen())

    def _listen(self) -> Job:
        while True:
            closed = self.feed.is_closed  # before the audio is taken, so that none is missed
            if not closed and not self.feed.has_news():
                yield self.feed.signal
                continue
            if self.feed.unread > LAGGING:
                yield Lagging(round(self.feed.unread, 3))
            arrived = self.feed.take(MOST_AT_ONCE)
            heard = yield Offload(partial(self._hear, arrived, last=closed and not self.feed.unread))
            for stretch in heard:
                yield from self._take(stretch)
            if self._utterance is not None and self._is_due(self._utterance):
                yield from self._pass(self._utterance)
            if closed and not arrived:
                return

    def _hear(self, arrived: list[Arrived], *, last: bool) -> list[Heard]:
        """Resample audio and find the speech in it. Called in another thread."""
        samples = [self.feed.resampled(each.samples) for each in arrived]
        if arrived:
            for each, piece in zip(arrived, samples, strict=True):
                self._num_arrived += len(piece)
                self._arrivals.append((self._num_arrived, each.time))
            while len(self._arrivals) > 2 and self._arrivals[0][0] < self._num_arrived - 60 * SAMPLE_RATE:
                self._arrivals.popleft()
        elif last:
            samples = [self.feed.resampled(NO_SAMPLES, last=True)]
        heard = self._listener.hear(np.concatenate([NO_SAMPLES, *samples]))
        return [*heard, *self._listener.finish()] if last and not arrived else heard

    def _take(self, stretch: Heard) -> Generator[Any, Any, None]:
        """A job: add a stretch to the utterance, which may begin or end with it."""
        if stretch.starts:
            if stretch.begin - self._spoken_to > LONGEST_GAP * SAMPLE_RATE and self._number:
                self.context.clear()
            policy = policy_of(self.live, self.policy, self.model.num_decoder_layers)
            self._utterance = Utterance(self.model, self.options, self.live, policy, stretch.begin)
            self._settled = None
            yield SpeechStarted(round(stretch.begin / SAMPLE_RATE, 2))
        utterance = self._utterance
        assert utterance is not None
        utterance.add(stretch.samples, stretch.speech_end)
        if stretch.ends:
            yield SpeechStopped(round(stretch.speech_end / SAMPLE_RATE, 2))
            yield from self._finish(utterance)

    def _is_due(self, utterance: Utterance) -> bool:
        """True if there is enough new audio for a pass; in silence, if no pass has been made in it."""
        if utterance.end - utterance.begin < LEAST_SPEECH * SAMPLE_RATE:
            return False
        silence = (utterance.end - utterance.speech_end) / SAMPLE_RATE
        if silence >= EARLY_SILENCE:
            return self._settled != utterance.speech_end
        return utterance.end - utterance.read_to >= self.live.min_chunk * SAMPLE_RATE

    def _pass(self, utterance: Utterance) -> Generator[Any, Any, None]:
        """A job: a pass before the end of the utterance."""
        if (yield from self._find_language(utterance, last=False)) is None:
            return
        in_silence = utterance.end - utterance.speech_end >= EARLY_SILENCE * SAMPLE_RATE
        hypothesis = yield from self._hypothesis(utterance, last=in_silence)
        words = utterance.commit(hypothesis, last=False)
        self._settled = utterance.speech_end if in_silence else None
        words += utterance.drop_audio(self.context)
        yield from self._tell(utterance, words)

    def _finish(self, utterance: Utterance) -> Generator[Any, Any, None]:
        """A job: the end of the utterance. Its last pass has usually run in the silence before the end."""
        self._utterance = None
        ended = self._arrival(utterance.end)
        language = yield from self._find_language(utterance, last=True)
        assert language is not None
        hypothesis = utterance.last
        if hypothesis is None or self._settled != utterance.speech_end:
            hypothesis = yield from self._hypothesis(utterance, last=True)
        words = utterance.commit(hypothesis, last=True)
        self._spoken_to = utterance.speech_end
        self.context.add([token for word in utterance.committed for token in word.tokens])
        yield from self._tell(utterance, words, is_over=True)
        segment = utterance.segment(self._number, language if self.model.detects else None)
        self._number += segment is not None
        yield UtteranceEnded(segment, round(self.feed.clock() - ended, 3))

    def _hypothesis(self, utterance: Utterance, *, last: bool) -> Generator[Any, Any, Hypothesis]:
        self.num_passes += 1
        assert self.language is not None
        return (yield from utterance.passed(self.language, self.context, last=last))

    def _find_language(self, utterance: Utterance, *, last: bool) -> Generator[Any, Any, str | None]:
        """A job: the language; None if the audio is too short to detect it."""
        if self.language is not None:
            return self.language
        if utterance.seconds < DETECTED_SECONDS and not last:
            return None
        source = yield from utterance.source(self.model.undetected_language, self.options)
        (output,) = yield Submit([language_request(self.model, source.features, lora=self.options.lora)])
        found = detected(self.model, output)
        self.language = found.code
        yield LanguageDetected(found.code, round(found.probability or 0.0, 3))
        return found.code

    def _tell(self, utterance: Utterance, words: list[Word], *, is_over: bool = False) -> Generator[Any, Any, None]:
        """A job: events of new words, and of the tentative text if it has changed."""
        if words:
            lag = self.feed.clock() - self._arrival(round(words[-1].end * SAMPLE_RATE))
            yield Committed(tuple(words), round(lag, 3))
        tentative = "" if is_over else utterance.tentative
        if tentative != self._tentative:
            self._tentative = tentative
            yield Tentative(tentative)

    def _arrival(self, sample: int) -> float:
        """Return the time at which a sample of the stream arrived."""
        return next((time for end, time in self._arrivals if end >= sample), self._arrivals[-1][1])
