"""The id of the current request: set by `http.access`, read by the log in every thread."""

from __future__ import annotations

import logging
from contextvars import ContextVar

REQUEST_ID: ContextVar[str | None] = ContextVar("transept_request_id", default=None)


class RequestIdFilter(logging.Filter):
    """Adds the request id to each record: as `request_id`, None outside requests, and as `of_request`, for a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """True: every record is logged."""
        request_id = REQUEST_ID.get()
        told = request_id is None or request_id in record.getMessage()
        record.__dict__.update(request_id=request_id, of_request="" if told else f" (request {request_id})")
        return True
