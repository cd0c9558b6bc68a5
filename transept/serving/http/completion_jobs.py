"""The job of a completion: generates the choices of all prompts, in pieces if they are streamed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transept.core.engine import Engine
from transept.core.jobs.job import Job, Offload, Submit, Wait
from transept.core.outputs import CompletionOutput, RequestOutput
from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompts import Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.errors import TranseptError
from transept.text.document import settled


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


def complete(engine: Engine, prompts: Sequence[Prompt], params: SamplingParams, stream: bool) -> Job:
    """A job for all prompts in one batch, whose result is the list of whole choices. stream: yield their pieces.

    A beam search knows its texts only at the end, so each is one piece.
    """
    requests: list[PreparedRequest] = yield Offload(lambda: _prepared(engine, prompts, params))
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
    return [
        _piece(prompt_index, output, completion, completion.text, 0)
        for prompt_index, output in enumerate(outputs)
        if output is not None
        for completion in output.outputs
    ]


def _prepared(engine: Engine, prompts: Sequence[Prompt], params: SamplingParams) -> list[PreparedRequest]:
    """Prepare a request for each prompt. Raises the first one's error, with its number if there are several."""
    requests = []
    for index, prompt in enumerate(prompts):
        try:
            requests.append(engine.inputs(Request(prompt, params)))
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
