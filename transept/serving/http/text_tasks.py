"""``POST /v1/summarize`` and ``/v1/translate``: documents to texts, by the model's own settings for the task."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from transept.core.jobs.job import Gather, Job
from transept.errors import EngineClosedError, TranseptError
from transept.serving.async_tasks import AsyncTextGenerator
from transept.serving.errors import ApiError, api_error
from transept.serving.http import bodies
from transept.serving.http.failures import answer_to
from transept.serving.http.numbered_jobs import Ended, numbered
from transept.serving.http.places import Place
from transept.serving.http.streams import EventStream, attended
from transept.serving.models import offers
from transept.text.generated_text import GeneratedText
from transept.text.job import Task

router = APIRouter(tags=["text"])

OBJECTS: dict[Task, str] = {"summarize": "summary", "translate": "translation"}
OPTIONS = ("truncate", "chunk", "max_source_tokens", *bodies.SAMPLING_FIELDS)
LANGUAGES = ("source", "target")
OWN_FIELDS = ("model", "input", "stream")
MAX_DOCUMENTS = 1024  # of one request


def _schema(*languages: str) -> dict[str, Any]:
    """The schema of the body, for `/docs`."""
    properties = {
        "model": {"type": "string", "description": "default: the first text model that does this"},
        "input": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "stream": {"type": "boolean", "default": False},
        "chunk": {"type": "boolean", "description": "split what is too long at sentences, and join the texts"},
        "truncate": {"type": "boolean", "description": "cut the end off what is too long"},
        **{name: {"type": "string", "description": "as the model's family names it"} for name in languages},
    }
    schema = {"type": "object", "required": ["input"], "additionalProperties": True, "properties": properties}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.post("/v1/summarize", openapi_extra=_schema())
async def summarize(request: Request) -> Response:
    """A summary of each document. Any field of SamplingParams may also be sent."""
    return await _respond(request, "summarize", OPTIONS)


@router.post("/v1/translate", openapi_extra=_schema(*LANGUAGES))
async def translate(request: Request) -> Response:
    """Each document in another language. Any field of SamplingParams may also be sent."""
    return await _respond(request, "translate", (*LANGUAGES, *OPTIONS))


async def _respond(request: Request, task: Task, options: tuple[str, ...]) -> Response:
    async with AsyncExitStack() as stack:
        place = Place(request, "text", stack)
        place.take_early()
        body = await bodies.read_json(request, (*OWN_FIELDS, *options))
        documents, stream = _documents(body), bodies.truth(body, "stream")
        given = {name: body[name] for name in options if name in body}
        model, ticket = await place.take(bodies.text(body, "model"), offers(task))
        assert model.text is not None
        request.state.log = {"model": model.name}
        try:
            jobs = _jobs(model.text, task, documents, stream, bodies.as_openai_samples(given))
        except TranseptError as error:
            raise api_error(error, "input") from error
        events = ticket.run(_all_of(jobs))
        if stream:
            return EventStream(_stream(request, events), owned=stack.pop_all())
        answer = {
            "id": f"{OBJECTS[task]}-{request.state.request_id}",
            "object": OBJECTS[task],
            "created": int(time.time()),
            "model": model.name,
        }
        alone = isinstance(body["input"], str)
        return await attended(request, _whole(request, answer, events, alone))


def _documents(body: dict[str, Any]) -> list[str]:
    given = body.get("input")
    if given is None:
        raise ApiError(400, "input is missing; it is a text or a list of texts", param="input", code="missing_input")
    documents = given if isinstance(given, list) else [given]
    wrong = [index for index, each in enumerate(documents) if not isinstance(each, str)]
    if len(documents) > 1 and wrong:
        raise bodies.wrong(f"input[{wrong[0]}]", "a text", documents[wrong[0]])
    if not documents or wrong:
        raise bodies.wrong("input", "a text or a list of texts", given)
    if len(documents) > MAX_DOCUMENTS:
        message = f"{len(documents)} texts are more than {MAX_DOCUMENTS} in one request: split it"
        raise ApiError(400, message, param="input", code="too_many")
    return documents


def _jobs(
    generator: AsyncTextGenerator, task: Task, documents: list[str], stream: bool, options: dict[str, Any]
) -> Iterator[Job]:
    """A job a document, each made when its turn comes but for the first, which shows whether the options are right."""
    first = generator.job(task, documents[0], stream=stream, **options)

    def jobs() -> Iterator[Job]:
        yield numbered(0, first)
        for index, document in enumerate(documents[1:], 1):
            yield numbered(index, generator.job(task, document, stream=stream, **options))

    return jobs()


def _all_of(jobs: Iterator[Job]) -> Job:
    yield Gather(jobs)


@dataclass
class _Usage:
    """Tokens of all documents so far."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, text: GeneratedText) -> None:
        self.prompt_tokens += text.num_source_tokens
        self.completion_tokens += text.num_tokens

    def to_dict(self) -> dict[str, int]:
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": total,
        }


async def _whole(request: Request, answer: dict[str, Any], events: AsyncGenerator[Any, None], alone: bool) -> Response:
    """Return all texts in the order of their documents, with the error in place of a document of a list that failed.

    alone: the document was not sent in a list. Raises ApiError if such a document failed, or if the engine stopped.
    """
    usage, data = _Usage(), []
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
                usage.add(event.result)
                data.append({"index": event.index, **_described(event.result), "error": None})
        except Exception as error:
            raise api_error(error, "input") from error
    return JSONResponse({**answer, "data": data, "usage": usage.to_dict()})


def _refusal(request: Request, error: TranseptError) -> dict[str, Any]:
    """Return one document's error in OpenAI's shape. Counts it, and logs it if the server is at fault."""
    told = api_error(error, "input")
    told.__cause__ = error  # for the log
    return answer_to(request.scope, told).body()


async def _stream(request: Request, events: AsyncGenerator[Any, None]) -> AsyncGenerator[dict[str, Any], None]:
    """Document after document: its text as it becomes final, then all that is known of it; at the end the usage."""
    usage, num_told = _Usage(), 0
    async with aclosing(events):
        try:
            async for event in events:
                if isinstance(event, Ended) and isinstance(event.result, TranseptError):
                    yield {**_refusal(request, event.result), "index": event.index}
                    num_told = 0
                elif isinstance(event, Ended):
                    if rest := event.result.text[num_told:]:
                        yield {"type": "text.delta", "index": event.index, "delta": rest}
                    usage.add(event.result)
                    num_told = 0
                    yield {"type": "text.done", "index": event.index, **_described(event.result)}
                elif isinstance(event, tuple):
                    index, piece = event
                    num_told += len(piece)
                    yield {"type": "text.delta", "index": index, "delta": piece}
        except Exception as error:
            raise api_error(error, "input") from error
    yield {"type": "text.usage", "usage": usage.to_dict()}


def _described(text: GeneratedText) -> dict[str, Any]:
    return {
        "text": text.text,
        "finish_reason": text.finish_reason,
        "num_source_tokens": text.num_source_tokens,
        "num_tokens": text.num_tokens,
        "num_chunks": text.num_chunks,
        "truncated": text.truncated,
    }
