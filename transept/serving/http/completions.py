"""``POST /v1/completions``: OpenAI's completions with an encoder/decoder model, whose encoder reads the prompt.

The decoder writes a new text, so there is nothing to echo and no suffix to write towards.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from transept.core.request.prompts import Prompt, SingletonPrompt
from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError
from transept.serving.errors import ApiError, api_error
from transept.serving.http import bodies
from transept.serving.http.completion_jobs import Piece, complete
from transept.serving.http.places import Place
from transept.serving.http.streams import EventStream, attended
from transept.serving.http.token_logprobs import logprobs_of

router = APIRouter(tags=["text"])

OWN_FIELDS = ("model", "prompt", "decoder_prompt", "best_of", "stream", "stream_options", "echo", "suffix", "user")
FIELDS = (*OWN_FIELDS, *bodies.SAMPLING_FIELDS)
MAX_CHOICES = 128  # of one request, those among which the best are chosen counted
MAX_LOGPROBS = 20
HYPOTHESES = "num_return_sequences"  # what n is to a beam search; either may be sent
PROMPTS = "a text, a list of texts, a list of token ids, or a list of such lists"


@dataclass(frozen=True)
class Asked:
    """What a client asks for. num_choices: that are returned of each prompt. logprobs: None for none."""

    prompts: list[Prompt]
    params: SamplingParams
    num_choices: int
    logprobs: int | None
    stream: bool
    include_usage: bool


SCHEMA = {
    "type": "object",
    "required": ["prompt"],
    "additionalProperties": True,
    "description": "OpenAI's fields, and any field of SamplingParams, such as num_beams or no_repeat_ngram_size.",
    "properties": {
        "model": {"type": "string", "description": "default: the first text model"},
        "prompt": {
            "description": f"what the encoder reads: {PROMPTS}",
            "oneOf": [{"type": "string"}, {"type": "array", "items": {}}],
        },
        "decoder_prompt": {"description": "what the decoder continues; default: as the model has it"},
        "max_tokens": {"type": "integer"},
        "temperature": {"type": "number"},
        "n": {"type": "integer", "default": 1},
        "stop": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "stream": {"type": "boolean", "default": False},
        "logprobs": {"type": "integer", "maximum": MAX_LOGPROBS},
        "num_beams": {"type": "integer"},
    },
}


@router.post(
    "/v1/completions",
    openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": SCHEMA}}}},
)
async def completions(request: Request) -> Response:
    """What a text model writes for a prompt, in OpenAI's format."""
    async with AsyncExitStack() as stack:
        place = Place(request, "text", stack)
        place.take_early()
        body = await bodies.read_json(request, FIELDS)
        asked = _asked(body)
        model, ticket = await place.take(bodies.text(body, "model"))
        assert model.text is not None
        request.state.log = {"model": model.name}
        engine = model.text.generator.engine
        answer = Answer(f"cmpl-{request.state.request_id}", model.name, asked, engine.tokenizer)
        events = ticket.run(complete(engine, asked.prompts, asked.params, asked.stream))
        if asked.stream:
            return EventStream(answer.chunks(events), owned=stack.pop_all())
        return await attended(request, answer.whole(events))


@dataclass(frozen=True)
class Answer:
    """How one request is answered."""

    response_id: str
    model: str
    asked: Asked
    tokenizer: Any

    async def whole(self, events: AsyncGenerator[Any, None]) -> Response:
        """OpenAI's completion. Raises ApiError."""
        pieces: list[Piece] = []
        async with aclosing(events):
            try:
                async for event in events:
                    pieces = event if isinstance(event, list) else pieces
            except Exception as error:
                raise api_error(error, "prompt") from error
        choices = [choice for chosen in self._chosen(pieces) for choice in chosen]
        answer = self._object([], self._usage(pieces))
        for index, piece in enumerate(choices):
            choice, _ = await run_in_threadpool(self._choice, index, piece)
            answer["choices"].append(choice)
        return JSONResponse(answer)

    async def chunks(self, events: AsyncGenerator[Any, None]) -> AsyncGenerator[dict[str, Any], None]:
        """OpenAI's chunks: of each choice its text as it becomes final, at its end with a finish_reason."""
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
                raise api_error(error, "prompt") from error
        if self.asked.include_usage:
            yield self._object([], self._usage(pieces))

    def _chosen(self, pieces: list[Piece]) -> list[list[Piece]]:
        """Of each prompt the choices that are returned, by their log probability a token where there are more."""
        chosen = []
        for prompt_index in range(len(self.asked.prompts)):
            found = [piece for piece in pieces if piece.prompt_index == prompt_index]
            if len(found) > self.asked.num_choices:
                found.sort(key=lambda piece: piece.cumulative_logprob / max(1, len(piece.token_ids)), reverse=True)
            chosen.append(found[: self.asked.num_choices])
        return chosen

    def _choice(self, index: int, piece: Piece, offset: int = 0) -> tuple[dict[str, Any], int]:
        """OpenAI's choice, and where its last token's text ends in the whole."""
        logprobs = None
        if self.asked.logprobs is not None:
            logprobs, offset = logprobs_of(self.tokenizer, piece, self.asked.logprobs, offset)
        choice = {"text": piece.text, "index": index, "logprobs": logprobs, "finish_reason": piece.finish_reason}
        return choice, offset

    def _object(self, choices: list[dict[str, Any]], usage: dict[str, int] | None) -> dict[str, Any]:
        return {
            "id": self.response_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
            "usage": usage,
        }

    def _usage(self, pieces: list[Piece]) -> dict[str, int]:
        """Tokens: of the encoder's prompts, each counted once, and all that were written."""
        read = {piece.prompt_index: piece.num_prompt_tokens for piece in pieces}
        written = sum(len(piece.token_ids) for piece in pieces)
        num_read = sum(read.values())
        return {"prompt_tokens": num_read, "completion_tokens": written, "total_tokens": num_read + written}


