"""Words for a decoded window: one more request over the same encoder input, whose decoder prompt is the finished text.

Sequential mode calls `add_words`, batched mode `time_words`; the times are made in `timing.words`. A text that
fills the decoder's positions leaves none for the tokens around it: then there are two requests, with the text's begin
and with its end.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from transept.core.jobs.job import Submit
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.prompts import Request
from transept.core.request.sampling_params import SamplingParams
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.words import WordTiming, place_words, token_times, word_timings

if TYPE_CHECKING:
    from torch import Tensor


def add_words(
    model: SpeechModel,
    features: Tensor,
    segments: Sequence[Segment],
    options: TranscriptionOptions,
    *,
    language: str,
    time_offset: float,
    last_speech: float,
    context: int | None = None,
) -> Generator[Any, Any, list[Segment]]:
    """A job: the segments of one window with their words, and with start and end as the words say.

    features: of the window, [channels, up to window_frames]. language: code. time_offset, last_speech: seconds at which
    the window begins, and at which the last word before it ends. context: of its DecodedWindow.
    """
    texts = [[token for token in segment.tokens if token in model.tokenizer.text_tokens] for segment in segments]
    text = [token for tokens in texts for token in tokens]
    timings = yield from time_words(model, features, text, options, language=language, context=context)
    return place_words(
        segments,
        timings,
        num_text_tokens=[len(tokens) for tokens in texts],
        time_offset=time_offset,
        last_speech_timestamp=last_speech,
        prepend_punctuations=options.prepend_punctuations,
        append_punctuations=options.append_punctuations,
    )


def time_words(
    model: SpeechModel,
    features: Tensor,
    text: Sequence[int],
    options: TranscriptionOptions,
    *,
    language: str,
    context: int | None = None,
) -> Generator[Any, Any, list[WordTiming]]:
    """A job: the words of one window's text with their times, and with their probabilities if those are asked for.

    features: of the window, [channels, up to window_frames]. text: tokens, without timestamps. language: code.
    context: of its DecodedWindow.
    Without word_timestamps every probability is 1, for which nothing is computed.

    Of a text that is too long for one request, the last tokens are timed by a second one, whose decoder prompt leaves
    out the text's begin instead of its end. They never begin before those of the first.
    """
    if not text:
        return []
    opening = model.opening_tokens(language, options, timestamps=False)
    room = model.max_positions - len(opening) - 2  # beside the end of the text and the token that a request gives
    starts = range(0, len(text), room)
    begins = [max(0, min(start, len(text) - room)) for start in starts]
    parts = [text[begin : begin + room] for begin in begins]
    outputs = yield Submit([_timing_request(model, features, opening, part, options, context) for part in parts])
    times, logprobs = np.empty(0), [0.0] * len(text)
    for start, begin, part, output in zip(starts, begins, parts, outputs, strict=True):
        weights = output.prompt_probe.cross_attention
        part_times = token_times(
            weights,
            len(part),
            num_frames=features.shape[1],
            frames_per_position=-(-(context or model.window_frames) // weights.shape[-1]),
            frames_per_second=model.fps,
        )
        times = np.append(times[:start], part_times[start - begin :])
        if options.word_timestamps:
            logprobs[start:] = output.prompt_probe.logprobs[start - begin :]
    return word_timings(
        text,
        logprobs,
        np.maximum.accumulate(times),
        tokenizer=model.tokenizer.tokenizer,
        language=language if model.languages else None,
    )


def _timing_request(
    model: SpeechModel,
    features: Tensor,
    opening: Sequence[int],
    text: Sequence[int],
    options: TranscriptionOptions,
    context: int | None,
) -> Request:
    """Read where the heads look at each token of a text, and its log probability if word_timestamps asks for it."""
    first = len(opening) - 1  # position after which the first text token comes
    probe = PromptProbe(
        logprobs=tuple((first + index, token) for index, token in enumerate(text)) if options.word_timestamps else (),
        vocab_limit=model.tokenizer.text_range.stop,
        beyond_limit=model.tokenizer.control.added_text,
        cross_attention_heads=model.alignment_heads,
    )
    params = SamplingParams(temperature=0.0, num_beams=1, max_tokens=1, prompt_probe=probe, detokenize=False)
    return model.request(features, [*opening, *text, model.tokenizer.control.end_of_text], params, context)
