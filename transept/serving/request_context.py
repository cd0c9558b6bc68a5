"""The id of the request that some code works for: set by `http.access`, read by the log in every thread."""

from __future__ import annotations

import logging
from contextvars import ContextVar

REQUEST_ID: ContextVar[str | None] = ContextVar("transept_request_id", default=None)


class RequestIdFilter(logging.Filter):
    """Gives each record its request's id as `request_id`, None outside of requests, and as `of_request`, for a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True: every record is logged."""
        request_id = REQUEST_ID.get()
        told = request_id is None or request_id in record.getMessage()
        record.__dict__.update(request_id=request_id, of_request="" if told else f" (request {request_id})")
        return True
