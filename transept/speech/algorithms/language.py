"""Which language a recording is in: one decoder step over a window, whose only choice is among the language tokens.

The encoder's work is shared with the decoding of the same window.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Submit
from transept.core.request.sampling_params import SamplingParams
from transept.speech.algorithms.source import Source, Window
from transept.speech.speech_model import SpeechModel

if TYPE_CHECKING:
    from torch import Tensor

    from transept.core.outputs import RequestOutput
    from transept.core.request.prompts import Request


@dataclass(frozen=True)
class Language:
    """The language of a recording or of a window.

    code: such as ``"en"``. probability: None where it was not detected. probabilities: of all languages, by code.
    """

    code: str
    probability: float | None = None
    probabilities: dict[str, float] = field(default_factory=dict)


def recording_language(source: Source) -> Generator[Any, Any, Language]:
    """A job: the language that the user named, or else the recording's, from its first windows.

    Of several windows the first that is surer than
    language_detection_threshold decides, or else the language that most of them are in.
    """
    model, options = source.model, source.options
    if options.language is not None or not model.detects:
        return Language(model.language_code(options.language) or model.undetected_language)
    detected: list[Language] = []
    num_frames = min(source.num_frames, options.language_detection_segments * source.chunk)
    for start in range(0, num_frames, source.chunk):
        language = yield from window_language(source.window(Window(start, source.chunk)))
        if (language.probability or 0.0) > options.language_detection_threshold:
            return language
        detected.append(language)
    if not detected:  # a recording of less than a frame
        return Language(next(iter(model.language_tokens)))
    ((code, _),) = Counter(language.code for language in detected).most_common(1)
    return max((each for each in detected if each.code == code), key=lambda each: each.probability or 0.0)


def window_language(heard: Source) -> Generator[Any, Any, Language]:
    """A job: the most likely language of one window.

    With encoder_context the encoder reads a part of the window, and all of it where that leaves doubt.
    """
    model, features, options = heard.model, heard.features, heard.options
    context = model.short_context(features, options)
    (output,) = yield Submit([language_request(model, features, context)])
    found = detected(model, output)
    if context is not None and (found.probability or 0.0) <= options.language_detection_threshold:
        (output,) = yield Submit([language_request(model, features)])
        found = detected(model, output)
    return found


def language_request(model: SpeechModel, features: Tensor, context: int | None = None) -> Request:
    """Asks for the language of a window. features: [channels, up to window_frames]. context: frames to encode."""
    params = SamplingParams(
        temperature=0.0,
        max_tokens=1,
        allowed_token_ids=tuple(model.language_tokens.values()),
        suppress_tokens=(),
        begin_suppress_tokens=(),
        logprobs=len(model.language_tokens),
    )
    return model.request(features, model.ask("language_prompt", model.view), params, context)  # of a model that detects


def detected(model: SpeechModel, output: RequestOutput) -> Language:
    """What a `language_request` found."""
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None  # which the request asks for
    probabilities = {code: math.exp(logprobs[0][token]) for code, token in model.language_tokens.items()}
    code = max(probabilities, key=lambda each: probabilities[each])
    return Language(code, probabilities[code], probabilities)
