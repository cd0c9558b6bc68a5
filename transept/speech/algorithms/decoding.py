"""Decode one window, with fallback to higher temperatures.

Both modes call `decode_window`. The rules are openai-whisper's (``transcribe.py``, ``decoding.py``).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Submit
from transept.core.outputs import CompletionOutput, RequestOutput
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_params import LogitsProcessor, SamplingParams
from transept.registry.spec import SpeechSpec
from transept.speech.algorithms.prompt import WindowPrompt, window_prompt
from transept.speech.algorithms.source import Source
from transept.speech.options import TranscriptionOptions
from transept.speech.tokenizer import SpeechTokenizer

if TYPE_CHECKING:
    from torch import Tensor

LATEST_END = 1.0  # seconds after the audio; models round times up, some to whole seconds
FASTEST_SPEECH = 40  # characters in a second; hurried speakers reach 25
SHORTEST_TEXT = 15  # characters, which any window may hold
SHORTEST_RUN = 4  # tokens; people do say "no, no, no"


@dataclass(frozen=True)
class DecodedWindow:
    """The result of decoding a window.

    tokens: including timestamps and the prefix, without the end of text. text: of all tokens, stripped of blanks.
    avg_logprob: mean log probability over the new tokens and the end of text. avg_boost: mean boost of keywords over
    the same tokens. compression_ratio: of zlib on the text. no_speech_prob: probability of silence; 0 if the family has
    no token for it. token_logprobs: one for each token, if requested; 0 for the prefix's tokens. context: frames that
    the encoder read; None: the whole window. is_finished: True if decoding reached the end of text.
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
    avg_boost: float = 0.0

    def is_silent(self, options: TranscriptionOptions) -> bool:
        """True if the window is skipped: silence is likely, and its text is unlikely."""
        if options.no_speech_threshold is None or self.no_speech_prob <= options.no_speech_threshold:
            return False
        return options.logprob_threshold is None or self.avg_logprob <= options.logprob_threshold

    def needs_fallback(self, options: TranscriptionOptions) -> bool:
        """True if the text is too repetitive, or too unlikely although silence is unlikely as well.

        The likelihood includes keyword boosts, so that a rare name is not decoded again.
        """
        logprob = self.avg_logprob + self.avg_boost
        unlikely = options.logprob_threshold is not None and logprob < options.logprob_threshold
        if unlikely and options.no_speech_threshold is not None and self.no_speech_prob > options.no_speech_threshold:
            return False
        limit = options.compression_ratio_threshold
        return unlikely or (limit is not None and self.compression_ratio > limit)


def decode_window(
    heard: Source, previous_tokens: Sequence[int] = (), prefix: str | None = None
) -> Generator[Any, Any, DecodedWindow]:
    """A job that decodes one window, at rising temperatures until a result passes the thresholds, or at the last one.

    With encoder_context the encoder first reads a part of the window, and all of it if that result is in doubt.

    heard: the window. previous_tokens: previous text, for the prompt. prefix: beginning of the window's text.
    """
    model, options = heard.model, heard.options
    prompt = window_prompt(heard, previous_tokens, prefix)
    context = model.short_context(heard.features, options)
    if context is not None:
        decoded = yield from decode_with_fallback(heard, prompt, options.temperatures[:1], context)
        is_trusted = (
            decoded.is_finished
            and not decoded.needs_fallback(options)
            and not decoded.is_silent(options)
            and is_plausible(model.tokenizer, model.spec, decoded.tokens, decoded.text, heard.seconds)
        )
        model.short_contexts.decoded += 1
        model.short_contexts.again += not is_trusted
        if is_trusted:
            return decoded
    return (yield from decode_with_fallback(heard, prompt, options.temperatures, None))


def decode_with_fallback(
    heard: Source,
    prompt: WindowPrompt,
    temperatures: Sequence[float],
    context: int | None,
    stop_at_repetition: int | None = None,
    draft: Sequence[int] = (),
) -> Generator[Any, Any, DecodedWindow]:
    """A job: the first result that needs no fallback, or the last one.

    heard: the window. prompt: of the decoder. temperatures: in the order of attempts. context: number of frames that
    the encoder reads; None: the whole window. stop_at_repetition: see SamplingParams. draft: draft_tokens of the first
    attempt.
    """
    model, options = heard.model, heard.options
    no_speech, probe = model.tokenizer.control.no_speech, None
    if no_speech is not None:  # its probability after the first opening token
        probe = PromptProbe(logprobs=((len(prompt.earlier), no_speech),))
    no_speech_prob = 0.0
    if options.guided is not None:  # other speech is unlikely at any temperature
        temperatures = temperatures[:1]
    for attempt, temperature in enumerate(temperatures):
        model.num_temperature_retries += attempt > 0
        params = _sampling_params(heard, temperature, prompt, probe, stop_at_repetition, () if attempt else draft)
        (output,) = yield Submit([model.request(heard.features, prompt.tokens, params, context, options.lora)])
        if probe is not None:
            no_speech_prob = math.exp(output.prompt_probe.logprobs[0])
            probe = None  # the prompt of further attempts is the same
        decoded = _decoded(heard, output, temperature, prompt.prefix, no_speech_prob, context)
        if not decoded.needs_fallback(options):
            break
    return decoded


