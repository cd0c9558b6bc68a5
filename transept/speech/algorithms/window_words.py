"""Time the words of a decoded window with another request on the same encoder input, whose prompt is the text.

Sequential mode calls `add_words`, batched mode `time_words`; `timing.words` computes the times. A text that fills the
decoder's positions needs two requests, with its beginning and with its end, because other tokens surround it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from transept.core.jobs.job import Submit
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_params import SamplingParams
from transept.speech.algorithms.source import Source
from transept.speech.segments import Segment
from transept.speech.timing.onsets import token_onsets
from transept.speech.timing.words import WordTiming, place_words, token_times, word_timings


def add_words(
    heard: Source, segments: Sequence[Segment], time_offset: float, last_speech: float, context: int | None = None
) -> Generator[Any, Any, list[Segment]]:
    """A job: the segments of one window with their words, and with the start and end of the words.

    time_offset, last_speech: seconds at which the window begins, and at which the last word before it ends. context: of
    its DecodedWindow.
    """
    options, text_tokens = heard.options, heard.model.tokenizer.text_tokens
    texts = [[token for token in segment.tokens if token in text_tokens] for segment in segments]
    timings = yield from time_words(heard, [token for tokens in texts for token in tokens], context)
    return place_words(
        segments,
        timings,
        num_text_tokens=[len(tokens) for tokens in texts],
        time_offset=time_offset,
        last_speech_timestamp=last_speech,
        prepend_punctuations=options.prepend_punctuations,
        append_punctuations=options.append_punctuations,
    )


def time_words(heard: Source, text: Sequence[int], context: int | None = None) -> Generator[Any, Any, list[WordTiming]]:
    """A job: the words of one window's text with their times and probabilities.

    text: tokens, without timestamps. context: of the window's DecodedWindow. Without word_timestamps, probabilities are
    not computed and are all 1.

    If a text is too long for one request, a second one times its last tokens, without the text's beginning. They never
    start before the tokens of the first request.
    """
    if not text:
        return []
    model, options = heard.model, heard.options
    opening = model.opening_tokens(heard.language, options, timestamps=False)
    room = model.max_positions - len(opening) - 2  # besides the end of text and the token that a request generates
    starts = range(0, len(text), room)
    begins = [max(0, min(start, len(text) - room)) for start in starts]
    parts = [text[begin : begin + room] for begin in begins]
    requests = []
    for part in parts:
        prompt = [*opening, *part, model.tokenizer.control.end_of_text]
        first = len(opening) - 1  # position after which the first text token comes
        logprobs_of = tuple((first + at, token) for at, token in enumerate(part)) if options.word_timestamps else ()
        probe = PromptProbe(
            logprobs=logprobs_of,
            vocab_limit=model.tokenizer.text_range.stop,
            beyond_limit=model.tokenizer.control.added_text,
            cross_attention_heads=model.alignment_heads,
        )
        params = SamplingParams(temperature=0.0, num_beams=1, max_tokens=1, prompt_probe=probe, detokenize=False)
        requests.append(model.request(heard.features, prompt, params, context, options.lora))
    outputs = yield Submit(requests)
    times, onsets, logprobs = np.empty(0), np.empty(0), [0.0] * len(text)
    for start, begin, part, output in zip(starts, begins, parts, outputs, strict=True):
        weights = output.prompt_probe.cross_attention
        stride = -(-(context or model.window_frames) // weights.shape[-1])  # frames of a position
        part_times = token_times(
            weights,
            len(part),
            num_frames=heard.num_frames,
            frames_per_position=stride,
            frames_per_second=model.fps,
        )
        times = np.append(times[:start], part_times[start - begin :])
        if options.refine_word_times:
            part_onsets = token_onsets(
                weights, part_times, num_positions=heard.num_frames // stride, positions_per_second=model.fps / stride
            )
            onsets = np.append(onsets, part_onsets[start - begin :])
        if options.word_timestamps:
            logprobs[start:] = output.prompt_probe.logprobs[start - begin :]
    return word_timings(
        text,
        logprobs,
        np.maximum.accumulate(times),
        tokenizer=model.tokenizer.tokenizer,
        language=heard.language if model.languages else None,
        onsets=onsets if options.refine_word_times else None,
    )
