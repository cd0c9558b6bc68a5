"""Batched mode: windows of a recording's speech are decoded side by side.

The windows of one recording and of many share the engine's batch; each has its own thresholds, its own fallback and,
with ``multilingual``, its own language. `transept.speech.recording` calls `decode_windows`, with the windows of
`spoken_windows`.

A window is decoded without timestamps: a model that writes them sometimes ends a window before its speech ends, and
only a next window that begins there can make up for it. Cross-attention times the words, and the window is cut into
segments between sentences. If no word begins for long in a stretch of speech, the model has left something out, as it
does with a sentence that repeats the one before. Then the window is decoded again in two parts, without the previous
text, and so is each part. Speech that no segment covers after that is decoded once more on its own. With
``multilingual`` a window is cut where its language changes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Any

from transept.core.jobs.job import Gather
from transept.speech.algorithms.decoding import decode_window
from transept.speech.algorithms.language import LIKELY, language_runs, window_language
from transept.speech.algorithms.prompt import EarlierText
from transept.speech.algorithms.second_hearing import DECODED_AGAIN, Heard, Stretch, listen_again, uncovered
from transept.speech.algorithms.segmentation import whole_segment
from transept.speech.algorithms.silence import SpokenWindow
from transept.speech.algorithms.source import Source
from transept.speech.algorithms.window_words import time_words
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Found, Segment
from transept.speech.sentences import ends_sentence
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.aligned import word_times
from transept.speech.timing.words import WordTiming, merge_punctuation, place_words
from transept.speech.vad.spans import SAMPLE_RATE, silence_between
from transept.speech.word_breaks import may_break

LONGEST_CHAIN = 4  # windows; longer chains were not more accurate
FEWEST_CHAINS = 3  # side by side, if there are as many windows
LONGEST_WORD = 1.5  # seconds; in 36 minutes of speech it was 1.0, with a sentence left out 1.8
LONG_PAUSE = 1.0  # seconds between two words that end a segment after any word
LONGEST_SEGMENT = 10.0  # seconds; longer ones are cut within a sentence, for subtitles


def decode_windows(source: Source, windows: Sequence[SpokenWindow]) -> Generator[Any, Any, Heard]:
    """A job that decodes the windows of a recording, in the language and with the options of `source`.

    With condition_on_previous_text a recording of many windows is decoded in chains: each window of a chain has the
    text of those before it as prompt, and the chains run side by side.
    """
    size = 1
    if source.options.condition_on_previous_text:
        size = max(1, min(math.ceil(len(windows) / FEWEST_CHAINS), LONGEST_CHAIN))
    chains = (windows[first : first + size] for first in range(0, len(windows), size))
    heard = yield Gather((_decode_chain(source, chain) for chain in chains), max_jobs=source.options.batch_size)
    return Heard.joined(heard)


def _decode_chain(source: Source, windows: Sequence[SpokenWindow]) -> Generator[Any, Any, Heard]:
    """A job that decodes windows, each with the previous text as its prompt."""
    earlier = EarlierText(source.model, source.options)
    heard, num_dropped = Heard(), 0
    for window in windows:
        had_prompt = bool(earlier.prompt())
        decoded = yield from _decode_in_parts(source, window, earlier)
        for one in decoded:
            if one.segments:
                earlier.add(one.segments, one.temperature)
        num_dropped += sum(one.is_dropped for one in decoded)
        found = [segment for one in decoded for segment in one.segments]
        decode = partial(_decode_again, source, window, had_prompt)
        again, missed = yield from listen_again(uncovered(window.stretches, found), decode, DECODED_AGAIN)
        found = sorted([*found, *again], key=lambda segment: segment.start)
        found = yield from word_times(found, window.recording, window.limits, source.aligner, source.language)
        if not source.options.word_timestamps:
            found = [dataclasses.replace(each, words=None) for each in found]
        heard.segments.extend(found)
        heard.missed_speech.extend(missed)
        yield Found(found, window.kept[-1].end / SAMPLE_RATE)
    return dataclasses.replace(heard, num_dropped=num_dropped)


def _decode_again(
    source: Source, window: SpokenWindow, had_prompt: bool, stretch: Stretch
) -> Generator[Any, Any, list[Segment]]:
    """A job: the segments of a stretch of a window, without previous text; none if it was already decoded like that."""
    rest = window.part(stretch)
    if rest.spans == window.spans and not had_prompt:
        return []
    return [segment for one in (yield from _decode_in_parts(source, rest)) for segment in one.segments]


@dataclass(frozen=True)
class _DecodedSpeech:
    """The segments of a window, in the recording's time.

    timings: of its words, in the window's time. is_dropped: True if a threshold dropped its text.
    """

    segments: list[Segment] = field(default_factory=list)
    timings: list[WordTiming] = field(default_factory=list)
    temperature: float = 0.0
    avg_logprob: float = 0.0
    is_dropped: bool = False


def _decode_in_parts(
    source: Source, window: SpokenWindow, earlier: EarlierText | None = None, language: str | None = None
) -> Generator[Any, Any, list[_DecodedSpeech]]:
    """A job that decodes one window, in parts where its language changes or where its words leave out speech.

    earlier: the text before it. language: of the window if it is known, with ``multilingual``. Ends because a part has
    fewer spans than the window that it is cut from, and one span is never cut.
    """
    model, sound, whole = source.model, window.sound(), None
    decoded: list[_DecodedSpeech] = []
    heard = dataclasses.replace(
        source, waveform=sound, features=model.window_features(sound), language=language or source.language
    )
    if source.options.multilingual and language is None:
        found = yield from window_language(heard)
        heard = dataclasses.replace(heard, language=found.code)
        if found.is_certain:
            whole = yield from _decode_whole(heard, window, earlier)
        if whole is None or whole.avg_logprob < LIKELY:
            runs = yield from language_runs(
                model, found, window.spans, lambda run: window.of(run).sound(), lora=source.options.lora
            )
            for code, run in runs if len(runs) > 1 else ():
                decoded += yield from _decode_in_parts(source, window.of(run), language=code)
            if decoded:
                return decoded
            if runs[0][0] != found.code:
                heard, whole = dataclasses.replace(heard, language=runs[0][0]), None
    if whole is None:
        whole = yield from _decode_whole(heard, window, earlier)
    for part in _parts(window, whole.timings):
        decoded += yield from _decode_in_parts(source, part, language=heard.language)
    return decoded or [whole]


def _decode_whole(
    heard: Source, window: SpokenWindow, earlier: EarlierText | None
) -> Generator[Any, Any, _DecodedSpeech]:
    """A job that decodes one window. earlier: the text before it."""
    model, options = heard.model, heard.options
    untimed = dataclasses.replace(heard, options=dataclasses.replace(options, without_timestamps=True))
    previous = [] if earlier is None else earlier.prompt(heard.language)
    decoded = yield from decode_window(untimed, previous, window.prefix)
    if not decoded.text or decoded.is_silent(options):
        return _DecodedSpeech(is_dropped=bool(decoded.text))
    timings: list[WordTiming] = []
    if options.word_timestamps or (model.alignment_heads and not options.without_timestamps):
        text_tokens = model.tokenizer.text_tokens
        text = [token for token in decoded.tokens if token in text_tokens]  # a sample may include timestamps
        timings = yield from time_words(heard, text, decoded.context)
    seek = window.kept[0].start * model.fps // SAMPLE_RATE
    segment = whole_segment(heard, decoded, seek=seek, start=0.0, end=heard.seconds)
    cut = _cut_between_sentences(model, window, segment, timings, options)
    found = [window.timeline.restored(each) for each in cut]
    return _DecodedSpeech(found, timings, decoded.temperature, decoded.avg_logprob)


def _parts(window: SpokenWindow, timings: list[WordTiming]) -> list[SpokenWindow]:
    """Return the window, cut before the first span of speech that the words leave out; empty without such a span."""
    begins = [window.timeline.time(word.start, after_pause=True) for word in timings]
    for index, (start, end) in enumerate(window.spans):
        first, last = start / SAMPLE_RATE, end / SAMPLE_RATE
        times = [first, *(time for time in begins if first <= time <= last), last]
        if timings and len(window.spans) > 1 and max(b - a for a, b in pairwise(times)) > LONGEST_WORD:
            cut = index or 1
            return [window.of(range(cut)), window.of(range(cut, len(window.spans)))]
    return []


def _cut_between_sentences(
    model: SpeechModel, window: SpokenWindow, whole: Segment, timings: list[WordTiming], options: TranscriptionOptions
) -> list[Segment]:
    """Return a window's text, cut between sentences, in the window's time; one segment if it has no word times."""
    words = merge_punctuation(timings, options.prepend_punctuations, options.append_punctuations)
    if not words:
        return [whole]
    middles = [window.timeline.time((word.start + word.end) / 2, after_pause=True) for word in words]
    cut = [words] if options.without_timestamps else list(sentences(words, silence_between(window.spans, middles)))
    tokens = [[token for word in sentence for token in word.tokens] for sentence in cut]
    return place_words(
        [
            dataclasses.replace(
                whole,
                start=sentence[0].start,
                end=sentence[-1].end,
                tokens=own,
                text=model.tokenizer.decode(own),
                token_logprobs=logprobs,
            )
            for sentence, own, logprobs in zip(cut, tokens, _logprobs(model, whole, tokens), strict=True)
        ],
        timings,
        num_text_tokens=[len(own) for own in tokens],
        time_offset=0.0,
        last_speech_timestamp=0.0,
        prepend_punctuations=options.prepend_punctuations,
        append_punctuations=options.append_punctuations,
    )


def _logprobs(model: SpeechModel, whole: Segment, tokens: Sequence[Sequence[int]]) -> list[list[float] | None]:
    if whole.token_logprobs is None:
        return [None] * len(tokens)
    pairs = zip(whole.tokens, whole.token_logprobs, strict=True)
    of_text = iter([logprob for token, logprob in pairs if token in model.tokenizer.text_tokens])
    return [list(islice(of_text, len(own))) for own in tokens]


def sentences(words: Sequence[WordTiming], pauses: Sequence[float]) -> Iterator[Sequence[WordTiming]]:
    """Cut words at the end of each sentence that is followed by a pause, and at long pauses.

    words: in order, with their punctuation. pauses: seconds of silence after each word but the last. A mark without a
    pause does not end a sentence, because it may end an abbreviation. The parts of one word stay together.
    """
    begin = 0
    for index, pause in enumerate(pauses):
        ends = ends_sentence(words[index].word)
        if (pause >= LONG_PAUSE or (pause > 0 and ends)) and may_break(words[index].word, words[index + 1].word):
            yield from _short_enough(words[begin : index + 1], pauses[begin:index])
            begin = index + 1
    yield from _short_enough(words[begin:], pauses[begin:])


def _short_enough(words: Sequence[WordTiming], pauses: Sequence[float]) -> Iterator[Sequence[WordTiming]]:
    """Cut words at the longest pause, preferably in the middle half, until no part is over LONGEST_SEGMENT."""
    cuts = [index for index in range(len(pauses)) if may_break(words[index].word, words[index + 1].word)]
    if not cuts or words[-1].end - words[0].start <= LONGEST_SEGMENT:
        yield words
        return

    def merit(index: int) -> tuple[bool, float, float]:
        off_middle = abs(index + 1 - len(words) / 2)
        return off_middle <= len(words) / 4, pauses[index], -off_middle

    cut = max(cuts, key=merit)
    yield from _short_enough(words[: cut + 1], pauses[:cut])
    yield from _short_enough(words[cut + 1 :], pauses[cut + 1 :])
