"""Schemas of the answers for `/docs`, made from the types that the endpoints declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict

JSON, EVENTS = "application/json", "text/event-stream"


class TokenUsage(TypedDict):
    """OpenAI's token counts: tokens that the encoder read, and tokens that the decoder wrote."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


def token_usage(num_read: int, num_written: int) -> TokenUsage:
    """Return the usage for these token counts."""
    return {"prompt_tokens": num_read, "completion_tokens": num_written, "total_tokens": num_read + num_written}


class ErrorDetails(TypedDict):
    """The error. param: the field at fault. code: kind of error, for programs."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(TypedDict):
    """The answer to a request that fails, in OpenAI's format."""

    error: ErrorDetails


def answers(json: Any, events: Any = None, texts: Iterable[str] = ()) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route. json, events: types of the body and of events. texts: further media types."""
    content = {JSON: {"schema": schema_of_type(json)}}
    if events is not None:
        description = "Each event is a line `data: {JSON}`; the last one is `data: [DONE]`."
        content[EVENTS] = {"schema": {"description": description, **schema_of_type(events)}}
    content |= {media_type: {"schema": {"type": "string"}} for media_type in texts}
    return {200: {"description": "The answer.", "content": content}}


ERRORS: dict[int | str, dict[str, Any]] = {"default": {"description": "An error.", "model": ErrorAnswer}}


def schema_of_type(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type, with the types that it refers to written in place."""
    schema = TypeAdapter(kind).json_schema()
    return dict(_inlined(schema, schema.pop("$defs", {})))


def _inlined(part: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(each, named) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(named[part["$ref"].rpartition("/")[2]], named)
    return {key: _inlined(value, named) for key, value in part.items() if key != "title" or isinstance(value, dict)}
