"""Errors in OpenAI's format, ``{"error": {"message", "type", "param", "code"}}``, and the status of each exception."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Scope

from transept.core.jobs.tracebacks import drop_traceback
from transept.errors import (
    LONGEST_REPR,
    CapacityError,
    EngineClosedError,
    MediaError,
    MediaTooLargeError,
    ParameterError,
    PromptError,
    QueueFullError,
    TranseptError,
    UnsupportedModelError,
    shown,
)

logger = logging.getLogger(__name__)

# Exception -> status, code, seconds after which to try again. The first that matches applies.
KINDS: dict[type[TranseptError], tuple[int, str, float | None]] = {
    QueueFullError: (429, "queue_full", 1.0),
    EngineClosedError: (503, "unavailable", 5.0),
    MediaTooLargeError: (413, "too_large", None),
    MediaError: (400, "invalid_media", None),
    PromptError: (400, "invalid_prompt", None),
    ParameterError: (400, "invalid_value", None),
    CapacityError: (413, "too_large", None),
    UnsupportedModelError: (400, "unsupported_model", None),
}
OF_DATA = (MediaTooLargeError, MediaError, PromptError)  # caused by the data of a request, unless an option is at fault
LONGEST_MESSAGE = 2000  # characters, because it may repeat a value from the client
TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    507: "server_error",
}


class ApiError(Exception):
    """An error that answers a request.

    param: the field at fault. code: for programs. retry_after: seconds. headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message, param = _sendable(message), param and _sendable(param)
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after = retry_after
        self.more_headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Return the JSON object."""
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Return the headers, with those that tell clients when to try again."""
        headers = dict(self.more_headers)
        if self.retry_after is not None:
            headers |= retry_headers(self.retry_after)
        if self.status == 408:
            headers["Connection"] = "close"  # the rest of the body is not read (RFC 9110, section 15.5.9)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers

    def response(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse(self.body(), self.status, self.headers())


def _sendable(text: str) -> str:
    """Truncate a text that may repeat a client's value, and replace halves of surrogate pairs, which UTF-8 excludes."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."


def client_gone() -> ApiError:
    """Return the error of a client that disconnected. It is only logged; 499 is nginx's status for it."""
    return ApiError(499, "the client disconnected", code="client_gone")


def retry_headers(seconds: float) -> dict[str, str]:
    """Return the headers Retry-After, in whole seconds, and retry-after-ms."""
    return {"Retry-After": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, round(1000 * seconds)))}


def api_error(error: Exception, data_field: str | None = None, field_of: Callable[[str], str] = str) -> ApiError:
    """Return the answer to an exception. For an internal error, it does not contain the cause.

    data_field: the field that contains the audio, text or image. field_of: returns the client's field for an option, or
    the field with the value that set the option.
    """
    if isinstance(error, ApiError):
        return error
    known = next((kind for kind in KINDS if isinstance(error, kind)), None)
    if known is None:
        what = "the model failed on this request" if isinstance(error, TranseptError) else "the server failed"
        return ApiError(500, f"{what}; see the server's log for the X-Request-Id of this answer", code="failed")
    assert isinstance(error, TranseptError)
    status, code, retry_after = KINDS[known]
    message = error.spelt(field_of, lambda name, value: f"{field_of(name)}={as_json(value)}", as_json)
    param = field_of(error.param).partition("=")[0] if error.param else data_field if known in OF_DATA else None
    return ApiError(status, message, param=param, code=code, retry_after=retry_after)


def answer_to(scope: Scope, error: Exception) -> ApiError:
    """Return the answer to an error of the request with this scope: count it, and log it if it is an internal error.

    Drops the error's traceback.
    """
    answer = api_error(error)
    if answer.status >= 500 and answer.status not in (503, 507):  # temporary; forms.py logs a full disk itself
        logger.error("request %s failed", scope["state"]["request_id"], exc_info=error)
    drop_traceback(error)
    scope["app"].state.metrics.refused(answer)
    return answer


def as_json(value: Any) -> str:
    """Return a value as JSON for a message, or its repr if it has none, truncated to LONGEST_REPR characters."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return shown(value)
    return text if len(text) <= LONGEST_REPR else f"{text[:LONGEST_REPR]}..."
