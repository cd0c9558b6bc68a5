"""``POST /v1/summarize`` and ``/v1/translate``: documents to texts, with the model's own settings for the task."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.core.jobs.job import Gather, Job
from transept.core.request.sampling_params import SamplingParams
from transept.errors import EngineClosedError, ParameterError, TranseptError
from transept.options import Option
from transept.serving.async_tasks import AsyncTextGenerator
from transept.serving.errors import answer_to
from transept.serving.http import bodies
from transept.serving.http.answers import ErrorAnswer, ErrorDetails, TokenUsage, answers, token_usage
from transept.serving.http.fields import JSON, Body, Given
from transept.serving.http.places import Place, place_of
from transept.serving.http.streams import attended, event_stream
from transept.serving.models import offers
from transept.text.generated_text import GeneratedText
from transept.text.job import Task
from transept.text.options import TextOptions, TranslationOptions

router = APIRouter(tags=["text"])

OBJECTS: dict[Task, str] = {"summarize": "summary", "translate": "translation"}
MAX_DOCUMENTS = 1024  # of one request


_documents = bodies.one_or_several(
    lambda value: isinstance(value, str), "a text", "a text or a list of texts", MAX_DOCUMENTS
)


@dataclass(frozen=True)
class OwnFields:
    """The documents, and the fields of the answer."""

    input: Annotated[
        str | list[str],
        Option("the documents", "If a document sent alone fails, the answer has its error.", parse=_documents),
    ]
    model: Annotated[str, Option("a name of `/v1/models`", "Default: the first model that does this task.")] = ""
    stream: Annotated[bool, Option("answer by server-sent events as text is generated")] = False


class AlternativeText(TypedDict):
    """A further text for a document: a sample, or a hypothesis of a beam search."""

    text: str
    finish_reason: str
    num_tokens: int


class WrittenText(TypedDict):
    """The text that the model generated for a document. alternatives: with n or num_return_sequences."""

    index: int
    text: str
    finish_reason: str
    num_source_tokens: int
    num_tokens: int
    num_chunks: int
    truncated: bool
    alternatives: list[AlternativeText]


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
    request: Request, place: TextPlace, body: Annotated[Given, Depends(bodies.json_of(SUMMARY))]
) -> Response:
    """Summarize each document."""
    return await _respond(request, place, "summarize", TextOptions, body)


@router.post("/v1/translate", openapi_extra=TRANSLATION.documented(), responses=ANSWERS)
async def translate(
    request: Request, place: TextPlace, body: Annotated[Given, Depends(bodies.json_of(TRANSLATION))]
) -> Response:
    """Translate each document."""
    return await _respond(request, place, "translate", TranslationOptions, body)


async def _respond(request: Request, place: Place, task: Task, kind: type[TextOptions], body: Given) -> Response:
    fields = body.made(OwnFields)
    body.made(kind)  # also raises while models load
    try:
        sampling = bodies.as_openai_samples(body.part(SamplingParams))
        SamplingParams(**sampling)
    except ParameterError as error:
        raise body.error(error) from error
    model, ticket = await place.take(fields.model, offers(task))
    assert model.text is not None
    request.state.log = {"model": model.name}
    make: Callable[[str], Job] = partial(_job, model.text, task, fields.stream, {**body.part(kind), **sampling})
    try:
        first = make(fields.input[0])  # checks the options; the other jobs are made when they start
    except TranseptError as error:
        raise body.error(error, "input") from error
    events = ticket.run(_all_of(itertools.chain([first], map(make, fields.input[1:]))))
    if fields.stream:
        return await event_stream(request, _stream(request, body, events), place.stack)
    answer = {
        "id": f"{OBJECTS[task]}-{request.state.request_id}",
        "object": OBJECTS[task],
        "created": int(time.time()),
        "model": model.name,
    }
    return await attended(request, _whole(request, body, answer, events))


def _job(generator: AsyncTextGenerator, task: Task, stream: bool, options: dict[str, Any], document: str) -> Job:
    return generator.job(task, document, stream=stream, **options)


@dataclass(frozen=True)
class Ended:
    """The last event of a document's job. result: the job's return value, or the TranseptError that it raised."""

    result: Any


def _all_of(jobs: Iterable[Job]) -> Job:
    """A job that runs the documents' jobs. Yields their events in order of the documents; each job ends with Ended."""
    yield Gather(map(_with_end, jobs))


def _with_end(job: Job) -> Job:
    try:
        result = yield from job
    except TranseptError as error:
        result = error
    yield Ended(result)


async def _whole(request: Request, body: Given, answer: dict[str, Any], events: AsyncGenerator[Any, None]) -> Response:
    """Return all texts in the order of the documents. A failed document of a list has its error instead.

    Raises ApiError if a document failed that was not sent in a list, or if the engine stopped.
    """
    alone = isinstance(body.values["input"], str)
    data: list[dict[str, Any]] = []
    num_read = num_written = 0
    async with aclosing(events):
        try:
            async for event in events:
                if not isinstance(event, Ended):
                    continue
                if isinstance(event.result, EngineClosedError) or (alone and isinstance(event.result, TranseptError)):
                    raise event.result
                if isinstance(event.result, TranseptError):
                    told = _refusal(request, body, event.result)
                    data.append({"index": len(data), **_described(GeneratedText.failed(event.result)), **told})
                    continue
                num_read += event.result.num_source_tokens
                num_written += event.result.num_all_tokens
                data.append({"index": len(data), **_described(event.result), "error": None})
        except Exception as error:
            raise body.error(error, "input") from error
    return JSONResponse({**answer, "data": data, "usage": token_usage(num_read, num_written)})


def _refusal(request: Request, body: Given, error: TranseptError) -> dict[str, Any]:
    """Return one document's error in OpenAI's shape. Counts it, and logs it if the server is at fault."""
    told = body.error(error, "input")
    told.__cause__ = error  # for the log
    return answer_to(request.scope, told).body()


async def _stream(
    request: Request, body: Given, events: AsyncGenerator[Any, None]
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield each document's text as it becomes final, then its `text.done`; at the end the usage."""
    index = num_sent = num_read = num_written = 0
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, str):
                    num_sent += len(event)
                    yield {"type": "text.delta", "index": index, "delta": event}
                elif isinstance(event, Ended):
                    if isinstance(event.result, TranseptError):
                        yield {**_refusal(request, body, event.result), "index": index}
                    else:
                        if rest := event.result.text[num_sent:]:
                            yield {"type": "text.delta", "index": index, "delta": rest}
                        num_read += event.result.num_source_tokens
                        num_written += event.result.num_all_tokens
                        yield {"type": "text.done", "index": index, **_described(event.result)}
                    index, num_sent = index + 1, 0
        except Exception as error:
            raise body.error(error, "input") from error
    yield {"type": "text.usage", "usage": token_usage(num_read, num_written)}


def _described(text: GeneratedText) -> dict[str, Any]:
    return {
        "text": text.text,
        "finish_reason": text.finish_reason,
        "num_source_tokens": text.num_source_tokens,
        "num_tokens": text.num_tokens,
        "num_chunks": text.num_chunks,
        "truncated": text.truncated,
        "alternatives": [
            {"text": each.text, "finish_reason": each.finish_reason, "num_tokens": each.num_tokens}
            for each in text.alternatives
        ],
    }
