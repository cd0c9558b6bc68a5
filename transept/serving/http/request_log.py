"""The log line of each request. Called by `access`, and by `server` for malformed requests."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from typing import Any

from starlette.routing import Match
from starlette.types import Scope

from transept.serving.settings import ServerSettings

logger = logging.getLogger("transept.requests")

PROBES = ("/health", "/ready", "/metrics")  # called every few seconds
UNKNOWN = "(unknown)"  # in place of a path without an endpoint, which may contain anything
WEBSOCKET = "WEBSOCKET"  # in place of a method
CONVERTOR = re.compile(r":\w+\}")  # of a path parameter, in Starlette's syntax


def endpoint_of(scope: Scope) -> str:
    """Return the pattern of a request's path, such as ``/v1/models/{name}``.

    A request that was refused before routing has the endpoint that matches its path, with any method.
    scope["app"].state.routes: those of `build_app`.
    """
    if path := getattr(scope.get("route"), "path", None):
        return CONVERTOR.sub("}", str(path))
    whole = {**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))}  # the page's files change it
    for route in scope["app"].state.routes:
        if route.matches(whole)[0] is not Match.NONE:
            return CONVERTOR.sub("}", str(route.path))
    return UNKNOWN


def log_request(scope: Scope, settings: ServerSettings, status: int, seconds: float) -> None:
    """Log one request, as JSON or as a line of text. The method is the only data of the client in it.

    Probes are logged only if the settings say so. scope["state"]: `log` of the endpoint, and `method` of `HttpRules`.
    """
    state, endpoint = scope["state"], endpoint_of(scope)
    if endpoint in PROBES and not settings.log_probes:
        return
    method = state.get("method") or scope.get("method", WEBSOCKET)
    write_line(settings, state["request_id"], method, endpoint, status, seconds, state.get("log", {}))


def write_line(
    settings: ServerSettings,
    request_id: str,
    method: str,
    endpoint: str,
    status: int,
    seconds: float,
    more: Mapping[str, Any],
) -> None:
    """Write a line of the log. more: further fields. A malformed request has the method and the endpoint UNKNOWN."""
    line: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "request_id": request_id,
        "method": method,
        "path": endpoint,
        "status": status,
        "seconds": round(seconds, 3),
        **more,
    }
    logger.info(json.dumps(line) if settings.log_json else _as_text(line))


def _as_text(line: dict[str, Any]) -> str:
    """Return a line such as ``POST /v1/summarize 200 in 0.241 s, model=bart (request 0f3a)``."""
    first = ("time", "request_id", "method", "path", "status", "seconds")
    more = "".join(f", {name}={value}" for name, value in line.items() if name not in first)
    return (
        f"{line['method']} {line['path']} {line['status']} in {line['seconds']:.3f} s{more} "
        f"(request {line['request_id']})"
    )
