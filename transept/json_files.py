"""read_json: read the small files of an untrusted checkpoint, up to a size limit."""

from __future__ import annotations

import json
from pathlib import Path
from stat import S_ISREG
from typing import Any

from transept.errors import CheckpointError

MOST_JSON_BYTES = 64 << 20  # 64 MiB; the index of a thousand shards has a few MB


def check_file(path: Path, most_bytes: int) -> None:
    """Raise CheckpointError for a path that is not a regular file, and for a file of more bytes."""
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f'cannot read "{path}": {error}') from None
    if not S_ISREG(status.st_mode):
        raise CheckpointError(f'cannot read "{path}": it is not a regular file')
    if status.st_size > most_bytes:
        raise CheckpointError(f'"{path}" has {status.st_size:,} bytes, more than the limit of {most_bytes:,}')


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file. Raises CheckpointError for any other content, and as read_json_value."""
    content = read_json_value(path)
    if not isinstance(content, dict):
        raise CheckpointError(f'"{path}" is not a JSON object')
    return content


def read_json_value(path: Path) -> Any:
    """Return the JSON value in a file, which may begin with a byte order mark.

    Raises CheckpointError if it cannot be read, is not JSON or is larger than MOST_JSON_BYTES.
    """
    check_file(path, MOST_JSON_BYTES)
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: thousands of nested brackets
        raise CheckpointError(f'cannot read "{path}": {error}') from None
