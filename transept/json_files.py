"""read_json: the small files of a checkpoint, which a stranger wrote, read within bounds."""

from __future__ import annotations

import json
from pathlib import Path
from stat import S_ISREG
from typing import Any

from transept.errors import CheckpointError

MOST_JSON_BYTES = 64 << 20  # 64 MiB; an index of a thousand shards has some MB


def check_file(path: Path, most_bytes: int) -> None:
    """Raise CheckpointError for what is no file, and for one of more bytes, before it is read into memory."""
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f'cannot read "{path}": {error}') from None
    if not S_ISREG(status.st_mode):
        raise CheckpointError(f'cannot read "{path}": it is no file')
    if status.st_size > most_bytes:
        raise CheckpointError(f'"{path}" has {status.st_size:,} bytes, and at most {most_bytes:,} are read into memory')


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError when it cannot be read, is no object, or is far too large."""
    content = read_json_value(path)
    if not isinstance(content, dict):
        raise CheckpointError(f'"{path}" is not a JSON object')
    return content


def read_json_value(path: Path) -> Any:
    """Any JSON value from a file. Raises CheckpointError when it cannot be read or is far too large."""
    check_file(path, MOST_JSON_BYTES)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: thousands of brackets in each other
        raise CheckpointError(f'cannot read "{path}": {error}') from None
