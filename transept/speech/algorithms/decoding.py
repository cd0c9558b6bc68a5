"""The decoding of one window: its sampling parameters, and the fallback to higher temperatures.

Both modes call `decode_window`. The rules are openai-whisper's (``transcribe.py``, ``decoding.py``).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Submit
from transept.core.outputs import CompletionOutput, RequestOutput
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_params import LogitsProcessor, SamplingParams
from transept.speech.algorithms.plausibility import is_plausible
from transept.speech.algorithms.prompt import WindowPrompt, window_prompt
from transept.speech.algorithms.source import Source
from transept.speech.options import TranscriptionOptions

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DecodedWindow:
    """What was heard in a window.

    tokens: timestamps and a prefix among them, without the end of text. text: of all of them, without blanks around it.
    avg_logprob: mean log probability over the new tokens and the end of text. compression_ratio: bytes of the text to
    those that zlib makes of it. no_speech_prob: probability that nobody speaks; 0 where the family does not tell.
    token_logprobs: one a token, where they are asked for; 0 for a prefix's. context: frames that the encoder read, None
    for the whole window. is_finished: whether the end of text came.
    """

    tokens: list[int]
    text: str
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    token_logprobs: list[float] | None = None
    context: int | None = None
    is_finished: bool = True

    def is_silent(self, options: TranscriptionOptions) -> bool:
        """Whether the window is skipped: silence is likely, and the text is not."""
        if options.no_speech_threshold is None or self.no_speech_prob <= options.no_speech_threshold:
            return False
        return options.logprob_threshold is None or self.avg_logprob <= options.logprob_threshold

    def needs_fallback(self, options: TranscriptionOptions) -> bool:
        """Whether the text is too repetitive or, unless that is because nobody speaks, too unlikely."""
        unlikely = options.logprob_threshold is not None and self.avg_logprob < options.logprob_threshold
        if unlikely and options.no_speech_threshold is not None and self.no_speech_prob > options.no_speech_threshold:
            return False
        limit = options.compression_ratio_threshold
        return unlikely or (limit is not None and self.compression_ratio > limit)


def decode_window(
    heard: Source, previous_tokens: Sequence[int] = (), prefix: str | None = None
) -> Generator[Any, Any, DecodedWindow]:
    """A job: decode one window, at one temperature after the other until a result is good enough, or at the last one.

    With encoder_context the encoder first reads a part of the window; where that result is in doubt, all of it.

    heard: the window. previous_tokens: what was said before, as a prompt. prefix: how the text begins.
    """
    model, options = heard.model, heard.options
    prompt = window_prompt(heard, previous_tokens, prefix)
    context = model.short_context(heard.features, options)
    if context is not None:
        decoded = yield from _attempts(heard, prompt, options.temperatures[:1], context)
        trusted = _is_trusted(heard, decoded)
        model.short_contexts.count(trusted)
        if trusted:
            return decoded
    return (yield from _attempts(heard, prompt, options.temperatures, None))


def _is_trusted(heard: Source, decoded: DecodedWindow) -> bool:
    """Whether nothing suggests that the encoder read too little of a window. Where in doubt it reads all of it."""
    model, options = heard.model, heard.options
    if decoded.needs_fallback(options) or decoded.is_silent(options) or not decoded.is_finished:
        return False
    return is_plausible(model.tokenizer, model.spec, decoded.tokens, decoded.text, heard.seconds)


def _attempts(
    heard: Source, prompt: WindowPrompt, temperatures: Sequence[float], context: int | None
) -> Generator[Any, Any, DecodedWindow]:
    """A job: the first result that needs no fallback, or the last one. context: see SpeechModel.short_context."""
    model, options = heard.model, heard.options
    no_speech, probe = model.tokenizer.control.no_speech, None
    if no_speech is not None:  # as likely after the first opening token, which starts the transcript
        probe = PromptProbe(logprobs=((len(prompt.earlier), no_speech),))
    no_speech_prob = 0.0
    for attempt, temperature in enumerate(temperatures):
        model.num_temperature_retries += attempt > 0
        params = _sampling_params(heard, temperature, prompt, probe)
        (output,) = yield Submit([model.request(heard.features, prompt.tokens, params, context)])
        if probe is not None:
            no_speech_prob = math.exp(output.prompt_probe.logprobs[0])
            probe = None  # the prompt stays the same, and so does the answer
        decoded = _decoded(heard, output, temperature, prompt.prefix, no_speech_prob, context)
        if not decoded.needs_fallback(options):
            break
    return decoded


def _unchanged(logits: Tensor, rows: Any) -> None:
    """A logits processor that changes nothing."""


def _sampling_params(
    heard: Source, temperature: float, prompt: WindowPrompt, probe: PromptProbe | None
) -> SamplingParams:
    """The parameters of one attempt; nothing is left for the checkpoint's settings to fill."""
    model, options = heard.model, heard.options
    search: dict[str, Any] = {"num_beams": 1}
    if temperature > 0:
        search = {"num_beams": 1, "n": options.best_of or 1, "seed": options.seed}
    elif options.num_beams > 1:
        search = {
            "num_beams": options.num_beams,
            "patience": options.patience or 1.0,
            "length_penalty": 1.0 if options.length_penalty is None else options.length_penalty,
            "early_stopping": True,
        }
        search["num_return_sequences"] = min(options.num_beams, SamplingParams(**search).num_hypotheses)
    # With one, beam search weighs what is left of the vocabulary, as openai-whisper, and not the whole of it.
    processors: tuple[LogitsProcessor, ...] = (_unchanged,) if search["num_beams"] > 1 else ()
    if model.spec.timestamp_rules is not None and not options.without_timestamps:
        asked = {"max_initial_timestamp": options.max_initial_timestamp, "num_prefix_tokens": len(prompt.prefix)}
        processors = (model.ask("timestamp_rules", model.view, **asked),)
    # As openai-whisper, half of the positions where the other half is for a prompt.
    longest = model.max_positions // (1 if model.tokenizer.control.start_of_previous is None else 2)
    room = model.max_positions - len(prompt.tokens)
    return SamplingParams(
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        max_tokens=min(options.max_new_tokens or longest, room),
        min_tokens=0,
        repetition_penalty=options.repetition_penalty or 1.0,
        no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
        suppress_tokens=model.tokenizer.suppressed_tokens(options),
        begin_suppress_tokens=model.tokenizer.blank_tokens if options.suppress_blank else (),
        bad_words_ids=(),
        logits_processors=processors,
        logprobs=1 if options.token_logprobs else None,
        prompt_probe=probe,
        detokenize=False,
        **search,
    )


