"""HTTP rules (RFC 9110, RFC 9112) for every path that the framework does not implement.

Plain ASGI, around the application of one process and around the router of a cluster.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transept.serving.errors import ApiError

ABSOLUTE = re.compile(r"https?://[^/]*", re.IGNORECASE)


class HttpRules:
    """ASGI middleware.

    HEAD is answered like GET, without the body. Redirects have a relative Location, since the server does not know the
    scheme and host that its clients see. A connection whose framing is ambiguous is closed after the answer. A target
    with scheme and host, as clients send it to proxies, is reduced to its path.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        _take_origin_form(scope)
        is_head, closes = scope["method"] == "HEAD", _has_two_lengths(Headers(scope=scope))
        scope.setdefault("state", {})["method"] = scope["method"]  # for the log

        async def send_by_rules(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "location" in headers:
                    headers["Location"] = _relative(headers["location"])
                if closes:
                    headers["Connection"] = "close"
            elif is_head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self.app({**scope, "method": "GET"} if is_head else scope, receive, send_by_rules)


def _take_origin_form(scope: Scope) -> None:
    """Replace an absolute-form target, ``http://host/health``, by its path (RFC 9112, section 3.2.2)."""
    if found := ABSOLUTE.match(scope["path"]):
        scope["path"] = scope["path"][found.end() :] or "/"
        raw = scope.get("raw_path") or b""
        scope["raw_path"] = raw[len(found[0]) :] if raw.startswith(found[0].encode()) else scope["path"].encode()


def check_encoding(headers: Headers) -> None:
    """Raise ApiError for a compressed body: 415, with the accepted encodings (RFC 9110, section 15.5.16)."""
    encoding = headers.get("content-encoding", "").strip()
    if encoding.lower() not in ("", "identity"):
        raise ApiError(
            415,
            f"the body has Content-Encoding {encoding[:100]!r}, which this server does not decompress: send it "
            "without, and recordings in a compressed format such as opus or mp3",
            code="unsupported_encoding",
            headers={"Accept-Encoding": "identity"},
        )


async def refuse_query(request: Request) -> None:
    """Raise ApiError for a query parameter: endpoints take none, and a misplaced field must not be lost."""
    for name in request.query_params:
        shown = name[:100]
        message = f"the query parameter {shown!r} is unknown. Send fields in the body of the request"
        raise ApiError(400, message, param=shown, code="unknown_parameter")


def _has_two_lengths(headers: Headers) -> bool:
    """True for a request with both Content-Length and Transfer-Encoding.

    The server uses the latter and closes the connection, because a proxy that uses the former would see different
    boundaries between requests (RFC 9112, section 6.1).
    """
    return "transfer-encoding" in headers and "content-length" in headers


def _relative(location: str) -> str:
    """Return a redirect's target without scheme and host. Two slashes at its start would name a host."""
    target = urlsplit(location)
    return urlunsplit(("", "", "/" + target.path.lstrip("/"), target.query, target.fragment))
