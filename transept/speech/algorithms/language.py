"""The language of a recording or a window, and the places where the language changes within a window.

One decoder step over a window chooses among the language tokens; the encoder's work is shared with the window's
decoding. In a clip of few words that step is often wrong, so a language in doubt is compared by the text that the model
writes in it. Both modes call `in_one_language` or `language_runs` with the option ``multilingual``: a model writes a
window in one language, and translates, garbles or leaves out speech in another. If it is unsure of a window's language,
each stretch between pauses is detected on its own.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Gather, Offload, Submit
from transept.core.request.sampling_params import SamplingParams
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.decoding import DecodedWindow, decode_window, is_plausible
from transept.speech.algorithms.source import Source, Window
from transept.speech.options import SEQUENTIAL
from transept.speech.speech_model import SpeechModel
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import SAMPLE_RATE, Span, speech_spans

if TYPE_CHECKING:
    from torch import Tensor

    from transept.core.outputs import RequestOutput
    from transept.core.request.prompts import Request

# Probability. A window in only English or only French is mostly above it; one with 3 s of another language is at
# 0.50 to 0.95, but French before Spanish is at 0.99.
CERTAIN = 0.995
LIKELY = -0.3  # mean log probability of a window's tokens: -0.1 to -0.3, with some of another language -0.3 to -0.6
PAUSE = 0.3  # seconds; languages change only at pauses of this length
SHORTEST = 1.0  # seconds; shorter speech says too little about its language
CHANGE = 2.0  # cost of a change, in units of log probability
DOUBTFUL = 0.95  # probability of a language; the text of a less likely one is compared with its rivals' texts
RIVAL = 0.02  # lowest probability of a rival
MOST_RIVALS = 6  # languages whose texts are compared
MARGIN = 1.0  # by which a rival's log probability must exceed that of the first language
SHORT_TEXT = 0.5  # of the median number of tokens; shorter texts are ignored, as models may end early in a wrong one
LEAST = 1e-3  # lowest probability of any language, however certain the model is


@dataclass(frozen=True)
class Language:
    """The language of a recording or of a window.

    code: such as ``"en"``. probability: None if it was not detected. probabilities: of all languages, by code.
    """

    code: str
    probability: float | None = None
    probabilities: dict[str, float] = field(default_factory=dict)

    @property
    def is_certain(self) -> bool:
        """True if the language of a window is beyond doubt."""
        return (self.probability or 0.0) >= CERTAIN


def recording_language(source: Source) -> Generator[Any, Any, Language]:
    """A job: the language that the user named, or the one detected from the recording's first windows.

    Detection stops at the first window above language_detection_threshold. Otherwise, the language of most windows is
    used. For a window whose language is in doubt, the text also counts, except in sequential mode or with
    multilingual.
    """
    model, options = source.model, source.options
    if options.language is not None or not model.detects:
        return Language(model.language_code(options.language) or model.undetected_language)
    found: list[Language] = []
    num_frames = min(source.num_frames, options.language_detection_segments * source.chunk)
    for start in range(0, num_frames, source.chunk):
        heard = source.window(Window(start, source.chunk))
        language = yield from window_language(heard)
        if options.mode != SEQUENTIAL and not options.multilingual:
            language = yield from _by_text(heard, language)
        if (language.probability or 0.0) > options.language_detection_threshold:
            return language
        found.append(language)
    if not found:  # a recording of less than a frame
        return Language(next(iter(model.language_tokens)))
    ((code, _),) = Counter(language.code for language in found).most_common(1)
    return max((each for each in found if each.code == code), key=lambda each: each.probability or 0.0)


def _by_text(heard: Source, found: Language) -> Generator[Any, Any, Language]:
    """A job: choose among the likely languages of a window by the text that the model decodes in each.

    found: the language from the decoder step. It is returned unchanged if it is not in doubt; otherwise the language
    with the highest joint probability of language and text is returned. Texts are decoded greedily, and without
    timestamps, whose probabilities do not depend on the language.
    """
    model = heard.model
    ranked = sorted(found.probabilities.items(), key=lambda each: -each[1])[:MOST_RIVALS]
    rivals = {code: probability for code, probability in ranked if probability >= RIVAL}
    if len(rivals) < 2 or rivals[found.code] >= DOUBTFUL:
        return found
    spoken = dataclasses.replace(
        heard.options,
        task="transcribe",
        target_language=None,
        temperature=0.0,
        beam_size=1,
        without_timestamps=True,
    )
    jobs = (decode_window(dataclasses.replace(heard, language=code, options=spoken)) for code in rivals)
    texts: list[DecodedWindow] = yield Gather(jobs)
    length = statistics.median(len(text.tokens) for text in texts)
    scores = {
        code: math.log(rivals[code]) + text.avg_logprob * (len(text.tokens) + 1)
        for code, text in zip(rivals, texts, strict=True)
        if len(text.tokens) >= SHORT_TEXT * length
        and is_plausible(model.tokenizer, model.spec, text.tokens, text.text, heard.seconds)
    }
    if found.code in scores:
        scores[found.code] += MARGIN
    best = max(scores, key=lambda code: scores[code], default=found.code)
    return dataclasses.replace(found, code=best, probability=found.probabilities[best])


def window_language(heard: Source) -> Generator[Any, Any, Language]:
    """A job: the most likely language of one window.

    With encoder_context the encoder reads a part of the window, and the whole window if the result is in doubt.
    """
    model, features, options = heard.model, heard.features, heard.options
    context = model.short_context(features, options)
    (output,) = yield Submit([language_request(model, features, context, options.lora)])
    found = detected(model, output)
    if context is not None and (found.probability or 0.0) <= options.language_detection_threshold:
        (output,) = yield Submit([language_request(model, features, lora=options.lora)])
        found = detected(model, output)
    return found


def language_request(
    model: SpeechModel, features: Tensor, context: int | None = None, lora: str | None = None
) -> Request:
    """Return the request for the language of a window, of a model that detects languages.

    features: [channels, up to window_frames]. context: frames to encode; None: the whole window. lora: see Request.
    """
    params = SamplingParams(
        temperature=0.0,
        max_tokens=1,
        allowed_token_ids=tuple(model.language_tokens.values()),
        suppress_tokens=(),
        begin_suppress_tokens=(),
        logprobs=len(model.language_tokens),
    )
    return model.request(features, model.ask("language_prompt", model.view), params, context, lora)


def detected(model: SpeechModel, output: RequestOutput) -> Language:
    """Return the language that a `language_request` found."""
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None  # the request asks for them
    probabilities = {code: math.exp(logprobs[0][token]) for code, token in model.language_tokens.items()}
    code = max(probabilities, key=lambda each: probabilities[each])
    return Language(code, probabilities[code], probabilities)


def in_one_language(
    heard: Source, before: str | None, decode: Callable[[Source], Generator[Any, Any, DecodedWindow]]
) -> Generator[Any, Any, tuple[Source, DecodedWindow]]:
    """A job: a window up to the first change of language, in its language, and its text.

    before: the language of the previous window, if known. decode: makes the job that decodes a window in its language.
    """
    whole = yield from window_language(heard)
    heard = dataclasses.replace(heard, language=whole.code)
    decoded = (yield from decode(heard)) if whole.is_certain else None
    if (decoded is None or decoded.avg_logprob < LIKELY) and heard.model.spec.sample_rate == SAMPLE_RATE:
        sound, per_frame = heard.waveform, SAMPLE_RATE // heard.model.fps  # samples
        spans = yield Offload(partial(spans_between_pauses, sound, heard.options.vad_options))
        runs = yield from language_runs(
            heard.model,
            whole,
            spans,
            lambda run: sound[spans[run.start].start : spans[run.stop - 1].end],
            before,
            heard.options.lora,
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
    lora: str | None = None,
) -> Generator[Any, Any, list[tuple[str, range]]]:
    """A job: the languages of a window, in order, each with the indices of the spans of speech in it.

    whole: the language of the whole window. spans: its speech, ascending. sound_of: returns the audio of neighbouring
    spans, by their indices. before: the language spoken before the window, if known. lora: see Request.
    """
    stretches = list(_between_pauses(spans))
    if len(stretches) < 2:
        return [(whole.code, range(len(spans)))]
    sounds = {stretch: sound_of(stretch) for stretch in stretches}
    asked = [stretch for stretch in stretches if len(sounds[stretch]) >= SHORTEST * SAMPLE_RATE]
    features = [model.window_features(sounds[stretch]) for stretch in asked]
    outputs = yield Submit([language_request(model, each, lora=lora) for each in features])
    heard = {stretch: detected(model, output).probabilities for stretch, output in zip(asked, outputs, strict=True)}
    codes = viterbi_path([heard.get(stretch, {}) for stretch in stretches], list(model.language_tokens), before)
    runs: list[tuple[str, range]] = []
    for code, stretch in zip(codes, stretches, strict=True):
        begin = runs.pop()[1].start if runs and runs[-1][0] == code else stretch.start
        runs.append((code, range(begin, stretch.stop)))
    return runs


def spans_between_pauses(waveform: Waveform, options: VadOptions) -> list[Span]:
    """Return the speech of a window, divided at pauses. waveform: float32 [samples] at 16 kHz."""
    options = dataclasses.replace(
        options, min_silence_duration_ms=PAUSE * 1000, max_speech_duration_s=math.inf, speech_pad_ms=0
    )
    return speech_spans(waveform, options)


def viterbi_path(
    probabilities: Sequence[Mapping[str, float]], languages: Sequence[str], before: str | None
) -> list[str]:
    """Return the most likely languages of consecutive stretches (Viterbi 1967), where each change costs CHANGE.

    probabilities: of languages, by stretch; empty if unknown. before: the language spoken before them, if known.
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
    """Yield the indices of the spans of each stretch of speech without a pause."""
    begin = 0
    for index, (one, other) in enumerate(pairwise(spans), 1):
        if other.start - one.end >= PAUSE * SAMPLE_RATE:
            yield range(begin, index)
            begin = index
    if spans:
        yield range(begin, len(spans))
