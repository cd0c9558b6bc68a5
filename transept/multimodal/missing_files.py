"""Say why a file cannot be opened, with the nearest name if it is missing."""

from __future__ import annotations

import itertools
import os

from transept.errors import nearest

MOST_FILES = 1000  # compared in a folder, at most


def why_unopened(path: str | bytes | os.PathLike[str], error: OSError | ValueError) -> str:
    """Return the reason: ``No such file or directory. Did you mean 'talks/monday.mp3'?``. error: raised by ``open``."""
    near = _nearest_file(os.fsdecode(path)) if isinstance(error, FileNotFoundError) else None
    return f"{getattr(error, 'strerror', None) or error}{f'. Did you mean {near!r}?' if near else ''}"


def _nearest_file(path: str) -> str | None:
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_FILES)]
    except (OSError, ValueError):
        return None
    near = nearest(name, names)
    return near and os.path.join(folder, near)
