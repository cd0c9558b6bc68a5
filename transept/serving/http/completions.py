"""``POST /v1/completions``: OpenAI's completions with an encoder/decoder model, whose encoder reads the prompt.

echo returns the decoder's prompt before the text, for its log probabilities. suffix is not supported.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.core.request.prompts import Prompt, SingletonPrompt
from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError
from transept.options import Option, declares_options, made_of, take_options
from transept.serving.errors import ApiError
from transept.serving.http import bodies
from transept.serving.http.answers import ErrorAnswer, TokenUsage, answers, token_usage
from transept.serving.http.completion_jobs import Echoes, Piece, complete
from transept.serving.http.fields import JSON, Body, Given
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended, event_stream
from transept.serving.http.token_logprobs import logprobs_of

router = APIRouter(tags=["text"])

MAX_CHOICES = 128  # of one request, counting all samples of best_of
MAX_LOGPROBS = 20
HYPOTHESES = "num_return_sequences"  # n of a beam search; either may be sent
PROMPTS = "a text, a list of texts, a list of token ids, or a list of such lists"
A_PROMPT = "a text or a list of token ids"
FORMATS = (
    'an object with the type "text", "json_object" or "json_schema", such as '
    '{"type": "json_schema", "json_schema": {"name": "person", "schema": {...}}}'
)

Tokens: TypeAlias = list[int]


def _decoder_prompt(name: str, given: Any) -> str | Tokens | None:
    if not (given is None or bodies.is_prompt(given)):
        raise bodies.wrong(name, A_PROMPT, given)
    return given


def _response_format(name: str, given: Any) -> dict[str, Any] | None:
    """Return a response_format as a value of guided; None for text."""
    kind = given.get("type") if isinstance(given, dict) else None
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return {"json": {"type": "object"}}
    described = given.get("json_schema") if kind == "json_schema" else None
    if not isinstance(described, dict) or "schema" not in described:
        raise bodies.wrong(name, FORMATS, given)
    return {"json": described["schema"]}


@declares_options("stream_options has no")
@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream."""

    include_usage: Annotated[bool | None, Option("end with the numbers of tokens")] = None
    include_obfuscation: Annotated[bool | None, Option("has no effect")] = None

    def __post_init__(self) -> None:
        take_options(self)


@dataclass(frozen=True)
class OwnFields:
    """OpenAI's fields, and decoder_prompt. Fields that encoder/decoder models cannot support are refused."""

    prompt: Annotated[
        str | list[str] | Tokens | list[Tokens],
        Option("the encoder's input", wanted=PROMPTS, parse=bodies.one_or_several(bodies.is_prompt, A_PROMPT, PROMPTS)),
    ]
    model: Annotated[str, Option("a name of `/v1/models`", "Default: the first text model.")] = ""
    decoder_prompt: Annotated[
        str | Tokens | None, Option("start of the decoder's text", "Default: the model's.", parse=_decoder_prompt)
    ] = None
    n: Annotated[int | None, Option("choices of each prompt", ge=1, le=MAX_CHOICES)] = None
    num_return_sequences: Annotated[int | None, Option("the same as n", ge=1, le=MAX_CHOICES)] = None
    best_of: Annotated[int | None, Option("draw this many, and return the n likeliest", ge=1, le=MAX_CHOICES)] = None
    logprobs: Annotated[
        int | None, Option("log probabilities of this many likeliest tokens at each position", ge=0, le=MAX_LOGPROBS)
    ] = None
    stream: Annotated[bool, Option("answer by server-sent events as text is generated")] = False
    stream_options: Annotated[
        StreamOptions | None, Option("options of a stream", parse=partial(made_of, StreamOptions))
    ] = None
    echo: Annotated[
        bool,
        Option(
            "begin each text with decoder_prompt",
            "With logprobs, also its tokens' log probabilities; with max_tokens=0, these alone.",
        ),
    ] = False
    response_format: Annotated[
        dict[str, Any] | None,
        Option("OpenAI's form of guided: text, json_object or json_schema", wanted=FORMATS, parse=_response_format),
    ] = None
    suffix: Annotated[str | None, Option("must be empty: encoder/decoder models cannot insert text")] = None
    user: Annotated[str | None, Option("has no effect")] = None


