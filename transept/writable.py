"""why_unwritable: check before any work that its result can be written."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def why_unwritable(path: str | os.PathLike[str]) -> str | None:
    """Return why no file can be written to a path; None if no reason is found.

    Nothing is created: missing folders are left to the writer. A full disk only shows when the file is written.
    """
    place = Path(os.path.realpath(path))
    try:
        if place.is_dir():
            return os.strerror(errno.EISDIR)
        if place.exists() and not place.is_file():  # a pipe, a device
            return None if os.access(place, os.W_OK) else os.strerror(errno.EACCES)
        folder = next(each for each in place.parents if each.exists())
        if not folder.is_dir():
            return os.strerror(errno.ENOTDIR)
    except OSError as error:
        return error.strerror or str(error)
    return None if os.access(folder, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
