"""The JSON events that the server sends. docs/reference/realtime.md lists them. Called by `session` and `items`."""

from __future__ import annotations

import uuid
from typing import Any

from transept.serving.errors import ApiError

OF_ITEM = "conversation.item.input_audio_transcription"


def new_id(kind: str) -> str:
    """Return an id such as ``item_8d0f...``."""
    return f"{kind}_{uuid.uuid4().hex[:24]}"


def event(kind: str, **fields: Any) -> dict[str, Any]:
    """Return an event with a new id."""
    return {"type": kind, "event_id": new_id("event"), **fields}


def error_event(error: ApiError, event_id: str | None = None) -> dict[str, Any]:
    """Return an error as an event. event_id: of the client's event at fault."""
    return event("error", error={**error.body()["error"], "event_id": event_id})


def item_events(item_id: str, previous: str | None) -> list[dict[str, Any]]:
    """Return the events that announce an item of committed audio, in OpenAI's order."""
    item = {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "status": "completed",
        "role": "user",
        "content": [{"type": "input_audio", "transcript": None}],
    }
    return [
        event("input_audio_buffer.committed", item_id=item_id, previous_item_id=previous),
        event("conversation.item.added", item=item, previous_item_id=previous),
        event("conversation.item.done", item=item, previous_item_id=previous),
    ]
