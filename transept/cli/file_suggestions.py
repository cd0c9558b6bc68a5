"""Suggest the nearest file name for a missing file."""

from __future__ import annotations

import itertools
import os

from transept.errors import nearest

MOST_FILES = 1000  # compared in a folder, at most


def suggest_file(path: str) -> str:
    """Return the end of a message about a missing file, ``. Did you mean 'talks/monday.mp3'?``, or an empty string."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            names = [entry.name for entry in itertools.islice(entries, MOST_FILES)]
    except (OSError, ValueError):
        return ""
    near = nearest(name, names)
    return f". Did you mean {os.path.join(folder, near)!r}?" if near else ""
