"""JSON bodies: read within bounds, strictly, and taken apart into fields. Called by the endpoints for text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError
from transept.option_names import refuse_unknown
from transept.serving.errors import ApiError, as_json

MAX_JSON_BYTES = 8 << 20  # twice the Bible; split a larger text into several documents
MAX_DEPTH = 32  # of lists and objects within one another
NOT_OVER_HTTP = {"logits_processors", "prompt_probe", "detokenize"}  # Python objects, and what leaves no text
OPENAI_TEMPERATURE = 1.0  # the default of OpenAI's API
FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}  # sampling filters, each with the value that turns it off
SAMPLING_FIELDS = tuple(field.name for field in dataclasses.fields(SamplingParams) if field.name not in NOT_OVER_HTTP)


async def read_json(
    request: Request, known: Iterable[str], most: int = MAX_JSON_BYTES, what: str = "text"
) -> dict[str, Any]:
    """Return the body, a JSON object, without the fields that are null.

    known: all valid fields. what: it holds. Raises ApiError: 413 for more than so many bytes, 400 for a body that
    is not a JSON object in UTF-8, for a name that comes twice, NaN, lists MAX_DEPTH deep, and unknown fields.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _invalid(f"send this as application/json, not {kind or 'without a type'}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            message = f"the body is larger than {most >> 20} MiB: split the {what}"
            raise ApiError(413, message, code="too_large")
    given = await run_in_threadpool(parse, bytes(body))
    try:
        refuse_unknown("there is no field", given, known)
    except ParameterError as error:
        raise ApiError(400, str(error), param=error.param, code="unknown_field") from None
    return {name: value for name, value in given.items() if value is not None}


def parse(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ApiError for any other body; see `read_json`."""
    try:
        given = json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise _invalid(f"the body is not UTF-8, at byte {error.start}") from None
    except RecursionError:
        raise _invalid(f"the body's lists and objects are more than {MAX_DEPTH} deep") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _invalid(f"the body is not valid JSON, at {place}: send one JSON object") from None
    except _NotStrictError as error:
        raise _invalid(str(error)) from None
    except ValueError:  # Python's limit on the digits of an integer
        raise _invalid("the body has an integer of thousands of digits: send a shorter one") from None
    if not isinstance(given, dict):
        raise _invalid(f"the body must be a JSON object, not {as_json(given)}")
    _check_depth(given)
    return given


def truth(body: dict[str, Any], name: str) -> bool:
    """Return a flag, false if it is missing. Raises ApiError for another value."""
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise wrong(name, "true or false", value)
    return value


def text(body: dict[str, Any], name: str) -> str | None:
    """Return a text, or None if it is missing. Raises ApiError for another value."""
    value = body.get(name)
    if not isinstance(value, str | None):
        raise wrong(name, "a text", value)
    return value


def integer(body: dict[str, Any], name: str, low: int, high: int) -> int | None:
    """Return an integer within bounds, or None if it is missing. Raises ApiError for another value."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
        raise wrong(name, f"an integer from {low} to {high}", value)
    return value


def as_openai_samples(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of SamplingParams with OpenAI's meaning: a filter alone samples at 1, and temperature 0 is greedy.

    options: the client's fields. Raises ParameterError for a filter out of its range.
    """
    given = dict(options)
    filters = {name: given[name] for name in FILTERS if given.get(name) is not None}
    SamplingParams(**filters)  # also raises for a filter that is left out below
    temperature = given.get("temperature")
    if temperature == 0 and not isinstance(temperature, bool):
        return {name: value for name, value in given.items() if name not in filters}
    searches = given.get("num_beams") not in (None, 1)
    if temperature is None and not searches and any(value != FILTERS[name] for name, value in filters.items()):
        given["temperature"] = OPENAI_TEMPERATURE
    return given


def wrong(name: str, wanted: str, value: Any) -> ApiError:
    """The error of a field that holds something else."""
    return ApiError(400, f"{name} must be {wanted}, not {as_json(value)}", param=name, code="invalid_value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _NotStrictError(f"the body has the name {as_json(name)} twice in one object: send it once")
        found[name] = value
    return found


def _no_number(name: str) -> Any:
    raise _NotStrictError(f"the body has {name}, which is not a JSON number: leave the field out, or send a number")


class _NotStrictError(ValueError):
    """A body is JSON for Python's parser, but not for the standard (RFC 8259) or for this server."""


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        if depth == MAX_DEPTH:
            raise _invalid(f"the body's lists and objects are more than {MAX_DEPTH} deep")
        inner: list[Any] = []
        for each in level:
            inner += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        level, depth = [each for each in inner if isinstance(each, dict | list)], depth + 1


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_body")
