"""Errors for uploads that cannot be stored, because the disk is full or files cannot be opened.

`http.forms` receives and copies uploads within `kept`. Nothing here writes files.
"""

from __future__ import annotations

import errno
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from transept.serving.errors import ApiError

logger = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a user's quota, or the largest allowed file
NO_FILES = (errno.EMFILE, errno.ENFILE)
RETRY_SECONDS = 30.0  # time for other uploads to end


@contextmanager
def kept() -> Iterator[None]:
    """Raise ApiError for a file that cannot be written: 507 if the disk is full, 503 if too many files are open.

    The log names the full folder; the answer does not.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            logger.error("an upload could not be kept in %s: %s", _folder(), error.strerror)
            message = (
                "the server has no room on its disk for this upload: send a smaller file, such as one compressed to "
                "opus or mp3, or try again later"
            )
            raise ApiError(507, message, param="file", code="disk_full", retry_after=RETRY_SECONDS) from error
        if error.errno in NO_FILES:
            logger.error("an upload could not be kept: %s", error.strerror)
            message = "the server has too many open files to take this upload: try again later"
            raise ApiError(503, message, code="unavailable", retry_after=RETRY_SECONDS) from error
        raise


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # no folder can be written to
        return "the temporary folder"