def divisor(length: int, options: TranscriptionOptions) -> float:
    """Return what the log probability of a text of so many tokens is divided by, to rank it among others."""
    if options.gnmt_length_penalty is not None:
        return float(((5 + length) / 6) ** options.gnmt_length_penalty)
    return float(max(length, 1) ** (1.0 if options.length_penalty is None else options.length_penalty))


def _decoded(
    heard: Source,
    output: RequestOutput,
    temperature: float,
    prefix_tokens: list[int],
    no_speech_prob: float,
    context: int | None,
) -> DecodedWindow:
    """The best of a request's samples or hypotheses."""
    model, options = heard.model, heard.options

    def new_tokens(completion: CompletionOutput) -> list[int]:
        tokens = completion.token_ids
        return tokens[:-1] if tokens and tokens[-1] == model.tokenizer.control.end_of_text else tokens

    def score(completion: CompletionOutput) -> float:
        return completion.cumulative_logprob / divisor(len(new_tokens(completion)), options)

    best = max(output.outputs, key=score)
    tokens = new_tokens(best)
    text = model.tokenizer.decode([*prefix_tokens, *tokens]).strip()
    token_logprobs = None
    if best.logprobs is not None:
        drawn = [by_token[token] for by_token, token in zip(best.logprobs, tokens, strict=False)]
        token_logprobs = [*(0.0 for _ in prefix_tokens), *drawn]
    return DecodedWindow(
        tokens=[*prefix_tokens, *tokens],
        text=text,
        temperature=temperature,
        avg_logprob=best.cumulative_logprob / (len(tokens) + 1),
        compression_ratio=compression_ratio(text),
        no_speech_prob=no_speech_prob,
        token_logprobs=token_logprobs,
        context=context,
        is_finished=len(tokens) < len(best.token_ids),
    )


def compression_ratio(text: str) -> float:
    """How many times shorter zlib makes the text; high for a text that repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))
