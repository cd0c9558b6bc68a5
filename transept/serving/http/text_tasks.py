"""``POST /v1/summarize`` and ``/v1/translate``: documents to texts, with the model's own settings for the task."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.core.jobs.job import Gather, Job
from transept.core.request.sampling_params import SamplingParams
from transept.errors import EngineClosedError, TranseptError
from transept.options import Option
from transept.serving.async_tasks import AsyncTextGenerator
from transept.serving.errors import ApiError, api_error
from transept.serving.http import bodies
from transept.serving.http.answers import ErrorAnswer, ErrorDetails, TokenUsage, answers, token_usage
from transept.serving.http.failures import answer_to
from transept.serving.http.fields import JSON, Body
from transept.serving.http.numbered_jobs import Ended, numbered
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended, event_stream
from transept.serving.models import offers
from transept.text.generated_text import GeneratedText
from transept.text.job import Task
from transept.text.options import TextOptions, TranslationOptions

router = APIRouter(tags=["text"])

OBJECTS: dict[Task, str] = {"summarize": "summary", "translate": "translation"}
MAX_DOCUMENTS = 1024  # of one request


def _documents(name: str, given: Any) -> list[str]:
    """Return a list of documents. Raises ApiError for a wrong value, or for the first wrong entry of a list."""
    documents = given if isinstance(given, list) else [given]
    wrong = [index for index, each in enumerate(documents) if not isinstance(each, str)]
    if len(documents) > 1 and wrong:
        raise bodies.wrong(f"{name}[{wrong[0]}]", "a text", documents[wrong[0]])
    if not documents or wrong:
        raise bodies.wrong(name, "a text or a list of texts", given)
    if len(documents) > MAX_DOCUMENTS:
        message = f"{len(documents)} texts are more than {MAX_DOCUMENTS} in one request: split it"
        raise ApiError(400, message, param=name, code="too_many")
    return documents


@dataclass(frozen=True)
class OwnFields:
    """The documents, and the fields of the answer."""

    input: Annotated[
        str | list[str],
        Option("the documents", "If a document sent alone fails, the answer has its error.", parse=_documents),
    ]
    model: Annotated[str, Option("a name of `/v1/models`", "Default: the first model that does this task.")] = ""
    stream: Annotated[bool, Option("answer by server-sent events, as the text is found")] = False


class WrittenText(TypedDict):
    """What the model wrote for a document."""

    index: int
    text: str
    finish_reason: str
    num_source_tokens: int
    num_tokens: int
    num_chunks: int
    truncated: bool


class TextOrError(WrittenText):
    """The text of a document, or the error of one that failed, whose text is empty."""

    error: ErrorDetails | None


class Texts(TypedDict):
    """The texts, in the order of the documents."""

    id: str
    object: Literal["summary", "translation"]
    created: int
    model: str
    data: list[TextOrError]
    usage: TokenUsage


class TextDelta(TypedDict):
    """New text of a document."""

    type: Literal["text.delta"]
    index: int
    delta: str


class TextDone(WrittenText):
    """A document's whole text."""

    type: Literal["text.done"]


class TextUsage(TypedDict):
    """The last event: the tokens of all documents."""

    type: Literal["text.usage"]
    usage: TokenUsage


class TextError(ErrorAnswer):
    """The error of a document."""

    index: int


ANSWERS = answers(Texts, events=TextDelta | TextDone | TextUsage | TextError | ErrorAnswer)
SUMMARY = Body(JSON, OwnFields, TextOptions, SamplingParams, without=bodies.NOT_OVER_HTTP)
TRANSLATION = Body(JSON, OwnFields, TranslationOptions, SamplingParams, without=bodies.NOT_OVER_HTTP)
TextPlace = Annotated[Place, Depends(place_of("text"))]


@router.post("/v1/summarize", openapi_extra=SUMMARY.documented(), responses=ANSWERS)
async def summarize(
    request: Request, place: TextPlace, body: Annotated[dict[str, Any], Depends(bodies.json_of(SUMMARY))]
) -> Response:
    """A summary of each document."""
    return await _respond(request, place, "summarize", SUMMARY, body)


@router.post("/v1/translate", openapi_extra=TRANSLATION.documented(), responses=ANSWERS)
async def translate(
    request: Request, place: TextPlace, body: Annotated[dict[str, Any], Depends(bodies.json_of(TRANSLATION))]
) -> Response:
    """Each document in another language."""
    return await _respond(request, place, "translate", TRANSLATION, body)