def _asked(body: dict[str, Any]) -> Asked:
    """What a body says. Raises ApiError for what it cannot mean."""
    _refuse(body)
    prompts = _prompts(body)
    stream = bodies.truth(body, "stream")
    num_choices = next(filter(None, (bodies.integer(body, name, 1, MAX_CHOICES) for name in ("n", HYPOTHESES))), 1)
    best_of = bodies.integer(body, "best_of", 1, MAX_CHOICES) or num_choices
    if best_of < num_choices:
        raise ApiError(400, f"best_of={best_of} is less than n={num_choices}", param="best_of", code="invalid_value")
    if best_of > num_choices and stream:
        message = "the best of several are known at their end, so best_of has no stream; leave one of them out"
        raise ApiError(400, message, param="best_of", code="invalid_value")
    if len(prompts) * best_of > MAX_CHOICES:
        message = f"{len(prompts)} prompts with {best_of} choices are more than {MAX_CHOICES} in one request: split it"
        raise ApiError(400, message, param="prompt", code="too_many")
    logprobs = bodies.integer(body, "logprobs", 0, MAX_LOGPROBS)
    options = {name: body[name] for name in bodies.SAMPLING_FIELDS if name in body and name not in ("n", HYPOTHESES)}
    try:
        options = bodies.as_openai_samples(options)
        params = SamplingParams(**{**options, "logprobs": None if logprobs is None else max(1, logprobs)})
        asks_for_samples = "temperature" in options or any(name in body for name in ("n", "best_of"))
        if params.beam_search or (HYPOTHESES in body and not asks_for_samples):
            params = replace(params, num_return_sequences=best_of)
        elif best_of > 1:
            temperature = bodies.OPENAI_TEMPERATURE if params.temperature is None else params.temperature
            params = replace(params, n=best_of, temperature=temperature)
    except ParameterError as error:
        raise api_error(error) from error
    return Asked(prompts, params, num_choices, logprobs, stream, _include_usage(body, stream))


def _refuse(body: dict[str, Any]) -> None:
    """Raise ApiError for what such a model cannot do."""
    if bodies.truth(body, "echo"):
        message = "echo: the encoder reads the prompt and the decoder writes a new text, so there is nothing to echo"
        raise ApiError(400, f"{message}; leave it out", param="echo", code="unsupported")
    if bodies.text(body, "suffix"):
        message = "suffix: an encoder/decoder model does not write towards a given end; leave it out"
        raise ApiError(400, message, param="suffix", code="unsupported")
    bodies.text(body, "user")


def _include_usage(body: dict[str, Any], stream: bool) -> bool:
    options = body.get("stream_options", {})
    if not isinstance(options, dict) or not set(options) <= {"include_usage", "include_obfuscation"}:
        raise bodies.wrong("stream_options", 'an object such as {"include_usage": true}', options)
    if options and not stream:
        raise ApiError(400, "stream_options goes with stream", param="stream_options", code="invalid_value")
    name = "stream_options.include_usage"
    return bodies.truth({name: options.get("include_usage") or False}, name)


def _prompts(body: dict[str, Any]) -> list[Prompt]:
    """The prompts, each of which has the decoder's beside it. Raises ApiError."""
    given = body.get("prompt")
    if given is None:
        raise ApiError(400, f"prompt is missing; it is {PROMPTS}", param="prompt", code="missing_prompt")
    several = given if isinstance(given, list) and not _are_token_ids(given) else [given]
    wrong = [index for index, each in enumerate(several) if not (isinstance(each, str) or _are_token_ids(each))]
    if len(several) > 1 and wrong:
        raise bodies.wrong(f"prompt[{wrong[0]}]", "a text or a list of token ids", several[wrong[0]])
    if not several or wrong:
        raise bodies.wrong("prompt", PROMPTS, given)
    decoder = body.get("decoder_prompt")
    if not (decoder is None or isinstance(decoder, str) or _are_token_ids(decoder)):
        raise bodies.wrong("decoder_prompt", "a text or a list of token ids", decoder)
    decoder_side = None if decoder is None else _side(decoder)
    return [{"encoder_prompt": _side(each), "decoder_prompt": decoder_side} for each in several]


def _side(given: str | list[int]) -> SingletonPrompt:
    return given if isinstance(given, str) else {"prompt_tokens": given}


def _are_token_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
