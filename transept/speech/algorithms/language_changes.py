"""Where the language changes within a window. Both modes ask, with the option ``multilingual``.

A model writes a window in one language: what is said in another it translates, garbles or leaves out. Asked for the
language of a window that holds two, it is in doubt; then each stretch between pauses is asked about, by itself.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from transept.core.jobs.job import Offload, Submit
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.decoding import DecodedWindow
from transept.speech.algorithms.language import Language, detected, language_request, window_language
from transept.speech.algorithms.source import Source, Window
from transept.speech.speech_model import SpeechModel
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import SAMPLE_RATE, Span, speech_spans

CERTAIN = 0.995  # probability; English and French by themselves are mostly above it, and with 3 s of another language
# at 0.50 to 0.95; but French that goes before Spanish is at 0.99
LIKELY = -0.3  # mean log probability of a window's tokens: -0.1 to -0.3, with some of another language -0.3 to -0.6
PAUSE = 0.3  # seconds; languages change where somebody pauses for so long
SHORTEST = 1.0  # seconds; less speech tells too little of its language
CHANGE = 2.0  # what a change costs, in units of log probability
LEAST = 1e-3  # probability that any language has, however sure the model is


def is_certain(language: Language) -> bool:
    """Whether a window's language leaves no doubt."""
    return (language.probability or 0.0) >= CERTAIN


def in_one_language(
    heard: Source, before: str | None, decode: Callable[[Source], Generator[Any, Any, DecodedWindow]]
) -> Generator[Any, Any, tuple[Source, DecodedWindow]]:
    """A job: a window up to where its language changes, in that language, and its text.

    before: the language of the window before it, if known. decode: a job that decodes a window in its language.
    """
    whole = yield from window_language(heard)
    heard = dataclasses.replace(heard, language=whole.code)
    decoded = (yield from decode(heard)) if is_certain(whole) else None
    if (decoded is None or decoded.avg_logprob < LIKELY) and heard.model.spec.sample_rate == SAMPLE_RATE:
        sound, per_frame = heard.waveform, SAMPLE_RATE // heard.model.fps  # samples
        spans = yield Offload(partial(spans_between_pauses, sound, heard.options.vad_options))
        runs = yield from language_runs(
            heard.model, whole, spans, lambda run: sound[spans[run.start].start : spans[run.stop - 1].end], before
        )
        code, first = runs[0]
        if first.stop < len(spans):
            pause = (spans[first.stop - 1].end + spans[first.stop].start) // 2
            heard, decoded = heard.window(Window(0, max(1, pause // per_frame))), None
        if code != whole.code:
            heard, decoded = dataclasses.replace(heard, language=code), None
    return heard, decoded or (yield from decode(heard))


def language_runs(
    model: SpeechModel,
    whole: Language,
    spans: Sequence[Span],
    sound_of: Callable[[range], Waveform],
    before: str | None = None,
) -> Generator[Any, Any, list[tuple[str, range]]]:
    """A job: the languages of a window, in order, each with the spans of speech that are in it.

    whole: that of all of the window. spans: where somebody speaks in it, rising. sound_of: what is heard of
    neighbouring spans, given their indices. before: what was spoken before the window, if known.
    """
    stretches = list(_between_pauses(spans))
    if len(stretches) < 2:
        return [(whole.code, range(len(spans)))]
    sounds = {stretch: sound_of(stretch) for stretch in stretches}
    asked = [stretch for stretch in stretches if len(sounds[stretch]) >= SHORTEST * SAMPLE_RATE]
    outputs = yield Submit([language_request(model, model.window_features(sounds[stretch])) for stretch in asked])
    heard = {stretch: detected(model, output).probabilities for stretch, output in zip(asked, outputs, strict=True)}
    codes = viterbi_path([heard.get(stretch, {}) for stretch in stretches], list(model.language_tokens), before)
    runs: list[tuple[str, range]] = []
    for code, stretch in zip(codes, stretches, strict=True):
        begin = runs.pop()[1].start if runs and runs[-1][0] == code else stretch.start
        runs.append((code, range(begin, stretch.stop)))
    return runs


def spans_between_pauses(waveform: Waveform, options: VadOptions) -> list[Span]:
    """Where somebody speaks in a window: stretches without a pause. waveform: float32 [samples] at 16 kHz."""
    options = dataclasses.replace(
        options, min_silence_duration_ms=PAUSE * 1000, max_speech_duration_s=math.inf, speech_pad_ms=0
    )
    return speech_spans(waveform, options)


def viterbi_path(
    probabilities: Sequence[Mapping[str, float]], languages: Sequence[str], before: str | None
) -> list[str]:
    """The most likely languages of stretches in a row (Viterbi 1967), where each change costs CHANGE.

    probabilities: of languages, by stretch; empty where nothing is known. before: what was spoken before them, if
    known.
    """
    scores = {code: 0.0 if before in (code, None) else -CHANGE for code in languages}
    ways: list[dict[str, str]] = []  # by stretch: the language before it, on the best way to each language
    for one in probabilities:
        best = max(scores, key=lambda code: scores[code])
        ways.append({code: code if scores[code] >= scores[best] - CHANGE else best for code in languages})
        scores = {code: scores[way] - CHANGE * (way != code) for code, way in ways[-1].items()}
        if one:
            scores = {code: score + math.log(max(one[code], LEAST)) for code, score in scores.items()}
    found = [max(scores, key=lambda code: scores[code])]
    for way in reversed(ways):
        found.insert(0, way[found[0]])
    return found[1:]


def _between_pauses(spans: Sequence[Span]) -> Iterator[range]:
    """The indices of the spans of each stretch of speech without a pause."""
    begin = 0
    for index, (one, other) in enumerate(pairwise(spans), 1):
        if other.start - one.end >= PAUSE * SAMPLE_RATE:
            yield range(begin, index)
            begin = index
    if spans:
        yield range(begin, len(spans))
