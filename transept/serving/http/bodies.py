"""JSON bodies: read up to a size limit, parsed strictly, and checked field by field. Used by the endpoints for text."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from jiter import from_json
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from transept.core.request.cutoffs import NEUTRAL
from transept.core.request.sampling_params import SamplingParams
from transept.serving.errors import ApiError, as_json
from transept.serving.http.fields import Body, Given
from transept.serving.settings import MIB

MAX_JSON_BYTES = 8 << 20  # twice the Bible; split a larger text into several documents
MAX_VALUES = 300_000  # of a body: more than the tokens of the most prompts; parsed in a tenth of a second
PIECE = 64 << 10  # bytes of a body that are counted at a time
STRING = re.compile(rb'"[^"]*(?:"|$)')
# Python objects, and an option that leaves no text
NOT_OVER_HTTP = {"logits_processors", "allowed_next_tokens", "prompt_probe", "detokenize"}
OPENAI_TEMPERATURE = 1.0  # the default of OpenAI's API


def json_of(
    body: Body, most: int = MAX_JSON_BYTES, max_values: int = MAX_VALUES, what: str = "text"
) -> Callable[[Request], Coroutine[Any, Any, Given]]:
    """Return a dependency of an endpoint: the fields of the body, a JSON object, without those that are null.

    most, max_values: bytes and values of a body. what: its content, for errors. The dependency raises ApiError: 413 for
    a larger body; 400 for one that is not a JSON object in UTF-8, or that has a duplicate name, NaN, lists hundreds
    deep or an unknown field.
    """

    async def fields(request: Request) -> Given:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != body.media_type:
            raise _invalid(f"send this as {body.media_type}, not {kind or 'without a type'}")
        received = bytearray()
        async for chunk in request.stream():
            received += chunk
            if len(received) > most:
                message = f"the body is larger than {most / MIB:g} MiB: split the {what}"
                raise ApiError(413, message, code="too_large")
        whole = bytes(received)
        # The parser holds the GIL, so its work is bounded: by separators, first with those in strings.
        if _separators(whole) > max_values and await run_in_threadpool(num_separators, whole) > max_values:
            message = f"the body has more than {max_values} values: split the {what}"
            raise ApiError(413, message, code="too_large")
        given = parse(whole)
        for name in given:
            body.check(name)
        return body.given({name: value for name, value in given.items() if value is not None})

    return fields


def num_separators(body: bytes) -> int:
    """Return the number of commas and opening brackets outside the strings of a JSON text, which bounds its values."""
    plain, num, in_string = body.replace(rb"\\", b"").replace(rb"\"", b""), 0, False
    for begin in range(0, len(plain), PIECE):
        piece = b'"' * in_string + plain[begin : begin + PIECE]
        in_string = piece.count(b'"') % 2 == 1
        num += _separators(STRING.sub(b"", piece))
    return num


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


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
    filters = {name: given[name] for name in NEUTRAL if given.get(name) is not None}
    SamplingParams(**filters)  # also raises for a filter that is left out below
    temperature = given.get("temperature")
    if temperature == 0 and not isinstance(temperature, bool):
        return {name: value for name, value in given.items() if name not in filters}
    searches = given.get("num_beams") not in (None, 1)
    if temperature is None and not searches and any(value != NEUTRAL[name] for name, value in filters.items()):
        given["temperature"] = OPENAI_TEMPERATURE
    return given


def is_prompt(value: Any) -> bool:
    """Return True for a text or a list of token ids."""
    are_tokens = isinstance(value, list) and bool(value) and all(type(each) is int for each in value)
    return isinstance(value, str) or are_tokens


def one_or_several(
    is_right: Callable[[Any], bool], one: str, several: str, most: int | None = None
) -> Callable[[str, Any], list[Any]]:
    """Return the parser of a field that takes a value or a list of values.

    is_right: returns True for a valid value. one, several: describe a valid value and a valid field, for ApiError.
    most: maximum number of values.
    """

    def parse(name: str, given: Any) -> list[Any]:
        values = given if isinstance(given, list) and not is_right(given) else [given]
        at_fault = [index for index, each in enumerate(values) if not is_right(each)]
        if len(values) > 1 and at_fault:
            raise wrong(f"{name}[{at_fault[0]}]", one, values[at_fault[0]])
        if not values or at_fault:
            raise wrong(name, several, given)
        if most is not None and len(values) > most:
            message = f"{name} has {len(values)} values, more than {most} in one request: split it"
            raise ApiError(400, message, param=name, code="too_many")
        return values

    return parse


def wrong(name: str, wanted: str, value: Any) -> ApiError:
    """Return the error of a field with a wrong value. wanted: description of a valid one."""
    return ApiError(400, f"{name} must be {wanted}, not {as_json(value)}", param=name, code="invalid_value")


def _invalid(message: str) -> ApiError:
    return ApiError(400, message, code="invalid_body")
