"""The decoding of one window: its prompt, its sampling parameters, and the fallback to higher temperatures.

Both modes call `decode_window` and ask `is_silent` about the result. The rules are openai-whisper's (``transcribe.py``,
``decoding.py``), prefix and hotwords faster-whisper's.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.core.jobs import Submit
from transept.core.outputs import CompletionOutput, RequestOutput
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_params import LogitsProcessor, SamplingParams
from transept.registry.spec import resolve
from transept.speech.options import TranscriptionOptions
from transept.speech.speech_model import SpeechModel

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DecodedWindow:
    """What was heard in a window.

    tokens: timestamps and a prefix among them, without the end of text. text: of all of them, without blanks around it.
    avg_logprob: mean log probability over the new tokens and the end of text. compression_ratio: bytes of the text to
    those that zlib makes of it. no_speech_prob: probability that nobody speaks; 0 where the family does not tell.
    """

    tokens: list[int]
    text: str
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


def decode_window(
    model: SpeechModel,
    features: Tensor,
    options: TranscriptionOptions,
    *,
    language: str,
    previous_tokens: Sequence[int] = (),
    prefix: str | None = None,
) -> Generator[Any, Any, DecodedWindow]:
    """A job: decode one window, at one temperature after the other until a result is good enough, or at the last one.

    features: [channels, up to window_frames]. language: code. previous_tokens: what was said before, as a prompt.
    prefix: how the text begins.
    """
    prefix_tokens = _prefix_tokens(model, options, prefix)
    opening = [*model.opening_tokens(language, options), *prefix_tokens]
    hotwords = options.hotwords if not prefix else None
    earlier = _earlier_tokens(model, hotwords, previous_tokens, room=model.max_positions - len(opening) - 1)
    prompt = [*earlier, *opening]
    no_speech = _no_speech_probe(model, start=len(earlier))
    no_speech_prob = 0.0
    for attempt, temperature in enumerate(options.temperatures):
        probe = no_speech if attempt == 0 else None  # the prompt stays the same, and so does the answer
        params = _sampling_params(model, options, temperature, len(prompt), len(prefix_tokens), probe)
        (output,) = yield Submit([model.request(features, prompt, params)])
        if probe is not None:
            no_speech_prob = math.exp(output.prompt_probe.logprobs[0])
        decoded = _decoded(model, options, output, temperature, prefix_tokens, no_speech_prob)
        if not _needs_fallback(decoded, options):
            break
    return decoded


def is_silent(decoded: DecodedWindow, options: TranscriptionOptions) -> bool:
    """Whether a window is skipped: silence is likely, and the text is not."""
    if options.no_speech_threshold is None or decoded.no_speech_prob <= options.no_speech_threshold:
        return False
    return options.logprob_threshold is None or decoded.avg_logprob <= options.logprob_threshold


def _needs_fallback(decoded: DecodedWindow, options: TranscriptionOptions) -> bool:
    """Whether the text is too repetitive or, unless that is because nobody speaks, too unlikely."""
    unlikely = options.logprob_threshold is not None and decoded.avg_logprob < options.logprob_threshold
    if unlikely and options.no_speech_threshold is not None and decoded.no_speech_prob > options.no_speech_threshold:
        return False
    limit = options.compression_ratio_threshold
    return unlikely or (limit is not None and decoded.compression_ratio > limit)


def _sampling_params(
    model: SpeechModel,
    options: TranscriptionOptions,
    temperature: float,
    prompt_length: int,
    num_prefix_tokens: int,
    probe: PromptProbe | None,
) -> SamplingParams:
    """The parameters of one attempt; nothing is left for the checkpoint's settings to fill."""
    search: dict[str, Any] = {"num_beams": 1}
    if temperature > 0:
        search = {"num_beams": 1, "n": options.best_of, "seed": options.seed}
    elif (options.beam_size or 1) > 1:
        search = {
            "num_beams": options.beam_size,
            "num_return_sequences": options.beam_size,
            "patience": options.patience or 1.0,
            "length_penalty": 1.0,
            "early_stopping": True,
        }
    processors: tuple[LogitsProcessor, ...] = ()
    if model.spec.timestamp_rules is not None and not options.without_timestamps:
        rules = resolve(model.spec.timestamp_rules)
        bound = options.max_initial_timestamp
        processors = (rules(model.config, max_initial_timestamp=bound, num_prefix_tokens=num_prefix_tokens),)
    # As openai-whisper, half of the positions where the other half is for a prompt.
    longest = model.max_positions // (1 if model.tokens.start_of_previous is None else 2)
    room = model.max_positions - prompt_length
    return SamplingParams(
        temperature=temperature,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        max_tokens=min(options.max_new_tokens or longest, room),
        min_tokens=0,
        repetition_penalty=options.repetition_penalty or 1.0,
        no_repeat_ngram_size=options.no_repeat_ngram_size or 0,
        suppress_tokens=model.suppressed_tokens(options),
        begin_suppress_tokens=model.blank_tokens if options.suppress_blank else (),
        bad_words_ids=(),
        logits_processors=processors,
        prompt_probe=probe,
        detokenize=False,
        **search,
    )


