"""``POST /v1/realtime/client_secrets``: short-lived keys for browsers, in OpenAI's format."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response
from typing_extensions import TypedDict

from transept.options import Option, take_options
from transept.serving.http import bodies
from transept.serving.http.answers import answers
from transept.serving.http.fields import JSON, Body, Given
from transept.serving.http.places import Place, place_of
from transept.serving.realtime.client_secrets import ClientSecrets
from transept.serving.realtime.events import new_id
from transept.serving.realtime.session_options import TranscriptionSession, part

router = APIRouter(tags=["speech"])

MAX_BYTES = 64 << 10  # of a body


@dataclass(frozen=True)
class ExpiresAfter:
    """Life of a secret. A session that it opened may last longer."""

    anchor: Annotated[Literal["created_at"], Option("the time from which the seconds count")] = "created_at"
    seconds: Annotated[int, Option("seconds for which the secret opens sessions", ge=10, le=7200)] = 600

    def __post_init__(self) -> None:
        take_options(self)


@dataclass(frozen=True)
class SecretFields:
    """The fields of the body."""

    session: Annotated[TranscriptionSession | None, part(TranscriptionSession, "settings of the sessions")] = None
    expires_after: Annotated[
        ExpiresAfter | None, part(ExpiresAfter, "life of the secret", "an object with seconds")
    ] = None


class ClientSecret(TypedDict):
    """A secret. value: in place of an API key, for `/v1/realtime` only. expires_at: Unix time."""

    value: str
    expires_at: int
    session: dict[str, Any]


BODY = Body(JSON, SecretFields)
AnyPlace = Annotated[Place, Depends(place_of(None))]
Fields = Annotated[Given, Depends(bodies.json_of(BODY, MAX_BYTES, what="prompt"))]


@router.post("/v1/realtime/client_secrets", openapi_extra=BODY.documented(), responses=answers(ClientSecret))
async def client_secrets(request: Request, place: AnyPlace, given: Fields) -> Response:
    """Make a client secret."""
    fields = given.made(SecretFields)
    session = fields.session or TranscriptionSession()
    if session.input.transcription.model is not None:
        place.models.get(session.input.transcription.model, "speech")
    expires_at = int(time.time()) + (fields.expires_after or ExpiresAfter()).seconds
    secrets: ClientSecrets = request.app.state.secrets
    described = session.described()
    value = secrets.make(described, expires_at)
    shown = {"id": new_id("sess"), "object": "realtime.transcription_session", **described}
    return JSONResponse({"value": value, "expires_at": expires_at, "session": shown})