BODY = Body(JSON, OwnFields, SamplingParams, without=bodies.NOT_OVER_HTTP)


@dataclass(frozen=True)
class Asked:
    """A checked request. num_choices: number of choices to return for each prompt."""

    body: Given
    fields: OwnFields
    prompts: list[Prompt]
    params: SamplingParams
    num_choices: int
    echo: Echoes


class Logprobs(TypedDict):
    """Log probabilities of the tokens of a choice; the lists have an element for each token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class Choice(TypedDict):
    """A generated text. finish_reason: None before the end, in a stream."""

    text: str
    index: int
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Completion(TypedDict):
    """OpenAI's completion, or an event of its stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: TokenUsage | None


@router.post(
    "/v1/completions", openapi_extra=BODY.documented(), responses=answers(Completion, events=Completion | ErrorAnswer)
)
async def completions(
    request: Request,
    place: Annotated[Place, Depends(place_of("text"))],
    body: Annotated[Given, Depends(bodies.json_of(BODY))],
) -> Response:
    """Generate text for prompts, in OpenAI's format."""
    asked = _asked(body)
    model, ticket = await place.take(asked.fields.model)
    assert model.text is not None
    request.state.log = {"model": model.name}
    engine = model.text.generator.engine
    answer = Answer(f"cmpl-{request.state.request_id}", model.name, asked, engine.tokenizer)
    events = ticket.run(complete(engine, asked.prompts, asked.params, asked.fields.stream, asked.echo, model.text.lora))
    if asked.fields.stream:
        return await event_stream(request, answer.chunks(events), place.stack)
    return await attended(request, answer.whole(events))


@dataclass(frozen=True)
class Answer:
    """The answer to one request."""

    response_id: str
    model: str
    asked: Asked
    tokenizer: Any

    async def whole(self, events: AsyncGenerator[Any, None]) -> Response:
        """Return OpenAI's completion. Raises ApiError."""
        pieces: list[Piece] = []
        async with aclosing(events):
            try:
                async for event in events:
                    pieces = event if isinstance(event, list) else pieces
            except Exception as error:
                raise self.asked.body.error(error, "prompt") from error
        choices = [choice for chosen in self._chosen(pieces) for choice in chosen]
        answer = self._object([], self._usage(pieces))
        for index, piece in enumerate(choices):
            choice, _ = await run_in_threadpool(self._choice, index, piece)
            answer["choices"].append(choice)
        return JSONResponse(answer)

    async def chunks(self, events: AsyncGenerator[Any, None]) -> AsyncGenerator[dict[str, Any], None]:
        """Yield OpenAI's chunks: each choice's text as it becomes final; its last chunk has a finish_reason."""
        offsets: dict[int, int] = {}  # of a choice's tokens in its text
        pieces: list[Piece] = []
        async with aclosing(events):
            try:
                async for event in events:
                    if isinstance(event, list):
                        pieces = event
                    if not isinstance(event, Piece):
                        continue
                    index = event.prompt_index * self.asked.num_choices + event.sample_index
                    choice, offsets[index] = self._choice(index, event, offsets.get(index, 0))
                    yield self._object([choice], None)
            except Exception as error:
                raise self.asked.body.error(error, "prompt") from error
        if self.asked.fields.stream_options is not None and self.asked.fields.stream_options.include_usage:
            yield self._object([], self._usage(pieces))

    def _chosen(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Return each prompt's choices; if there are too many, those with the highest log probability per token."""
        chosen = []
        for prompt_index in range(len(self.asked.prompts)):
            found = [piece for piece in pieces if piece.prompt_index == prompt_index]
            if len(found) > self.asked.num_choices:
                found.sort(key=lambda piece: piece.cumulative_logprob / max(1, len(piece.token_ids)), reverse=True)
            chosen.append(found[: self.asked.num_choices])
        return chosen

    def _choice(self, index: int, piece: Piece, offset: int = 0) -> tuple[dict[str, Any], int]:
        """Return OpenAI's choice, and the offset in its text at which the last token ends."""
        piece, logprobs = piece.with_echo, None
        if (num_top := self.asked.fields.logprobs) is not None:
            logprobs, offset = logprobs_of(self.tokenizer, piece, num_top, offset)
        choice = {"text": piece.text, "index": index, "logprobs": logprobs, "finish_reason": piece.finish_reason}
        return choice, offset

    def _object(self, choices: list[dict[str, Any]], usage: TokenUsage | None) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
            "usage": usage,
        }

    def _usage(self, pieces: list[Piece]) -> TokenUsage:
        """Return the number of tokens of the encoder's prompts, each counted once, and of all texts."""
        read = {piece.prompt_index: piece.num_prompt_tokens for piece in pieces}
        return token_usage(sum(read.values()), sum(len(piece.token_ids) for piece in pieces))


