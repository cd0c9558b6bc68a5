"""Utterance: the audio of a stretch of speech, its committed words, and the passes over it.

    audio       |-- dropped --|------------- read by a pass -------------|-- margin --|
    text        ... context  ]|  committed words  |  tentative words     |
                               = the prompt's prefix

Committed words whose audio is read are the decoder's prefix, so a pass decodes only the words after them. Words whose
audio is dropped become context before the text. `live.transcription` makes an Utterance for each stretch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any

import numpy as np

from transept.core.jobs.job import Offload
from transept.multimodal.waveforms import NO_SAMPLES, Waveform
from transept.speech.algorithms.prompt import WindowPrompt
from transept.speech.algorithms.source import Source
from transept.speech.live.context import Context
from transept.speech.live.hypothesis import HeardWord, Hypothesis, hear, is_noise, most_tokens
from transept.speech.live.policies import Policy
from transept.speech.live_options import LiveOptions
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment, Word
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.words import WordTiming, merge_punctuation
from transept.speech.vad.spans import SAMPLE_RATE
from transept.speech.word_breaks import lasting

KEPT_SECONDS = 2.0  # of audio of committed words that is kept when older audio is dropped
LEAST_PREFIX = 2  # committed words whose audio is kept
STUCK_SECONDS = 4.0  # of audio that is kept although none of its words is committed
CUT_OFF_PROBABILITY, CUT_OFF_SECONDS = 0.5, 0.2  # a less likely word this close to the end of the audio is cut off
BROKEN = ("-", "...", "…")  # marks after an unfinished word
UNHEARD_SECONDS = 2.0  # of speech without a word after the committed ones: the decoder takes these for the whole text
RETRY_MARGIN = 4.0  # more seconds of silence that the encoder reads if a text is in doubt
LONGEST_BEYOND = 5.0  # seconds beyond longest_audio before tentative words are committed to make room


class Utterance:
    """The audio and the text of an utterance. begin: sample of the stream. policy: decides which words are final."""

    def __init__(
        self, model: SpeechModel, options: TranscriptionOptions, live: LiveOptions, policy: Policy, begin: int
    ) -> None:
        self.model, self.options, self.live, self.policy = model, options, live, policy
        self.begin = begin
        self.cut = begin  # sample of the stream at which the kept audio begins
        self.samples: Waveform = NO_SAMPLES
        self.speech_end = begin  # sample after the last speech
        self.read_to = begin  # sample after the audio of the last pass
        self.committed: list[WordTiming] = []  # words whose audio is kept; seconds of the stream
        self.words: list[WordTiming] = []  # all committed words
        self.last: Hypothesis | None = None  # the last pass's, without its committed words

    @property
    def end(self) -> int:
        """Sample of the stream after the audio."""
        return self.cut + len(self.samples)

    @property
    def seconds(self) -> float:
        """Length of the kept audio in seconds."""
        return len(self.samples) / SAMPLE_RATE

    def add(self, samples: Waveform, speech_end: int) -> None:
        """Add audio. speech_end: sample after the last speech."""
        self.samples = np.concatenate([self.samples, samples])
        self.speech_end = speech_end

    def source(self, language: str, options: TranscriptionOptions) -> Generator[Any, Any, Source]:
        """A job: the audio with its features."""
        features = yield Offload(partial(self.model.window_features, self.samples))
        return Source(self.model, options, features, self.samples, language)

    def passed(self, language: str, context: Context, *, last: bool) -> Generator[Any, Any, Hypothesis]:
        """A job: a pass over the kept audio.

        If it finds no word in much speech after the committed words, a second pass reads only the audio after these.
        last: decode with the beams of the options; if the text is in doubt, decode again, without context and with
        fallback to higher temperatures.
        """
        options = _for_pass(self.options, most_tokens(self._open_seconds), last=last)
        self.read_to = self.end
        heard = yield from self.source(language, options)
        frames = self._frames_read(heard)
        begin, settled = self.cut / SAMPLE_RATE, self._settled
        prompt = self._prompt(language, context)
        draft = [] if self.last is None else [token for word in self.last.words for token in word.timing.tokens]
        hypothesis = yield from hear(heard, begin, settled, prompt, options.temperatures[:1], frames, draft, last=last)
        if not hypothesis.is_trusted and hypothesis.decoded.text:
            context.clear()  # which may have misled the decoder
            if last:
                prompt, frames = self._prompt(language, context), self._frames_read(heard, RETRY_MARGIN)
                hypothesis = yield from hear(heard, begin, settled, prompt, options.temperatures, frames, last=True)
        if self.committed and not any(word.key for word in hypothesis.words) and self._unheard > UNHEARD_SECONDS:
            self._drop_committed(context)
            hypothesis = yield from self.passed(language, context, last=last)
        return hypothesis

    def commit(self, hypothesis: Hypothesis, *, last: bool) -> list[Word]:
        """Commit the words that the policy finds final, and return them.

        last: commit all words instead, or none if the hypothesis is too doubtful.
        """
        words = list(hypothesis.words)
        if last:
            final = len(words) if self._is_acceptable(hypothesis) else 0
        elif not hypothesis.is_trusted:
            self.policy.forget()
            final = 0
        else:
            final = self.policy.num_final(words, self.end / SAMPLE_RATE)
            while final and not words[final - 1].key:  # marks wait for the next word
                final -= 1
                final -= words[final].text.strip() in BROKEN and final > 0  # so does a word that breaks off
        self.last = dataclasses.replace(hypothesis, words=tuple(words[final:]))
        return self._commit(words[:final])

    @property
    def tentative(self) -> str:
        """The text after the committed words, up to the first word that is probably cut off."""
        if self.last is None or not self.last.is_trusted:
            return ""
        words, latest = self.last.words, self.end / SAMPLE_RATE - CUT_OFF_SECONDS
        shown = takewhile(lambda word: word.reached <= latest or word.timing.probability >= CUT_OFF_PROBABILITY, words)
        return "".join(word.text for word in shown)

    def drop_audio(self, context: Context) -> list[Word]:
        """Drop the audio of older committed words if there is too much audio, and move their text to the context.

        Returns tentative words that were committed to make room.
        """
        if self.seconds <= self.live.longest_audio:
            return []
        forced: list[Word] = []
        at = self._place_to_cut()
        if at is None and self.seconds > self.live.longest_audio + LONGEST_BEYOND:
            forced = self._commit_old_words()
            at = self._place_to_cut()
            if at is None:
                self._drop_before(self.end - round(STUCK_SECONDS * SAMPLE_RATE))
                context.add([token for word in self.committed for token in word.tokens])
                self.committed, self.last = [], None
                self.policy.forget()
        if at is not None:
            context.add([token for word in self.committed[:at] for token in word.tokens])
            start = max(self.committed[at - 1].end, self.committed[at].start)
            self.committed = self.committed[at:]
            self._drop_before(round(start * SAMPLE_RATE))
        return forced

    def segment(self, number: int, language: str | None) -> Segment | None:
        """Return the final segment of all committed words; None without any. number: its id."""
        if not self.words:
            return None
        options = self.options
        merged = merge_punctuation(self.words, options.prepend_punctuations, options.append_punctuations)
        words = [_word(timing) for timing in merged]
        tokens = [token for word in self.words for token in word.tokens]
        decoded = self.last.decoded if self.last is not None else None
        return lasting(
            Segment(
                id=number,
                seek=round(self.begin * 100 / SAMPLE_RATE),
                start=words[0].start,
                end=words[-1].end,
                text=self.model.tokenizer.decode(tokens),
                tokens=tokens,
                temperature=0.0 if decoded is None else decoded.temperature,
                avg_logprob=0.0 if decoded is None else decoded.avg_logprob,
                compression_ratio=0.0 if decoded is None else decoded.compression_ratio,
                no_speech_prob=0.0 if decoded is None else decoded.no_speech_prob,
                words=words,
                language=language,
            )
        )

    @property
    def _open_seconds(self) -> float:
        """Seconds of audio after the last committed word."""
        return max(0.0, self.end / SAMPLE_RATE - self._settled)

    @property
    def _settled(self) -> float:
        """Second of the stream at which the last committed word ends, or at which the audio begins."""
        return self.committed[-1].end if self.committed else self.cut / SAMPLE_RATE

    @property
    def _unheard(self) -> float:
        """Seconds of speech after the last committed word."""
        return self.speech_end / SAMPLE_RATE - self._settled

    def _frames_read(self, heard: Source, more: float = 0.0) -> int | None:
        """Return the number of frames that the encoder reads; None: the whole window. more: seconds of margin."""
        margin = self.live.encoder_margin
        if margin is None or self.model.spec.short_features_modality is None:
            return None
        frames = heard.num_frames + round((margin + more) * self.model.fps)
        return frames if frames < self.model.window_frames else None

    def _prompt(self, language: str, context: Context) -> WindowPrompt:
        prefix = [token for word in self.committed for token in word.tokens]
        opening = self.model.opening_tokens(language, self.options, timestamps=False)
        return WindowPrompt(context.prompt(len(opening) + len(prefix)), opening, prefix)

    def _is_acceptable(self, hypothesis: Hypothesis) -> bool:
        """True if the last hypothesis becomes text, even though it may be doubtful."""
        if hypothesis.is_trusted:
            return True
        limit, decoded = self.options.compression_ratio_threshold, hypothesis.decoded
        is_repetitive = limit is not None and decoded.compression_ratio > limit
        return decoded.is_finished and not is_repetitive and not is_noise(self.options, decoded)

    def _commit(self, words: Sequence[HeardWord]) -> list[Word]:
        """Commit words, with times in the stream that never go back."""
        earliest = self.words[-1].end if self.words else self.begin / SAMPLE_RATE
        new: list[WordTiming] = []
        for word in words:
            start = max(word.timing.start, earliest)
            earliest = max(word.timing.end, start)
            new.append(dataclasses.replace(word.timing, start=start, end=earliest))
        self.committed += new
        self.words += new
        options = self.options
        merged = merge_punctuation(new, options.prepend_punctuations, options.append_punctuations)
        return [_word(timing) for timing in merged]

    def _commit_old_words(self) -> list[Word]:
        """Commit the tentative words that end well before the audio's end, because their audio is dropped."""
        if self.last is None or not self.last.is_trusted:
            return []
        limit = self.end / SAMPLE_RATE - STUCK_SECONDS
        words = self.last.words
        final = next((number for number, word in enumerate(words) if word.timing.end > limit), len(words))
        self.last = dataclasses.replace(self.last, words=words[final:])
        self.policy.forget()
        return self._commit(words[:final])

    def _place_to_cut(self) -> int | None:
        """Return the number of committed words whose audio is dropped; None if too few are committed."""
        latest = self.committed[-1].end - KEPT_SECONDS if self.committed else 0.0
        for at in range(len(self.committed) - LEAST_PREFIX, 0, -1):
            word = self.committed[at]
            if word.start <= latest and word.word.startswith(" "):
                return at
        return None

    def _drop_committed(self, context: Context) -> None:
        """Drop the audio of all committed words, and move their text to the context."""
        self._drop_before(round(self._settled * SAMPLE_RATE))
        context.add([token for word in self.committed for token in word.tokens])
        self.committed = []

    def _drop_before(self, sample: int) -> None:
        kept = max(0, min(sample, self.end) - self.cut)
        self.samples = self.samples[kept:].copy()
        self.cut += kept


@lru_cache
def _for_pass(options: TranscriptionOptions, num_tokens: int, *, last: bool) -> TranscriptionOptions:
    """Return the options of a pass: greedy and with a bound for its tokens, unless it is the last one."""
    if last:
        return dataclasses.replace(options, max_new_tokens=num_tokens)
    return dataclasses.replace(options, max_new_tokens=num_tokens, beam_size=1, patience=None)


def _word(timing: WordTiming) -> Word:
    return Word(round(timing.start, 2), round(timing.end, 2), timing.word, timing.probability)
