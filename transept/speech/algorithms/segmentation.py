"""From a window's tokens to segments: the model's timestamps cut the window and set the start of the next one.

Sequential mode calls `cut_segments` and, after words are timed, `divided`, `cleared` and `audible`. Batched mode, which
cuts windows between sentences, begins with `whole_segment`.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from transept.speech.algorithms.decoding import LATEST_END, DecodedWindow, longest_text
from transept.speech.algorithms.source import Source, Window
from transept.speech.segments import AttendedWord, Segment, Word
from transept.speech.sentences import ends_sentence
from transept.speech.timing.turns import cut_between_words
from transept.speech.vad.spans import SAMPLE_RATE, Span

SHORT_WINDOW = 2.0  # seconds; in a window with so little audio, models repeat the last sentence
TOLERANCE = 0.5  # seconds by which a model's timestamps may miss a pause
SHORTEST_SOUND = 0.45  # seconds of a word's speech before a cut, below which the word is spoken after it


@dataclass(frozen=True)
class CutWindow:
    """A window's segments.

    next_start: frame at which the segments end. ends_in_silence: True if the tokens end with a single timestamp, after
    which there is silence. is_skipped: True if there are no segments, since the window is silent or a threshold dropped
    its text.
    """

    segments: list[Segment]
    next_start: int
    ends_in_silence: bool
    is_skipped: bool = False


def cut_segments(heard: Source, window: Window, decoded: DecodedWindow) -> CutWindow:
    """Cut a window between each two adjacent timestamps, as openai-whisper does.

        <|0.00|> one sentence<|2.40|><|2.40|> another<|5.00|><|6.00|> and the beginning of a
        |--------- segment ---------||------- segment -------||----- left out: decoded again from 5.00 on ----

    A window without such a pair is one segment. The segments' ids are 0; the loop over the recording numbers them
    later. heard: the window's audio.
    """
    model, tokenizer, tokens = heard.model, heard.model.tokenizer, decoded.tokens
    if decoded.is_silent(heard.options) or (tokenizer.control.no_speech is None and not decoded.text):
        return CutWindow([], window.end, ends_in_silence=True, is_skipped=True)
    offset = window.start / model.fps
    is_time = [tokenizer.is_timestamp(token) for token in tokens]
    cuts = [index for index in range(1, len(tokens)) if is_time[index - 1] and is_time[index]]
    ends_in_silence = is_time[-2:] == [False, True]
    step = model.spec.seconds_per_timestamp

    def position(token: int) -> int:
        assert tokenizer.control.first_timestamp is not None
        return token - tokenizer.control.first_timestamp

    whole = whole_segment(heard, decoded, seek=window.start, start=offset, end=offset)
    if not cuts:
        times = [position(token) for token, timed in zip(tokens, is_time, strict=True) if timed]
        duration = times[-1] * step if times and times[-1] else window.size / model.fps
        return CutWindow([dataclasses.replace(whole, end=offset + duration)], window.end, ends_in_silence)
    bounds = [0, *cuts, *([len(tokens)] if ends_in_silence else [])]
    segments = []
    for begin, end in pairwise(bounds):
        own, logprobs = tokens[begin:end], decoded.token_logprobs
        start, stop = offset + position(own[0]) * step, offset + position(own[-1]) * step
        segments.append(
            dataclasses.replace(
                whole,
                start=start,
                end=stop,
                text=tokenizer.decode(own),
                tokens=own,
                token_logprobs=None if logprobs is None else logprobs[begin:end],
            )
        )
    if ends_in_silence:
        return CutWindow(segments, window.end, ends_in_silence)
    frames = position(tokens[bounds[-1] - 1]) * round(step * model.fps)
    return CutWindow(segments, window.start + max(frames, 1), ends_in_silence)


def whole_segment(heard: Source, decoded: DecodedWindow, *, seek: int, start: float, end: float) -> Segment:
    """Return a window's text as one segment, with id 0. heard: the window. seek: frame. start, end: seconds."""
    return Segment(
        id=0,
        seek=seek,
        start=start,
        end=end,
        text=heard.model.tokenizer.decode(decoded.tokens),
        tokens=decoded.tokens,
        temperature=decoded.temperature,
        avg_logprob=decoded.avg_logprob,
        compression_ratio=decoded.compression_ratio,
        no_speech_prob=decoded.no_speech_prob,
        language=heard.language if heard.options.multilingual else None,
        token_logprobs=decoded.token_logprobs,
    )