def _decoded(
    model: SpeechModel,
    options: TranscriptionOptions,
    output: RequestOutput,
    temperature: float,
    prefix_tokens: list[int],
    no_speech_prob: float,
) -> DecodedWindow:
    """The best of a request's samples or hypotheses."""

    def new_tokens(completion: CompletionOutput) -> list[int]:
        tokens = completion.token_ids
        return tokens[:-1] if tokens and tokens[-1] == model.tokens.end_of_text else tokens

    def score(completion: CompletionOutput) -> float:
        length = len(new_tokens(completion))
        if options.length_penalty is None:
            return completion.cumulative_logprob / max(length, 1)
        return completion.cumulative_logprob / ((5 + length) / 6) ** options.length_penalty

    best = max(output.outputs, key=score)
    tokens = new_tokens(best)
    text = model.decode([*prefix_tokens, *tokens]).strip()
    return DecodedWindow(
        tokens=[*prefix_tokens, *tokens],
        text=text,
        temperature=temperature,
        avg_logprob=best.cumulative_logprob / (len(tokens) + 1),
        compression_ratio=compression_ratio(text),
        no_speech_prob=no_speech_prob,
    )


def compression_ratio(text: str) -> float:
    """How many times shorter zlib makes the text; high for a text that repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def _no_speech_probe(model: SpeechModel, start: int) -> PromptProbe | None:
    """Ask how likely silence is after the start-of-transcript token, which is the first opening token."""
    token = model.tokens.no_speech
    return None if token is None else PromptProbe(logprobs=((start, token),))


def max_prompt_tokens(model: SpeechModel) -> int:
    """How much earlier text a prompt holds at most: half of the positions, but for the token before it."""
    return model.max_positions // 2 - 1


def _earlier_tokens(model: SpeechModel, hotwords: str | None, previous_tokens: Sequence[int], room: int) -> list[int]:
    """What stands before the opening tokens: hotwords, then the end of the earlier text, within limit and room."""
    limit = min(max_prompt_tokens(model), room - 1)
    words = model.encode_prompt(hotwords)[:limit] if hotwords else []
    left = limit - len(words)
    earlier = [*words, *previous_tokens[-left:]] if left > 0 else words
    if not earlier or model.tokens.start_of_previous is None:
        return []
    return [model.tokens.start_of_previous, *earlier]


def _prefix_tokens(model: SpeechModel, options: TranscriptionOptions, prefix: str | None) -> list[int]:
    """The prefix as the transcript's beginning, after the window's first timestamp."""
    if not prefix:
        return []
    tokens = model.encode_prompt(prefix)[: max_prompt_tokens(model)]
    if options.without_timestamps or model.tokens.first_timestamp is None:
        return tokens
    return [model.tokens.first_timestamp, *tokens]
