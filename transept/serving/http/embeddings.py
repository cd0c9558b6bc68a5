"""``POST /v1/embeddings``: OpenAI's embeddings, by the encoder of a text model."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from fastapi import APIRouter, Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.core.jobs.job import Gather, Job
from transept.errors import ParameterError, TranseptError
from transept.options import Option
from transept.serving.async_tasks import last
from transept.serving.errors import ApiError
from transept.serving.http import bodies
from transept.serving.http.answers import answers
from transept.serving.http.fields import JSON, Body, Given
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended
from transept.text.embedding import Embedder, TextEmbedding
from transept.text.options import EmbeddingOptions

router = APIRouter(tags=["text"])

MAX_INPUTS = 2048  # of one request, as in OpenAI's API
INPUTS = "a text, a list of texts, a list of token ids, or a list of such lists"
AN_INPUT = "a text or a list of token ids"

Tokens: TypeAlias = list[int]

_inputs = bodies.one_or_several(bodies.is_prompt, AN_INPUT, INPUTS, MAX_INPUTS)


@dataclass(frozen=True)
class OwnFields:
    """OpenAI's fields."""

    input: Annotated[
        str | list[str] | Tokens | list[Tokens],
        Option("the documents", "If one fails, the answer is its error.", wanted=INPUTS, parse=_inputs),
    ]
    model: Annotated[str, Option("a name of `/v1/models`", "Default: the first text model.")] = ""
    encoding_format: Annotated[
        Literal["float", "base64"],
        Option("form of an embedding", "base64: the bytes of its little-endian float32 numbers."),
    ] = "float"
    dimensions: Annotated[
        int | None, Option("the model's hidden size", "Embeddings of any other size are refused.", ge=1)
    ] = None
    user: Annotated[str | None, Option("has no effect")] = None


BODY = Body(
    *(JSON, OwnFields, EmbeddingOptions),
    without=("chunk", "decoder_prompt"),
    refused={"chunk": "an embedding is of a whole document"},
)


class Embedding(TypedDict):
    """A document's embedding: numbers, or base64. With pooling none, a list of numbers for each token."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str | list[list[float]]


class EmbeddingUsage(TypedDict):
    """Tokens that the encoder read."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(TypedDict):
    """OpenAI's list of embeddings, in the order of the documents."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


@router.post("/v1/embeddings", openapi_extra=BODY.documented(), responses=answers(Embeddings))
async def embeddings(
    request: Request,
    place: Annotated[Place, Depends(place_of("text"))],
    body: Annotated[Given, Depends(bodies.json_of(BODY))],
) -> Response:
    """Return the embedding of each document, in OpenAI's format. It has length 1 only if `normalize` asks for it."""
    fields = body.made(OwnFields)
    options = body.made(EmbeddingOptions)  # also raises while models load
    if options.pooling == "none" and fields.encoding_format == "base64":
        message = (
            "pooling none has a vector for each token, which base64 does not tell apart: send encoding_format float"
        )
        raise ApiError(400, message, param="encoding_format", code="invalid_value")
    model, ticket = await place.take(fields.model)
    assert model.text is not None
    request.state.log = {"model": model.name}
    try:
        embedder = Embedder(model.text.generator.engine, model.text.adapted(body.part(EmbeddingOptions)))
    except ParameterError as error:
        raise body.error(error) from error
    inputs: list[Any] = [*fields.input]
    return await attended(request, _whole(body, fields, model.name, ticket.run(_all_of(embedder, inputs))))


def _all_of(embedder: Embedder, inputs: list[Any]) -> Job:
    """A job for all inputs, whose result is the list of their embeddings. Raises the first error, with its input."""

    def named(index: int) -> Job:
        try:
            return (yield from embedder.embed_for(inputs[index]))
        except TranseptError as error:
            if len(inputs) == 1:
                raise
            raise error.at(f"input[{index}]", param=f"input[{index}]") from error

    return (yield Gather(map(named, range(len(inputs)))))


async def _whole(body: Given, fields: OwnFields, model: str, events: AsyncGenerator[Any, None]) -> Response:
    """Return all embeddings. Raises ApiError."""
    try:
        found: list[TextEmbedding] = await last(events)
    except Exception as error:
        raise body.error(error, "input") from error
    size = found[0].embedding.shape[-1]
    if fields.dimensions not in (None, size):
        message = f"this model's embeddings have {size} dimensions, not {fields.dimensions}: leave dimensions out"
        raise ApiError(400, message, param="dimensions", code="unsupported")
    num_tokens = sum(len(each.token_ids) for each in found)
    answer = {"object": "list", "model": model, "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens}}
    return await run_in_threadpool(lambda: JSONResponse({**answer, "data": _described(found, fields.encoding_format)}))


def _described(found: list[TextEmbedding], encoding_format: str) -> list[dict[str, Any]]:
    return [
        {
            "object": "embedding",
            "index": index,
            "embedding": _as_base64(each.embedding) if encoding_format == "base64" else each.embedding.tolist(),
        }
        for index, each in enumerate(found)
    ]


def _as_base64(numbers: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(numbers.astype("<f4").tobytes()).decode()
