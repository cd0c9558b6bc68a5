"""Manifest: a file with a line for each recording, appended when the recording is done.

A line is a JSON object::

    {"file": "talks/a.mp3", "status": "done", "error": null, "seconds": 4.2, "audio_seconds": 61.5, "outputs": [...],
     "warnings": [], "reason": null}

status: ``"done"``; ``"failed"``, with the reason in error; or ``"skipped"``: its outputs existed. seconds: from opening
the recording until it was done. warnings, reason: as in its Transcript. Several processes may add lines to one file;
the last line of a recording counts.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, Literal

from transept.errors import ParameterError, TranseptError
from transept.lifetime import Closable

FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # O_BINARY: Windows would write "\r\n"
# Default values of a line's fields, besides file and status.
DEFAULTS = {"error": None, "seconds": None, "audio_seconds": None, "outputs": (), "warnings": (), "reason": None}


class ManifestError(TranseptError):
    """The manifest cannot be written."""


class Manifest(Closable):
    """An open manifest. Opening it removes the partial last line of a killed process.

    finished: the recordings that are done or were skipped.
    Raises ParameterError for a file that cannot be opened, and for a file of another kind.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file = os.open(path, FLAGS, 0o666)
        except OSError as error:
            raise self._refusal(f'the manifest "{path}" cannot be written: {error.strerror}') from None
        try:
            self.finished = self._read()
        except BaseException:
            os.close(self._file)
            raise

    def _read(self) -> set[str]:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):  # a pipe, a device
            return set()
        content = Path(self._path).read_bytes()
        lines = content.split(b"\n")
        finished: set[str] = set()
        for number, line in enumerate(lines[:-1], 1):
            try:
                entry = json.loads(line)
                file, status = entry["file"], entry["status"]
            except (ValueError, TypeError, KeyError):
                raise self._refusal(
                    f'line {number} of "{self._path}" is not from a manifest; name another file'
                ) from None
            (finished.discard if status == "failed" else finished.add)(file)
        if lines[-1]:
            if not lines[-1].startswith(b'{"file": '[: len(lines[-1])]):
                raise self._refusal(f'the end of "{self._path}" is not from a manifest; name another file')
            os.ftruncate(self._file, len(content) - len(lines[-1]))
        return finished

    def _refusal(self, message: str) -> ParameterError:
        return ParameterError(message, param="manifest", value=self._path)

    def add(self, file: str, status: Literal["done", "failed", "skipped"], **values: Any) -> None:
        """Append a line. values: its other fields, if they differ from DEFAULTS.

        Raises ManifestError if it cannot be written.
        """
        values = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
        line = json.dumps({"file": file, "status": status, **DEFAULTS, **values}, default=str).encode() + b"\n"
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(None, "no space left")
        except OSError as failure:
            raise ManifestError(f'cannot write the manifest "{self._path}": {failure.strerror}') from None

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
