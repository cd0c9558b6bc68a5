"""ClientSecrets: short-lived keys with a session's settings, which a server makes for browsers.

A secret is signed and not stored: its text contains the settings and the time of its expiry. So a client cannot fill
the server's memory with secrets, and every process with the same API keys accepts them. `http.client_secrets`
makes them, and `http.access` checks them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterable
from typing import Any

from transept.serving.errors import ApiError

PREFIX = "ek_"  # OpenAI's; its JavaScript client allows keys that begin with it in browsers
LONGEST = 8 << 10  # characters of a secret, so that it fits into a request's headers
PURPOSE = b"transept client secrets 1"


class ClientSecrets:
    """Makes and reads client secrets. api_keys: the server's, from which the signing key is derived.

    Without API keys, the signing key is random, so secrets are valid only until the process ends.
    """

    def __init__(self, api_keys: Iterable[str]) -> None:
        keys = "\0".join(sorted(api_keys)).encode()
        self._key = hmac.digest(keys or secrets.token_bytes(32), PURPOSE, hashlib.sha256)

    def make(self, session: dict[str, Any], expires_at: int) -> str:
        """Return a secret. session: settings as JSON. expires_at: Unix time. Raises ApiError if it is too long."""
        content = {"session": session, "expires_at": expires_at, "nonce": secrets.token_hex(4)}
        text = _base64(json.dumps(content, separators=(",", ":")).encode())
        secret = f"{PREFIX}{text}.{self._signature(text)}"
        if len(secret) > LONGEST:
            message = "the session is too long for a client secret: shorten its prompt, or send it in session.update"
            raise ApiError(400, message, param="session", code="too_large")
        return secret

    def read(self, secret: str) -> dict[str, Any]:
        """Return the session's settings. Raises ApiError: 401 for an expired secret or one of another server."""
        text, _, signature = secret.removeprefix(PREFIX).partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(text).encode()):
            raise _refused("is not one of this server")
        content = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if content["expires_at"] <= time.time():
            raise _refused("has expired")
        session: dict[str, Any] = content["session"]
        return session

    def _signature(self, text: str) -> str:
        return _base64(hmac.digest(self._key, text.encode(), hashlib.sha256))


def _base64(data: bytes) -> str:
    """Return bytes as characters that a WebSocket subprotocol may contain."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _refused(what: str) -> ApiError:
    message = f"the client secret {what}: make another one by POST /v1/realtime/client_secrets"
    return ApiError(401, message, code="invalid_api_key")
