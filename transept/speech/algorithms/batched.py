"""Batched mode: windows of what is spoken in a recording are decoded beside each other.

The windows of one recording and of many share the engine's batch; each has its own thresholds, its own fallback and,
where that is asked for, its own language. `transept.speech.recording` calls `decode_windows`, with the windows of
`spoken_windows`.

A window is decoded without timestamps: a model that writes them sometimes ends a window before its speech ends, which
only a next window that begins there can mend. Where its words lie is found afterwards, from cross-attention, and it is
cut into segments between sentences. Where no word begins for long although someone speaks, the model has left something
out, as it does with a sentence that it has just read: then the window is decoded again, in two parts, without the text
before it, and so is a part. What no segment covers after that is heard once more by itself. With ``multilingual`` a
window is cut where its language changes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Gather
from transept.speech.algorithms.coverage import DECODED_AGAIN, Heard, uncovered
from transept.speech.algorithms.decoding import DecodedWindow, decode_window
from transept.speech.algorithms.language import window_language
from transept.speech.algorithms.language_changes import LIKELY, is_certain, language_runs
from transept.speech.algorithms.prompt import EarlierText
from transept.speech.algorithms.segmentation import whole_segment
from transept.speech.algorithms.silence import SpokenWindow
from transept.speech.algorithms.window_words import time_words
from transept.speech.events import Found
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.sentences import sentences
from transept.speech.timing.words import WordTiming, merge_punctuation, place_words
from transept.speech.vad.spans import SAMPLE_RATE, silence_between

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_CHAIN = 4  # windows; longer ones were no more accurate
FEWEST_CHAINS = 3  # beside each other, where there are as many windows
LONGEST_WORD = 1.5  # seconds; in 36 minutes of speech it was 1.0, with a sentence left out 1.8


def decode_windows(
    model: SpeechModel, windows: Sequence[SpokenWindow], language: str, options: TranscriptionOptions
) -> Generator[Any, Any, Heard]:
    """A job: what is said in a recording. language: code.

    With condition_on_previous_text a recording of many windows is decoded in chains: each window of a chain has the
    text of those before it as prompt, and the chains run beside each other.
    """
    size = 1
    if options.condition_on_previous_text:
        size = max(1, min(math.ceil(len(windows) / FEWEST_CHAINS), LONGEST_CHAIN))
    chains = (windows[first : first + size] for first in range(0, len(windows), size))
    jobs = (_chain(model, chain, language, options) for chain in chains)
    heard = yield Gather(jobs, max_jobs=options.batch_size)
    segments = [segment for of_chain in heard for segment in of_chain.segments]
    missed = [stretch for of_chain in heard for stretch in of_chain.missed_speech]
    num_dropped = sum(of_chain.num_dropped for of_chain in heard)
    return Heard(
        [dataclasses.replace(segment, id=index) for index, segment in enumerate(segments)], missed, num_dropped
    )


def _chain(
    model: SpeechModel, windows: Sequence[SpokenWindow], language: str, options: TranscriptionOptions
) -> Generator[Any, Any, Heard]:
    """A job: what is said in windows of which each has the text before it as prompt."""
    earlier = EarlierText(model, options)
    heard, num_dropped = Heard(), 0
    given = None if options.multilingual else language
    for window in windows:
        had_prompt = bool(earlier.prompt())
        decoded = yield from _decoded_in_parts(model, window, given, options, earlier)
        for one in decoded:
            if one.segments:
                earlier.add(one.segments, one.temperature)
        num_dropped += sum(one.is_dropped for one in decoded)
        found = [segment for one in decoded for segment in one.segments]
        for stretch in uncovered(window.stretches, found, DECODED_AGAIN):
            rest = window.part(stretch)
            if rest.spans != window.spans or had_prompt:  # else it was heard just so
                again = yield from _decoded_in_parts(model, rest, given, options, None)
                found += [segment for one in again for segment in one.segments]
                found.sort(key=lambda segment: segment.start)
        heard.segments.extend(found)
        heard.missed_speech.extend(uncovered(window.stretches, found))
        yield Found(found, window.kept[-1].end / SAMPLE_RATE)
    return dataclasses.replace(heard, num_dropped=num_dropped)


@dataclass(frozen=True)
class _DecodedSpeech:
    """Return the segments of a window, in the recording's time.

    timings: of its words, in the window's time. is_dropped: True if a threshold dropped its text.
    """

    segments: list[Segment] = field(default_factory=list)
    timings: list[WordTiming] = field(default_factory=list)
    temperature: float = 0.0
    avg_logprob: float = 0.0
    is_dropped: bool = False


def _decoded_in_parts(
    model: SpeechModel,
    window: SpokenWindow,
    language: str | None,
    options: TranscriptionOptions,
    earlier: EarlierText | None,
) -> Generator[Any, Any, list[_DecodedSpeech]]:
    """A job: what one window says, cut where its language changes, and again as long as words leave speech out.

    language: None: detected. earlier: the text before it. Ends because a part has fewer spans than what it is cut from,
    and one span is never cut.
    """
    features, whole = model.window_features(window.sound()), None
    decoded: list[_DecodedSpeech] = []

    def previous(code: str) -> list[int]:
        return [] if earlier is None else earlier.prompt(code if options.multilingual else None)

    if language is None:
        found = yield from window_language(model, features, options)
        language = found.code
        if is_certain(found):
            whole = yield from _decoded(model, window, features, language, options, previous(language))
        if whole is None or whole.avg_logprob < LIKELY:
            runs = yield from language_runs(model, found, window.spans, lambda run: window.of(run).sound())
            for code, run in runs if len(runs) > 1 else ():
                decoded += yield from _decoded_in_parts(model, window.of(run), code, options, None)
            if decoded:
                return decoded
            if runs[0][0] != language:
                language, whole = runs[0][0], None
    if whole is None:
        whole = yield from _decoded(model, window, features, language, options, previous(language))
    for part in _parts(window, whole.timings):
        decoded += yield from _decoded_in_parts(model, part, language, options, None)
    return decoded or [whole]


def _decoded(
    model: SpeechModel,
    window: SpokenWindow,
    features: Tensor,
    language: str,
    options: TranscriptionOptions,
    previous: list[int],
) -> Generator[Any, Any, _DecodedSpeech]:
    """A job: what one window says. features: of its sound. language: code. previous: tokens of the text before it."""
    untimed = dataclasses.replace(options, without_timestamps=True)
    decoded = yield from decode_window(
        model, features, untimed, language=language, previous_tokens=previous, prefix=window.prefix
    )
    if not decoded.text or decoded.is_silent(options):
        return _DecodedSpeech(is_dropped=bool(decoded.text))
    timings = yield from _timings(model, features, decoded, language, options)
    segment = whole_segment(
        model,
        decoded,
        seek=window.kept[0].start * model.fps // SAMPLE_RATE,
        start=0.0,
        end=features.shape[1] / model.fps,
        language=language if options.multilingual else None,
    )
    cut = _cut_between_sentences(model, window, segment, timings, options)
    found = [window.timeline.restored(each) for each in cut]
    if not options.word_timestamps:
        found = [dataclasses.replace(each, words=None) for each in found]
    return _DecodedSpeech(found, timings, decoded.temperature, decoded.avg_logprob)


def _timings(
    model: SpeechModel, features: Tensor, decoded: DecodedWindow, language: str, options: TranscriptionOptions
) -> Generator[Any, Any, list[WordTiming]]:
    """A job: the words of a window; none where nobody asks for times or the model cannot tell them."""
    if not options.word_timestamps and (options.without_timestamps or not model.alignment_heads):
        return []
    text_tokens = model.tokenizer.text_tokens
    text = [token for token in decoded.tokens if token in text_tokens]  # a draw may hold timestamps, too
    return (yield from time_words(model, features, text, options, language=language, context=decoded.context))


def _parts(window: SpokenWindow, timings: list[WordTiming]) -> list[SpokenWindow]:
    """The window cut before the first stretch of speech of which the words leave something out; empty if none does."""
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
    """A window's text cut between sentences, in the window's time; one segment where no words are known."""
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
    """Those of a window's text tokens, cut as the tokens are."""
    if whole.token_logprobs is None:
        return [None] * len(tokens)
    pairs = zip(whole.tokens, whole.token_logprobs, strict=True)
    of_text = iter([logprob for token, logprob in pairs if token in model.tokenizer.text_tokens])
    return [list(islice(of_text, len(own))) for own in tokens]