async def _respond(request: Request, place: Place, task: Task, known: Body, body: dict[str, Any]) -> Response:
    fields = known.made(OwnFields, body)
    given = {name: value for name, value in body.items() if known.kind_of[name] is not OwnFields}
    model, ticket = await place.take(fields.model, offers(task))
    assert model.text is not None
    request.state.log = {"model": model.name}
    try:
        jobs = _jobs(model.text, task, [*fields.input], fields.stream, bodies.as_openai_samples(given))
    except TranseptError as error:
        raise api_error(error, "input") from error
    events = ticket.run(_all_of(jobs))
    if fields.stream:
        return await event_stream(request, _stream(request, events), place.stack)
    answer = {
        "id": f"{OBJECTS[task]}-{request.state.request_id}",
        "object": OBJECTS[task],
        "created": int(time.time()),
        "model": model.name,
    }
    return await attended(request, _whole(request, answer, events, isinstance(body["input"], str)))


def _jobs(
    generator: AsyncTextGenerator, task: Task, documents: list[str], stream: bool, options: dict[str, Any]
) -> Iterator[Job]:
    """Return a job for each document. The first is made at once, to check the options; the others in their turn."""
    first = generator.job(task, documents[0], stream=stream, **options)

    def jobs() -> Iterator[Job]:
        yield numbered(0, first)
        for index, document in enumerate(documents[1:], 1):
            yield numbered(index, generator.job(task, document, stream=stream, **options))

    return jobs()


def _all_of(jobs: Iterator[Job]) -> Job:
    yield Gather(jobs)


async def _whole(request: Request, answer: dict[str, Any], events: AsyncGenerator[Any, None], alone: bool) -> Response:
    """Return all texts in the order of the documents. A failed document of a list has its error instead.

    alone: the document was not sent in a list. Raises ApiError if such a document failed, or if the engine stopped.
    """
    data, num_read, num_written = [], 0, 0
    async with aclosing(events):
        try:
            async for event in events:
                if not isinstance(event, Ended):
                    continue
                if isinstance(event.result, EngineClosedError) or (alone and isinstance(event.result, TranseptError)):
                    raise event.result
                if isinstance(event.result, TranseptError):
                    told = _refusal(request, event.result)
                    data.append({"index": event.index, **_described(GeneratedText.failed(event.result)), **told})
                    continue
                num_read += event.result.num_source_tokens
                num_written += event.result.num_tokens
                data.append({"index": event.index, **_described(event.result), "error": None})
        except Exception as error:
            raise api_error(error, "input") from error
    return JSONResponse({**answer, "data": data, "usage": token_usage(num_read, num_written)})


def _refusal(request: Request, error: TranseptError) -> dict[str, Any]:
    """Return one document's error in OpenAI's shape. Counts it, and logs it if the server is at fault."""
    told = api_error(error, "input")
    told.__cause__ = error  # for the log
    return answer_to(request.scope, told).body()


async def _stream(request: Request, events: AsyncGenerator[Any, None]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield each document's text as it becomes final, then its `text.done`; at the end the usage."""
    num_told = num_read = num_written = 0
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, Ended) and isinstance(event.result, TranseptError):
                    yield {**_refusal(request, event.result), "index": event.index}
                    num_told = 0
                elif isinstance(event, Ended):
                    if rest := event.result.text[num_told:]:
                        yield {"type": "text.delta", "index": event.index, "delta": rest}
                    num_read += event.result.num_source_tokens
                    num_written += event.result.num_tokens
                    num_told = 0
                    yield {"type": "text.done", "index": event.index, **_described(event.result)}
                elif isinstance(event, tuple):
                    index, piece = event
                    num_told += len(piece)
                    yield {"type": "text.delta", "index": index, "delta": piece}
        except Exception as error:
            raise api_error(error, "input") from error
    yield {"type": "text.usage", "usage": token_usage(num_read, num_written)}


def _described(text: GeneratedText) -> dict[str, Any]:
    return {
        "text": text.text,
        "finish_reason": text.finish_reason,
        "num_source_tokens": text.num_source_tokens,
        "num_tokens": text.num_tokens,
        "num_chunks": text.num_chunks,
        "truncated": text.truncated,
    }
