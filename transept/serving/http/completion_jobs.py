"""The job of a completion: generates the choices of all prompts, in pieces if they are streamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from transept.core.engine import Engine
from transept.core.jobs.job import Job, Offload, Submit, Wait
from transept.core.outputs import CompletionOutput, RequestOutput
from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.prompts import Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.errors import TranseptError
from transept.text.document import settled


class Echoes(Enum):
    """The part of a choice that is the decoder prompt."""

    NONE = 0
    BEFORE = 1  # the prompt, then the generated text
    ALONE = 2  # the prompt without a generated text


@dataclass(frozen=True)
class Piece:
    """A choice, or a new piece of one.

    prompt_index, sample_index: identify the choice. text, token_ids, logprobs: of the piece. token_before: the last
    token of the previous piece. finish_reason: None before the end.
    """

    prompt_index: int
    sample_index: int
    text: str
    token_ids: list[int]
    token_before: int | None
    logprobs: list[dict[int, float]] | None
    finish_reason: str | None
    cumulative_logprob: float
    num_prompt_tokens: int
    echo: Echo | None = None

    @property
    def with_echo(self) -> Piece:
        """The piece with its echo before it."""
        if self.echo is None:
            return self
        logprobs = None if self.logprobs is None else [*self.echo.logprobs, *self.logprobs]
        return replace(
            self,
            text=self.echo.text + self.text,
            token_ids=[*self.echo.token_ids, *self.token_ids],
            logprobs=logprobs,
        )


@dataclass(frozen=True)
class Echo:
    """The decoder prompt before a choice. logprobs: of each token; the first one has none."""

    text: str
    token_ids: list[int]
    logprobs: list[dict[int, float]]


def complete(
    engine: Engine,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    stream: bool,
    echo: Echoes = Echoes.NONE,
    lora: str | None = None,
) -> Job:
    """A job for all prompts in one batch, whose result is the list of whole choices. stream: yield their pieces.

    A beam search knows its texts only at the end, so each is one piece. echo: see Echoes; not in a stream. lora: see
    Request.
    """
    requests: list[PreparedRequest] = yield Offload(lambda: _prepared(engine, prompts, params, echo, lora))
    outputs: list[RequestOutput | None] = yield Submit(requests, stream)
    sent: dict[tuple[int, int], tuple[int, int]] = {}  # choice -> characters and tokens that were yielded
    while stream:
        for prompt_index, output in enumerate(outputs):
            if output is not None and (output.finished or len(output.outputs) == params.n):  # others may be beams
                for completion in output.outputs:
                    piece = _next_piece(prompt_index, output, completion, params, engine.tokenizer, sent)
                    if piece is not None:
                        yield piece
        if all(output is not None and output.finished for output in outputs):
            break
        outputs = yield Wait()
    pieces = [
        _piece(prompt_index, output, completion, completion.text, 0)
        for prompt_index, output in enumerate(outputs)
        if output is not None
        for completion in output.outputs
    ]
    if echo is Echoes.NONE:
        return pieces
    echoes = [_echo(engine.tokenizer, prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]
    if echo is Echoes.ALONE:
        pieces = [replace(piece, text="", token_ids=[], logprobs=piece.logprobs and []) for piece in pieces]
    return [replace(piece, echo=echoes[piece.prompt_index]) for piece in pieces]


def _echo(tokenizer: Any, prompt: Any, output: Any) -> Echo:
    """Return the echo of a finished output. prompt: with a decoder_prompt."""
    given, token_ids = prompt["decoder_prompt"], output.prompt_token_ids
    text = given if isinstance(given, str) else tokenizer.decode(token_ids, skip_special_tokens=True)
    found = () if output.prompt_probe is None else output.prompt_probe.logprobs
    logprobs = [{token: value} for token, value in zip(token_ids[1:], found, strict=False)]
    return Echo(text, list(token_ids), [{}, *logprobs])


def _prepared(
    engine: Engine, prompts: Sequence[Prompt], params: SamplingParams, echo: Echoes, lora: str | None
) -> list[PreparedRequest]:
    """Prepare a request for each prompt. Raises the first one's error, with its number if there are several."""
    requests = []
    for index, prompt in enumerate(prompts):
        try:
            request = engine.inputs(Request(prompt, params, lora=lora))
            if echo is not Echoes.NONE and params.logprobs:
                places = tuple(enumerate(request.inputs.decoder.token_ids[1:]))
                params_of = replace(request.sampling_params, prompt_probe=PromptProbe(logprobs=places))
                request = replace(request, sampling_params=params_of)
            requests.append(request)
        except TranseptError as error:
            if len(prompts) == 1:
                raise
            raise error.at(f"prompt[{index}]", param=f"prompt[{index}]") from error
    return requests


def _next_piece(
    prompt_index: int,
    output: RequestOutput,
    completion: CompletionOutput,
    params: SamplingParams,
    tokenizer: Any,
    sent: dict[tuple[int, int], tuple[int, int]],
) -> Piece | None:
    """Return the next final piece of a choice, or None."""
    choice = prompt_index, completion.index
    num_characters, num_tokens = sent.get(choice, (0, 0))
    if num_characters < 0:
        return None
    ended = completion.finish_reason is not None
    text = completion.text if ended else settled(completion.text, params.stop, tokenizer)
    if len(text) <= num_characters and not ended:
        return None
    sent[choice] = (-1, 0) if ended else (len(text), len(completion.token_ids))
    return _piece(prompt_index, output, completion, text[num_characters:], num_tokens)


def _piece(prompt_index: int, output: RequestOutput, completion: CompletionOutput, text: str, num_sent: int) -> Piece:
    return Piece(
        prompt_index,
        completion.index,
        text,
        completion.token_ids[num_sent:],
        completion.token_ids[num_sent - 1] if num_sent else None,
        None if completion.logprobs is None else completion.logprobs[num_sent:],
        completion.finish_reason,
        completion.cumulative_logprob,
        len(output.encoder_prompt_token_ids),
    )