def _unchanged(logits: Tensor, rows: Any) -> None:
    """Change nothing, as a logits processor."""


def _sampling_params(
    heard: Source,
    temperature: float,
    prompt: WindowPrompt,
    probe: PromptProbe | None,
    stop_at_repetition: int | None,
    draft: Sequence[int],
) -> SamplingParams:
    """Return the parameters of one attempt. All are set, so the checkpoint's settings have no effect."""
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
    # With a processor, beam search normalises over the allowed tokens, as openai-whisper does, not over all.
    processors: tuple[LogitsProcessor, ...] = (_unchanged,) if search["num_beams"] > 1 else ()
    if model.spec.timestamp_rules is not None and not options.without_timestamps:
        asked = {"max_initial_timestamp": options.max_initial_timestamp, "num_prefix_tokens": len(prompt.prefix)}
        processors = (model.ask("timestamp_rules", model.view, **asked),)
    # Texts begin with a blank, which is not a part of the form.
    guided = None if options.guided is None else replace(options.guided, leading_blank=True)
    # Half of the positions if the other half is for a prompt, as in openai-whisper.
    longest = model.max_positions // (1 if model.tokenizer.control.start_of_previous is None else 2)
    room = model.max_positions - len(prompt.tokens)
    return SamplingParams(
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        max_tokens=min(options.max_new_tokens or longest, room),
        stop_at_repetition=stop_at_repetition,
        min_tokens=0,
        repetition_penalty=options.repetition_penalty or 1.0,
        no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
        suppress_tokens=() if guided else model.tokenizer.suppressed_tokens(options),
        begin_suppress_tokens=model.tokenizer.blank_tokens if options.suppress_blank and not guided else (),
        guided=guided,
        bad_words_ids=(),
        keywords=options.keywords,
        keyword_boost=options.keyword_boost,
        logits_processors=processors,
        logprobs=1 if options.token_logprobs else None,
        prompt_probe=probe,
        detokenize=False,
        draft_tokens=draft if search["num_beams"] == 1 else None,
        **search,
    )


def divisor(length: int, options: TranscriptionOptions) -> float:
    """Return the divisor of the log probability of a text of `length` tokens, for ranking."""
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
    """Return the best of a request's samples or hypotheses."""
    model, options = heard.model, heard.options

    def new_tokens(completion: CompletionOutput) -> list[int]:
        tokens = completion.token_ids
        return tokens[:-1] if tokens and tokens[-1] == model.tokenizer.control.end_of_text else tokens

    def score(completion: CompletionOutput) -> float:
        total = completion.cumulative_logprob + completion.cumulative_boost
        return total / divisor(len(new_tokens(completion)), options)

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
        avg_boost=best.cumulative_boost / (len(tokens) + 1),
    )


def compression_ratio(text: str) -> float:
    """Return the text's length divided by its length after zlib; high for a repetitive text."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def is_plausible(
    tokenizer: SpeechTokenizer, spec: SpeechSpec, tokens: Sequence[int], text: str, seconds: float
) -> bool:
    """True if a window's tokens may be the text of `seconds` of audio.

    tokens: including timestamps. text: of the tokens. False for no text, for a run of SHORTEST_RUN tokens or more that
    is repeated at once, for more text than anyone can say in the time, and for a timestamp more than LATEST_END after
    the audio.
    """
    if not text or len(text) > longest_text(seconds):
        return False
    first = tokenizer.control.first_timestamp
    if first is not None:
        times = [(token - first) * spec.seconds_per_timestamp for token in tokens if tokenizer.is_timestamp(token)]
        if max(times, default=0.0) > seconds + LATEST_END:
            return False
    return not repeats_itself([token for token in tokens if token in tokenizer.text_tokens])


def longest_text(seconds: float) -> float:
    """Return the largest plausible number of characters in a window."""
    return max(SHORTEST_TEXT, FASTEST_SPEECH * seconds)


def repeats_itself(tokens: Sequence[int]) -> bool:
    """True if a run of SHORTEST_RUN tokens or more occurs twice in succession."""
    for size in range(SHORTEST_RUN, len(tokens) // 2 + 1):
        alike = 0  # consecutive tokens that are repeated `size` later
        for one, other in zip(tokens, tokens[size:], strict=False):
            alike = alike + 1 if one == other else 0
            if alike == size:
                return True
    return False
