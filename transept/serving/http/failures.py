"""What a client is told when something fails, wherever that was: it is counted, and logged where it is ours."""

from __future__ import annotations

import logging

from starlette.types import Scope

from transept.core.jobs.tracebacks import drop_traceback
from transept.serving.errors import ApiError, api_error

logger = logging.getLogger(__name__)


def answer_to(scope: Scope, error: Exception) -> ApiError:
    """Return the answer to an error of the request with this scope. Drops the error's traceback once it is logged."""
    told = api_error(error)
    if told.status >= 500 and told.status not in (503, 507):  # these two are not the server's fault
        logger.error("request %s failed", scope["state"]["request_id"], exc_info=error)
    drop_traceback(error)
    scope["app"].state.metrics.refused(told)
    return told
