"""A pass over the audio of an utterance: the text after its committed words, with the attention of each token.

`live.utterance` runs the passes; the policies (`live.policies`) decide which words of a hypothesis are final.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transept.core.jobs.job import Submit
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_params import SamplingParams
from transept.speech.algorithms.decoding import SHORTEST_RUN, DecodedWindow, decode_with_fallback, is_plausible
from transept.speech.algorithms.prompt import WindowPrompt
from transept.speech.algorithms.source import Source
from transept.speech.options import TranscriptionOptions
from transept.speech.timing.words import WordTiming, split_words, token_times, word_timings

SMOOTHING = 5  # encoder positions whose attention is summed, so that its peak is less random
REWIND = 0.5  # seconds before the last committed word's end; attention to earlier audio is a repetition
FEW_TOKENS, TOKENS_A_SECOND = 16, 8  # of the bound in `most_tokens`; fast speakers reach 6 tokens a second
STEP_OF_BOUND = 16  # tokens; bounds are rounded up to it, so that few different ones occur


@dataclass(frozen=True)
class HeardWord:
    """A word or a punctuation mark of a hypothesis.

    timing: in seconds of the stream. reached: latest time to which the decoder attends for any token of the word, in
    seconds of the stream.
    """

    timing: WordTiming
    reached: float

    @property
    def text(self) -> str:
        """The word with its leading blank, if it has one."""
        return self.timing.word

    @property
    def key(self) -> str:
        """The word without case and marks, for comparisons between passes; empty for a mark."""
        return "".join(filter(str.isalnum, self.text)).casefold()


@dataclass(frozen=True)
class Hypothesis:
    """The text that follows an utterance's committed words.

    is_trusted: False for repetitive or unlikely text; then words may be empty, see `hear`.
    """

    words: tuple[HeardWord, ...]
    decoded: DecodedWindow
    is_trusted: bool


def hear(
    heard: Source,
    begin: float,
    settled: float,
    prompt: WindowPrompt,
    temperatures: Sequence[float],
    context: int | None,
    draft: Sequence[int] = (),
    *,
    last: bool,
) -> Generator[Any, Any, Hypothesis]:
    """A job: one pass.

    heard: the kept audio, with its features. begin, settled: seconds of the stream at which the audio begins, and at
    which the last committed word ends. prompt: its prefix has the tokens of the committed words. context: number of
    frames that the encoder reads; None: the whole window. draft: token ids of an earlier hypothesis. last: True for the
    last pass of an utterance; others stop at a repetition, and return no words of a text that is not trusted.
    The pass is two requests that share the encoder's output: one decodes, the other measures the attention of each
    token.
    """
    model, options = heard.model, heard.options
    shortest = None if last or options.keywords else SHORTEST_RUN
    decoded = yield from decode_with_fallback(heard, prompt, temperatures, context, shortest, draft)
    is_trusted = (
        decoded.is_finished
        and not decoded.needs_fallback(options)
        and not is_noise(options, decoded)
        and is_plausible(model.tokenizer, model.spec, decoded.tokens, decoded.text, heard.seconds)
    )
    if not (is_trusted or last):
        return Hypothesis((), decoded, is_trusted)
    text = [token for token in decoded.tokens[len(prompt.prefix) :] if token in model.tokenizer.text_tokens]
    words = yield from _words(heard, prompt.prefix, text, context)
    words = [_later(word, begin) for word in words]
    return Hypothesis(tuple(_without_rewind(words, settled)), decoded, is_trusted)


def is_noise(options: TranscriptionOptions, decoded: DecodedWindow) -> bool:
    """True if silence is likely, and the text's log probability is below half of logprob_threshold.

    Likely text counts as speech, because models find silence likely after short audio, although their text is right.
    """
    if options.no_speech_threshold is None or decoded.no_speech_prob <= options.no_speech_threshold:
        return False
    return options.logprob_threshold is None or decoded.avg_logprob < options.logprob_threshold / 2


def most_tokens(seconds: float) -> int:
    """Return the maximum number of tokens of a pass. seconds: length of the audio after the last committed word."""
    bound = FEW_TOKENS + TOKENS_A_SECOND * seconds
    return -(-int(bound) // STEP_OF_BOUND) * STEP_OF_BOUND


def _words(
    heard: Source, prefix: Sequence[int], text: Sequence[int], context: int | None
) -> Generator[Any, Any, list[HeardWord]]:
    """A job: the words of a text after a prefix, with their times. prefix, text: token ids."""
    if not text:
        return []
    model = heard.model
    language = heard.language if model.languages else None
    if not model.alignment_heads:
        return _evenly(heard, text, language)
    opening = model.opening_tokens(heard.language, heard.options, timestamps=False)
    all_text = [*prefix, *text][-(model.max_positions - len(opening) - 2) :]
    first = len(all_text) - len(text)  # of the new tokens
    probe = PromptProbe(
        logprobs=tuple((len(opening) - 1 + at, all_text[at]) for at in range(first, len(all_text))),
        vocab_limit=model.tokenizer.text_range.stop,
        beyond_limit=model.tokenizer.control.added_text,
        cross_attention_heads=model.alignment_heads,
    )
    params = SamplingParams(temperature=0.0, num_beams=1, max_tokens=1, prompt_probe=probe, detokenize=False)
    decoder_prompt = [*opening, *all_text, model.tokenizer.control.end_of_text]
    (output,) = yield Submit([model.request(heard.features, decoder_prompt, params, context, heard.options.lora)])
    weights = output.prompt_probe.cross_attention
    stride = -(-(context or model.window_frames) // weights.shape[-1])  # frames of a position
    times = token_times(
        weights,
        len(all_text),
        num_frames=heard.num_frames,
        frames_per_position=stride,
        frames_per_second=model.fps,
    )
    if not len(times):
        return []
    peaks = _peaks(weights, len(all_text)) * stride / model.fps
    timings = word_timings(
        text, output.prompt_probe.logprobs, times[first:], tokenizer=model.tokenizer.tokenizer, language=language
    )
    words, begin = [], first
    for timing in timings:
        end = begin + len(timing.tokens)
        words.append(HeardWord(timing, float(peaks[begin:end].max())))
        begin = end
    return words


def _peaks(weights: np.ndarray, num_text_tokens: int) -> np.ndarray:
    """Return the position to which the decoder attends most for each token of a text: [num_text_tokens].

    weights: [heads, tokens of the decoder prompt, positions], as for `token_times`.
    """
    attention = weights[:, -num_text_tokens - 2 : -2].mean(axis=0, dtype=np.float64)  # [tokens, positions]
    sums = np.pad(attention.cumsum(axis=1), ((0, 0), (SMOOTHING // 2 + 1, SMOOTHING // 2)), mode="edge")
    sums[:, : SMOOTHING // 2 + 1] = 0.0
    return (sums[:, SMOOTHING:] - sums[:, :-SMOOTHING]).argmax(axis=1) + 0.5


def _evenly(heard: Source, text: Sequence[int], language: str | None) -> list[HeardWord]:
    """Return words with times in proportion to their letters, for a model that cannot time words."""
    words = split_words(text, heard.model.tokenizer.tokenizer, language)
    ends = np.cumsum([len(word) for word, _ in words]) / max(1, sum(len(word) for word, _ in words)) * heard.seconds
    starts = [0.0, *ends[:-1]]
    return [
        HeardWord(WordTiming(word, tokens, float(start), float(end), 1.0), float(end))
        for (word, tokens), start, end in zip(words, starts, ends, strict=True)
    ]


def _without_rewind(words: Sequence[HeardWord], settled: float) -> list[HeardWord]:
    """Return the words before the decoder goes back to audio of committed words: from there it repeats itself."""
    rewound = (number for number, word in enumerate(words) if word.key and word.reached < settled - REWIND)
    return list(words[: next(rewound, len(words))])


def _later(word: HeardWord, seconds: float) -> HeardWord:
    timing = word.timing
    timing = dataclasses.replace(timing, start=timing.start + seconds, end=timing.end + seconds)
    return HeardWord(timing, word.reached + seconds)
