"""JSON bodies: read up to a size limit, parsed strictly, and checked field by field. Used by the endpoints for text."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from jiter import from_json
from starlette.requests import Request

from transept.core.request.sampling_params import SamplingParams
from transept.serving.errors import ApiError, as_json
from transept.serving.http.fields import Body

MAX_JSON_BYTES = 8 << 20  # twice the Bible; split a larger text into several documents
NOT_OVER_HTTP = {"logits_processors", "prompt_probe", "detokenize"}  # Python objects, and an option that leaves no text
OPENAI_TEMPERATURE = 1.0  # the default of OpenAI's API
FILTERS = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}  # sampling filters, each with the value that turns it off


def json_of(
    body: Body, most: int = MAX_JSON_BYTES, what: str = "text"
) -> Callable[[Request], Coroutine[Any, Any, dict[str, Any]]]:
    """Return a dependency of an endpoint: the fields of the body, a JSON object, without those that are null.

    most: bytes of a body. what: its content, for errors. The dependency raises ApiError: 413 for a larger body; 400 for
    one that is not a JSON object in UTF-8, or that has a duplicate name, NaN, lists hundreds deep or an unknown field.
    """

    async def fields(request: Request) -> dict[str, Any]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != body.media_type:
            raise _invalid(f"send this as {body.media_type}, not {kind or 'without a type'}")
        received = bytearray()
        async for chunk in request.stream():
            received += chunk
            if len(received) > most:
                message = f"the body is larger than {most >> 20} MiB: split the {what}"
                raise ApiError(413, message, code="too_large")
        given = parse(bytes(received))
        body.check(given)
        return body.by_own_names({name: value for name, value in given.items() if value is not None})

    return fields


def parse(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ApiError for any other body; see `json_of`."""
    try:
        given = from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise _invalid(f"the body is not valid JSON: {error}: send one JSON object") from None
    if not isinstance(given, dict):
        raise _invalid(f"the body must be a JSON object, not {as_json(given)}")
    return given


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
    """Return the error of a field with a wrong value. wanted: description of a valid one."""
    return ApiError(400, f"{name} must be {wanted}, not {as_json(value)}", param=name, code="invalid_value")


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_body")