def _asked(body: Given) -> Asked:
    """Check a body. Raises ApiError for fields that are invalid, unsupported or contradictory."""
    fields = body.made(OwnFields)
    _refuse(fields)
    num_choices = fields.n or fields.num_return_sequences or 1
    best_of = fields.best_of or num_choices
    if best_of < num_choices:
        raise ApiError(
            400,
            f"best_of={best_of} is less than n={num_choices}: raise best_of or lower n",
            param="best_of",
            code="invalid_value",
        )
    if best_of > num_choices and fields.stream:
        message = "best_of cannot be streamed, because the best choices are known only at the end: leave one out"
        raise ApiError(400, message, param="best_of", code="invalid_value")
    if len(fields.prompt) * best_of > MAX_CHOICES:
        prompts = f"{len(fields.prompt)} prompts with {best_of} choices"
        message = f"{prompts} are more than {MAX_CHOICES} choices in one request: split it"
        raise ApiError(400, message, param="prompt", code="too_many")
    echo = Echoes.BEFORE if fields.echo else Echoes.NONE
    try:
        options = bodies.as_openai_samples(body.part(SamplingParams))
        if fields.response_format is not None:
            if options.get("guided") is not None:
                message = "response_format and guided both set the form of the text: send one of them"
                raise ApiError(400, message, param="response_format", code="invalid_value")
            options["guided"] = fields.response_format
        if fields.echo and options.get("max_tokens") == 0:
            echo = Echoes.ALONE
            options |= {"max_tokens": 1, "min_tokens": 0}
        params = SamplingParams(**options, logprobs=None if fields.logprobs is None else max(1, fields.logprobs))
        asks_for_samples = "temperature" in options or any(name in body.values for name in ("n", "best_of"))
        if params.beam_search or (HYPOTHESES in body.values and not asks_for_samples):
            params = replace(params, num_return_sequences=best_of)
        elif best_of > 1:
            temperature = bodies.OPENAI_TEMPERATURE if params.temperature is None else params.temperature
            params = replace(params, n=best_of, temperature=temperature)
    except ParameterError as error:
        raise body.error(error) from error
    several: list[Any] = [*fields.prompt]
    decoder_side = None if fields.decoder_prompt is None else _side(fields.decoder_prompt)
    sides: list[Prompt] = [{"encoder_prompt": _side(each), "decoder_prompt": decoder_side} for each in several]
    sent = dict.fromkeys(("n", HYPOTHESES), "best_of") if fields.best_of else {}
    return Asked(replace(body, sent={**sent, **body.sent}), fields, sides, params, num_choices, echo)


def _refuse(fields: OwnFields) -> None:
    """Raise ApiError for fields that encoder/decoder models cannot support."""
    if fields.echo and fields.decoder_prompt is None:
        message = "echo returns decoder_prompt before the text: send one, or leave echo out"
        raise ApiError(400, message, param="echo", code="invalid_value")
    if fields.echo and fields.stream:
        raise ApiError(400, "echo cannot be streamed: leave one out", param="echo", code="invalid_value")
    if fields.suffix:
        message = "suffix: an encoder/decoder model cannot insert text before a suffix; leave it out"
        raise ApiError(400, message, param="suffix", code="unsupported")
    if fields.stream_options not in (None, StreamOptions()) and not fields.stream:
        raise ApiError(
            400,
            "stream_options needs stream=true: set it, or leave stream_options out",
            param="stream_options",
            code="invalid_value",
        )


def _side(given: str | Tokens) -> SingletonPrompt:
    return given if isinstance(given, str) else {"prompt_tokens": given}