def cleared(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments; those without text or length lose their tokens, words and text."""
    return [
        dataclasses.replace(
            segment,
            text="",
            tokens=[],
            words=None if segment.words is None else [],
            token_logprobs=None if segment.token_logprobs is None else [],
        )
        if segment.start == segment.end or not segment.text.strip()
        else segment
        for segment in segments
    ]


def divided(source: Source, segments: Iterable[Segment]) -> list[Segment]:
    """Divide segments between words where silence was cut out. Segments without words stay whole."""
    found: list[Segment] = []
    for segment in segments:
        if segment.words and source.cuts:
            words = after_silence(segment.words, source.cuts, source.speech or ())
            segment = dataclasses.replace(segment, start=max(segment.start, words[0].start), words=words)
        first = bisect_right(source.cuts, segment.start + TOLERANCE)
        if not segment.words or not any(cut < segment.end - TOLERANCE for cut in source.cuts[first : first + 1]):
            found.append(segment)
            continue
        parts = cut_between_words(
            segment, lambda start, end: bisect_right(source.cuts, (start + end) / 2), source.model.tokenizer.decode
        )
        for _, part in parts:
            end = max(part.end, part.start + source.model.spec.seconds_per_timestamp)
            found.append(dataclasses.replace(part, end=end))
    return found


def after_silence(words: Sequence[Word], cuts: Sequence[float], speech: Sequence[Span]) -> list[Word]:
    """Move first words of sentences out of the silence before a cut, to the speech after it.

    The decoder may attend to the silence before a sentence at the sentence's first word. cuts: of Source. speech:
    spans, in samples at SAMPLE_RATE.
    """
    spans = [(span.start / SAMPLE_RATE, span.end / SAMPLE_RATE) for span in speech]
    found = list(words)
    for index in reversed(range(len(words) - 1)):
        word, following = words[index], found[index + 1].start
        cut = next((cut for cut in cuts if cut > word.start), math.inf)
        begins = index == 0 or ends_sentence(words[index - 1].word)
        if not begins or cut > following + TOLERANCE or ends_sentence(word.word):
            continue
        spoken = sum(max(0.0, min(end, word.end) - max(start, word.start)) for start, end in spans if start < cut)
        if spoken < SHORTEST_SOUND or (isinstance(word, AttendedWord) and word.onset >= cut):
            start = min([following, *(begin for begin, _ in spans if begin >= cut)])
            word = dataclasses.replace(word, start=start, end=max(start, following))
            found[index] = dataclasses.replace(word, onset=start) if isinstance(word, AttendedWord) else word
    return found


def audible(source: Source, segments: Sequence[Segment], window: Window, clip: Window) -> list[Segment]:
    """Return a window's segments without text that does not fit before the audio's end. They are cleared already.

    clip: the audio; silence fills the rest of the model's window. A segment that ends more than LATEST_END after the
    clip is cut to the clip's end. After the clip's first window, this drops segments that begin after the clip, and
    text that is too long for the remaining audio, because models repeat the last sentence there.
    With ``multilingual`` segments end with the window, because another language may follow it.
    """
    fps, kept = source.model.fps, []
    if source.options.multilingual:
        stop = window.end / fps
        segments = [dataclasses.replace(each, end=min(each.end, stop)) for each in segments if each.start < stop]
    last, begin = clip.end / fps, window.start / fps
    for segment in segments:
        is_late = segment.end > last + LATEST_END
        room = last - (segment.start if is_late else begin)  # seconds
        is_doubtful = window.start > clip.start and (is_late or room < SHORT_WINDOW)
        if is_doubtful and (room <= 0 or len(segment.text.strip()) > longest_text(room)):
            continue
        kept.append(dataclasses.replace(segment, end=last) if is_late and segment.start < last else segment)
    return kept
