"""Errors in OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``, and the status of each of ours."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from starlette.responses import JSONResponse

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

# Error of ours -> status, code, seconds after which to try again; the first that fits.
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
OF_DATA = (MediaTooLargeError, MediaError, PromptError)  # about the data of a request, unless an option is at fault
# Option -> the alias under which the current request has it. Set by `http.fields`.
SENT_NAMES: ContextVar[Mapping[str, str] | None] = ContextVar("transept_sent_names", default=None)
LONGEST_MESSAGE = 2000  # characters, since it may repeat what a client sent
FLAG = re.compile(r"(?<![\w'\"])(?:True|False)(?![\w'\"])")  # Python's words for JSON's true and false
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
        """The JSON object."""
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """What OpenAI's client looks at before it tries again, and others do."""
        headers = dict(self.more_headers)
        if self.retry_after is not None:
            headers |= retry_headers(self.retry_after)
        if self.status == 408:
            headers["Connection"] = "close"  # the rest of the body is not read (RFC 9110, section 15.5.9)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers

    def response(self) -> JSONResponse:
        """The answer."""
        return JSONResponse(self.body(), self.status, self.headers())


def _sendable(text: str) -> str:
    """A text that may repeat what a client sent: bounded, and without halves of surrogate pairs, which are no UTF-8."""
    text = text.encode(errors="replace").decode()
    return text if len(text) <= LONGEST_MESSAGE else f"{text[:LONGEST_MESSAGE]}..."


def client_gone() -> ApiError:
    """The error of a client that hung up. 499 is nginx's number for it, for the log; nobody is there to read it."""
    return ApiError(499, "the client went away", code="client_gone")


def retry_headers(seconds: float) -> dict[str, str]:
    """Retry-After, in whole seconds, and retry-after-ms."""
    return {"Retry-After": str(max(1, math.ceil(seconds))), "retry-after-ms": str(max(1, round(1000 * seconds)))}


def api_error(error: Exception, data_field: str | None = None, field_of: Callable[[str], str] = str) -> ApiError:
    """Return what a client is told of an exception. A failure of the server itself tells nothing of its cause.

    data_field: the one that holds the audio, text or image. field_of: returns the client's field for an option.
    """
    if isinstance(error, ApiError):
        return error
    known = next((kind for kind in KINDS if isinstance(error, kind)), None)
    if known is None:
        what = "the model failed on this request" if isinstance(error, TranseptError) else "something went wrong here"
        return ApiError(
            500, f"{what}; the server's log says why, beside the X-Request-Id of this answer", code="failed"
        )
    assert isinstance(error, TranseptError)
    status, code, retry_after = KINDS[known]
    error = error.spelling(SENT_NAMES.get() or {})
    message = error.spelt(field_of, lambda name, value: f"{field_of(name)}={as_json(value)}")
    if known is ParameterError:  # Python's values as JSON's
        message = re.sub(rf"(?<!\w){re.escape(shown(error.value))}(?!\w)", lambda found: as_json(error.value), message)
        message = FLAG.sub(lambda found: found[0].lower(), message)
    param = field_of(error.param) if error.param else data_field if known in OF_DATA else None
    return ApiError(status, message, param=param, code=code, retry_after=retry_after)


def as_json(value: Any) -> str:
    """A value for a message as JSON, as far as it has one; LONGEST_REPR characters at most."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return shown(value)
    return text if len(text) <= LONGEST_REPR else f"{text[:LONGEST_REPR]}..."
