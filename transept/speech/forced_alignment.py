"""Forced alignment: the times of the words of a known text in a recording.

    transcribe ─▶ match the transcript's words with the text's ─▶ windows, each with its part of the text ─┐
      words of the known text, their times, in the lines or sentences of the text ◀─ cross-attention ◀─────┘

The transcript only assigns parts of the text to windows. Within a window, the model reads the known words, and its
cross-attention finds the time of each word.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import logging
import math
import re
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any, NamedTuple

from transept.core.jobs.job import Gather, Offload
from transept.core.request.limits import Limits
from transept.errors import MediaError, ParameterError, shown
from transept.multimodal.audio import audio_name
from transept.speech import recording
from transept.speech.algorithms.decoding import compression_ratio
from transept.speech.algorithms.source import Source, Window
from transept.speech.algorithms.window_words import add_words
from transept.speech.levelling import load_recording
from transept.speech.options import TranscriptionOptions
from transept.speech.recording import AudioInput, with_tracks
from transept.speech.segments import Segment
from transept.speech.sentences import sentence_ends
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.aligned import word_times
from transept.speech.timing.words import UNSPACED_LANGUAGES
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import SAMPLE_RATE, Span, speech_spans

logger = logging.getLogger(__name__)

SPEECH = VadOptions(min_silence_duration_ms=200, speech_pad_ms=30)  # words have no time outside of it
MARGIN = 1.0  # seconds of silence that a window keeps before its first word and after its last one
# A text with fewer of its words heard, and less likely ones, probably belongs to another recording. With tiny.en, texts
# of other recordings have at most 0.44 and -4.2, and texts with a tenth of their words wrong at least 0.57.
FEW_HEARD, UNLIKELY = 0.5, -3.0


class KnownWord(NamedTuple):
    """A word of the text, or a character in a language without blanks. start, end: its position in the text.

    unit: number of its line or sentence.
    """

    start: int
    end: int
    unit: int


class _Part(NamedTuple):
    """A window and its part of the text. start, end: seconds. words: of the text."""

    start: float
    end: float
    words: Sequence[KnownWord]


def align(
    model: SpeechModel, audio: AudioInput, text: str, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    """A job: the transcript of a known text. It transcribes the audio first, and emits that transcription's events.

    Each segment is a line of the text, or a sentence if the text has one line; its tokens are the text's. options: of
    the transcription. Raises MediaError for audio that cannot be read or has no words.
    """
    rate = model.spec.sample_rate
    loaded = yield Offload(partial(load_recording, limits, audio, rate, options))
    (waveform,) = loaded.waveforms
    options = dataclasses.replace(options, refine_word_times=options.refine_word_times and rate == SAMPLE_RATE)
    heard: Transcript = yield from recording.transcribe_waveform(model, waveform, options, loaded.warnings)
    spoken = [segment for segment in heard.segments if segment.words]
    if not spoken:
        reason = with_tracks(heard.reason, loaded.other_tracks)
        why = "" if reason is None else f" ({reason})"
        raise MediaError(f"no words were found in the recording, so the text cannot be aligned with it{why}")
    known = known_words(text, heard.language)
    features = yield Offload(partial(model.features, waveform))
    source = Source(model, options, features, language=heard.language)
    jobs = (
        _timed(source, text, part)
        for part in _parts(text, known, spoken, heard.language, model.chunk_frames(options) / model.fps, heard.duration)
    )
    timed = yield Gather(jobs)
    pieces = [piece for pieces in timed for piece in pieces]
    if rate == SAMPLE_RATE and not options.refine_word_times:  # of voice activity
        spans = yield Offload(partial(speech_spans, waveform, SPEECH))
        pieces = [(unit, _within_speech(segment, spans)) for unit, segment in pieces]
    within = (0.0, heard.duration)
    joined, language = _joined(pieces), heard.language
    # No limit for strayed attention, because these starts may be late.
    segments = yield from word_times(joined, waveform, within, source.aligner, language, strayed=math.inf)
    info = TranscriptionInfo(**{each.name: getattr(heard, each.name) for each in dataclasses.fields(TranscriptionInfo)})
    if warning := _of_another_text(text, known, spoken, joined, heard.language):
        logger.warning("%s is %s", audio_name(audio), warning)
        info = dataclasses.replace(info, warnings=[*info.warnings, warning])
    return Transcript.of(info, "".join(segment.text for segment in segments).strip(), segments)


def check_text(text: Any, limits: Limits) -> None:
    """Raise PromptError for text that is not Unicode or is too long, ParameterError for other types and empty text."""
    if not isinstance(text, str):
        raise ParameterError(f"the text to align must be text, not {shown(text)}", param="text", value=text)
    limits.check_text(text)
    if not text.strip():
        raise ParameterError("the text to align has no words", param="text", value=text)


def _parts(
    text: str,
    known: Sequence[KnownWord],
    spoken: Sequence[Segment],
    language: str,
    longest: float,
    duration: float,
) -> list[_Part]:
    """Group adjacent segments to windows of up to `longest` seconds, each with its words of the text."""
    heard = _heard(spoken, language)
    first_of_word = [0, *itertools.accumulate(map(len, heard))]
    places = matching_places([text[word.start : word.end] for word in known], [each for word in heard for each in word])
    groups: list[list[Segment]] = []
    for segment in spoken:
        if groups and segment.end - groups[-1][0].start <= longest - 2 * MARGIN:
            groups[-1].append(segment)
        else:
            groups.append([segment])
    parts = []
    num_words, begin, cut = 0, 0, 0.0
    for index, group in enumerate(groups):
        num_words += sum(len(segment.words or ()) for segment in group)
        end = places[first_of_word[num_words]]
        following = groups[index + 1][0].start if index + 1 < len(groups) else duration
        start, cut = max(cut, group[0].start - MARGIN), (group[-1].end + following) / 2
        stop = min(cut if index + 1 < len(groups) else duration, group[-1].end + MARGIN, start + longest)
        parts.append(_Part(start, stop, known[begin:end]))
        begin = end
    return [part for part in parts if part.words]


def _heard(spoken: Sequence[Segment], language: str) -> list[list[str]]:
    """Return the parts of each transcribed word that are matched: itself, or its characters without blanks between."""
    said = [word.word.strip() for segment in spoken for word in segment.words or ()]
    return [list(word) if language in UNSPACED_LANGUAGES else [word] for word in said]


def _of_another_text(
    text: str, known: Sequence[KnownWord], spoken: Sequence[Segment], timed: Sequence[Segment], language: str
) -> str | None:
    """Return a warning if the text probably belongs to another recording. timed: the aligned segments."""
    heard = [part for word in _heard(spoken, language) for part in word]
    num_heard = sum(block.size for block in _matches([text[word.start : word.end] for word in known], heard))
    logprobs = [math.log(max(word.probability, 1e-10)) for segment in timed for word in segment.words or ()]
    if not logprobs or num_heard >= FEW_HEARD * len(known) or sum(logprobs) / len(logprobs) >= UNLIKELY:
        return None
    words = "characters" if language in UNSPACED_LANGUAGES else "words"
    return (
        f"probably of another text: {num_heard} of the {len(known)} given {words} were heard, and the others are "
        "unlikely; times of words that are not spoken mean nothing"
    )


def _timed(source: Source, text: str, part: _Part) -> Generator[Any, Any, list[tuple[int, Segment]]]:
    """A job: the timed parts of lines or sentences in a window, each with the number of its line or sentence."""
    model = source.model
    first, last = round(part.start * model.fps), round(part.end * model.fps)
    pieces = []
    for unit, words in itertools.groupby(part.words, lambda word: word.unit):
        own = list(words)
        said = re.sub(r"\s+", " ", text[own[0].start : own[-1].end])
        pieces.append((unit, model.tokenizer.encode_prompt(said)))
    untimed = [
        Segment(
            id=0,
            seek=first,
            start=part.start,
            end=part.end,
            text=model.tokenizer.decode(tokens),
            tokens=tokens,
            temperature=0.0,
            avg_logprob=0.0,
            compression_ratio=0.0,
            no_speech_prob=0.0,
        )
        for _, tokens in pieces
    ]
    heard = source.window(Window(first, last - first))
    timed = yield from add_words(heard, untimed, time_offset=first / model.fps, last_speech=part.start)
    return [(unit, segment) for (unit, _), segment in zip(pieces, timed, strict=True)]


def _within_speech(segment: Segment, spans: Sequence[Span]) -> Segment:
    """Return the segment without pauses: attention has no token for silence, so it adds pauses to adjacent words."""
    words = []
    for word in segment.words or ():
        begin, end = round(word.start * SAMPLE_RATE), round(word.end * SAMPLE_RATE)
        spoken = max(spans, key=lambda span: min(span.end, end) - max(span.start, begin), default=Span(begin, end))
        if spoken.start < end and begin < spoken.end:
            start, stop = max(spoken.start, begin) / SAMPLE_RATE, min(spoken.end, end) / SAMPLE_RATE
            word = dataclasses.replace(word, start=round(start, 2), end=round(stop, 2))
        words.append(word)
    if not words:
        return segment
    return dataclasses.replace(segment, start=words[0].start, end=words[-1].end, words=words)


def _joined(pieces: Sequence[tuple[int, Segment]]) -> list[Segment]:
    """Join the parts of each line or sentence to one segment, numbered from 0."""
    segments: list[Segment] = []
    for _, own in itertools.groupby(pieces, lambda piece: piece[0]):
        parts = [segment for _, segment in own]
        words = [word for part in parts for word in part.words or ()]
        said = "".join(part.text for part in parts)
        logprobs = [math.log(max(word.probability, 1e-10)) for word in words]
        segments.append(
            dataclasses.replace(
                parts[0],
                id=len(segments),
                end=parts[-1].end,
                text=said,
                tokens=[token for part in parts for token in part.tokens],
                words=words,
                avg_logprob=sum(logprobs) / len(logprobs) if logprobs else 0.0,
                compression_ratio=compression_ratio(said),
            )
        )
    return segments


def known_words(text: str, language: str) -> list[KnownWord]:
    """Return the words of a text in order, each with its unit: a line, or a sentence if the text has one line."""
    pattern = re.compile(r"\S" if language in UNSPACED_LANGUAGES else r"\S+")
    return [
        KnownWord(start + found.start(), start + found.end(), unit)
        for unit, (start, end) in enumerate(_units(text))
        for found in pattern.finditer(text[start:end])
    ]


def matching_places(known: Sequence[str], heard: Sequence[str]) -> list[int]:
    """Return the number of known words before each transcribed word, and at the end: ascending, from 0 to all.

    Words match without case and punctuation. Between matching words, the numbers are interpolated.
    """
    # The first word of a matching run, and its end, in the transcript and the known text.
    corners = [(0, 0)]
    for block in _matches(known, heard):  # the last one is the end of both
        corners += [(block.b, block.a), (block.b + block.size, block.a + block.size)]
    corners.append((len(heard), len(known)))
    begins = [heard_index for heard_index, _ in corners]
    places = []
    for index in range(len(heard) + 1):
        last = min(bisect_right(begins, index), len(corners) - 1)
        (before, known_before), (after, known_after) = corners[last - 1], corners[last]
        share = (index - before) / (after - before) if after > before else 1.0
        places.append(known_before + round(min(share, 1.0) * (known_after - known_before)))
    return places


def _matches(known: Sequence[str], heard: Sequence[str]) -> list[difflib.Match]:
    """Return the matching runs of known and transcribed words, in order."""
    matcher = difflib.SequenceMatcher(None, [_key(word) for word in known], [_key(word) for word in heard], False)
    return matcher.get_matching_blocks()


def _units(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each line that is not blank, or of each sentence of a single line."""
    lines = [(found.start(), found.end()) for found in re.finditer(r"[^\r\n]*\S[^\r\n]*", text)]
    if len(lines) != 1:
        return lines
    start, end = lines[0]
    borders = [start, *(start + place for place in sentence_ends(text[start:end])), end]
    return [(one, other) for one, other in itertools.pairwise(borders) if text[one:other].strip()]


def _key(word: str) -> str:
    letters = "".join(filter(str.isalnum, word.casefold()))
    return letters or word
