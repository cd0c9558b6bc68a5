"""Transcripts in files, read to the dict that `Transcript.from_dict` takes; `Transcript.read` calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transept.errors import ParameterError, suggest
from transept.speech.dialects import transcript_dict

READ_FORMATS = ("json",)
MAX_BYTES = 256 << 20  # of a file


def read_transcript(file: str | Path, format: str | None = None) -> dict[str, Any]:
    """Return the dict of a file. Raises ParameterError for a file that is not a transcript, OSError to open it."""
    path = Path(file)
    name = path.suffix.lower().removeprefix(".") if format is None else format
    if name not in READ_FORMATS:
        if format is not None:
            message = f"there is no {{format}} {format!r} to read.{suggest(str(format), READ_FORMATS)}"
            raise ParameterError(message, param="format", value=format)
        message = f'cannot read "{path}": a transcript to read is a file of {", ".join(READ_FORMATS)}'
        raise ParameterError(message, param="file", value=file)
    with path.open("rb") as opened:
        data = opened.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        message = f'cannot read "{path}": it has more than {MAX_BYTES >> 20} MB; split it'
        raise ParameterError(message, param="file", value=file)
    try:
        return _read_json(data)
    except ParameterError as error:
        raise error.at(f'cannot read "{path}"', param="file") from None


def _read_json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ParameterError(f"it is not UTF-8 text ({error})", param="file") from None
    except (ValueError, RecursionError) as error:
        lines = " Each line may be a transcript; give one of them." if data.lstrip()[:1] == b"{" else ""
        raise ParameterError(f"it is not JSON ({error}).{lines}", param="file") from None
    return transcript_dict(value)
