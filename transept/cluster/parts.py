"""The output of a batch: a folder of parts, which are written atomically, and the rows that they already have.

One process writes a folder. A file in it records the settings of its command, so that outputs cannot be mixed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from transept import system
from transept.cluster.columns import OPTIONAL_FIELDS
from transept.cluster.files import filesystem_of, is_uri, reason_of
from transept.errors import ParameterError, TranseptError, shown
from transept.lifetime import Closable

Format = Literal["jsonl", "parquet"]
FORMATS = ("jsonl", "parquet")
RECORD = "_transept.json"  # readers of Parquet folders skip names that begin with _ or .
PART, UNFINISHED = "part-", ".unfinished-"


class OutputError(TranseptError):
    """The output cannot be written, or belongs to another command."""


class OutputFolder(Closable):
    """A folder of parts, created if missing. A context manager.

    place: a path or a URI. format: of the parts. record: settings that determine the results, such as the model; a
        folder with rows of other settings is refused.
    done: ``file`` of each written row -> its error, or None.
    Raises OutputError for a folder that cannot be written, or to which another process writes.
    """

    def __init__(self, place: str, format: Format, record: Mapping[str, Any]) -> None:
        self.place, self.format = place, format
        now = datetime.now(UTC)
        self._run = f"{now:%Y%m%dT%H%M%S.%f}-{secrets.token_hex(2)}"  # unique part names for each run
        self._num_parts = 0
        self._lock: int | None = None
        try:
            if is_uri(place):
                self._files, self._path = filesystem_of(place)
            else:
                self._files, self._path = pa.fs.LocalFileSystem(), os.path.abspath(place)
            self._path = self._path.rstrip("/")
            self._files.create_dir(self._path, recursive=True)
            self.is_local = isinstance(self._files, pa.fs.LocalFileSystem)
            if self.is_local:
                self._take_lock()
                for each in Path(self._path).glob(f"{UNFINISHED}*"):
                    each.unlink()
            self._check_record({"format": format, **record})
            self.done = {row["file"]: row["error"] for name in self._names() for row in self._rows(name)}
        except (OSError, ValueError, pa.ArrowException) as error:
            self.close()
            if isinstance(error, ParameterError):
                raise
            raise OutputError(f'cannot write to the folder "{place}": {reason_of(error)}') from error
        except BaseException:
            self.close()
            raise

    def write(self, rows: pa.Table) -> None:
        """Write rows as a new part. They need the columns ``file`` and ``error``. Raises OutputError."""
        self._num_parts += 1
        name = f"{PART}{self._run}-{self._num_parts:05}.{self.format}"
        self._write_whole(name, self._bytes(rows))
        self.done |= {row["file"]: row["error"] for row in rows.select(["file", "error"]).to_pylist()}

    def forget_failed(self) -> None:
        """Delete rows with errors from the parts, so that they are repeated."""
        for name in self._names():
            rows = list(self._rows(name))
            kept = [row for row in rows if row["error"] is None]
            if len(kept) == len(rows):
                continue
            if not kept:
                self._files.delete_file(f"{self._path}/{name}")
            elif self.format == "jsonl":
                self._write_whole(name, _lines(kept))
            else:
                table = pa.parquet.read_table(f"{self._path}/{name}", filesystem=self._files)
                self._write_whole(name, self._bytes(table.filter(pa.compute.is_null(table["error"]))))
        self.done = {file: error for file, error in self.done.items() if error is None}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all written rows."""
        for name in self._names():
            yield from self._rows(name, columns=None)

    def _names(self, all_formats: bool = False) -> list[str]:
        selector = pa.fs.FileSelector(self._path)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return sorted(
            name for name in names if name.startswith(PART) and (all_formats or name.endswith(f".{self.format}"))
        )

    def _rows(self, name: str, columns: tuple[str, ...] | None = ("file", "error")) -> Iterator[dict[str, Any]]:
        path = f"{self._path}/{name}"
        if self.format == "parquet":
            given = None if columns is None else list(columns)
            yield from pa.parquet.read_table(path, filesystem=self._files, columns=given).to_pylist()
            return
        with self._files.open_input_stream(path) as opened:
            for line in opened.read().splitlines():
                row: dict[str, Any] = json.loads(line)
                yield row

    def _bytes(self, rows: pa.Table) -> bytes:
        if self.format == "jsonl":
            return _lines(rows.to_pylist())
        sink = io.BytesIO()
        pa.parquet.write_table(rows, sink)
        return sink.getvalue()

    def _write_whole(self, name: str, data: bytes) -> None:
        """Write a file atomically; object stores do so themselves."""
        path = f"{self._path}/{name}"
        try:
            if not self.is_local:
                with self._files.open_output_stream(path) as opened:
                    opened.write(data)
                return
            unfinished = Path(self._path) / f"{UNFINISHED}{name}"
            try:
                with unfinished.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(unfinished, path)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
        except (OSError, pa.ArrowException) as error:
            raise OutputError(f'cannot write "{self.place}/{name}": {reason_of(error)}') from error

    def _check_record(self, record: Mapping[str, Any]) -> None:
        path = f"{self._path}/{RECORD}"
        is_new = self._files.get_file_info(path).type == pa.fs.FileType.NotFound
        if is_new or not self._names(all_formats=True):  # a folder without parts may be reused
            self._write_whole(RECORD, json.dumps(record, indent=1, default=str).encode())
            return
        with self._files.open_input_stream(path) as opened:
            there = _settings(json.loads(opened.read()))
        new = _settings(json.loads(json.dumps(record, default=str)))
        for name in sorted({*there, *new}):
            if there.get(name) != new.get(name):
                raise OutputError(
                    f'"{self.place}" has results with {name}={shown(there.get(name))}, but this command has '
                    f"{shown(new.get(name))}: use another folder"
                )

    def _take_lock(self) -> None:
        if sys.platform == "win32":
            return  # which opens no folders
        self._lock = os.open(self._path, os.O_RDONLY)
        try:
            system.lock(self._lock, wait=False)
        except BlockingIOError:
            raise OutputError(
                f'another process is writing to "{self.place}": wait for it, or use another folder'
            ) from None

    def close(self) -> None:
        """Let other processes write to the folder."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self._lock = None


def _settings(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with its options at the top level."""
    return {**record, **(record.get("options") or {})} | {"options": None}


def _lines(rows: list[dict[str, Any]]) -> bytes:
    """Return rows as lines of JSON, with segments as from Segment.to_dict, without missing fields."""
    for row in rows:
        for segment in row.get("segments") or ():
            for name in OPTIONAL_FIELDS:
                if segment.get(name, ...) is None:
                    del segment[name]
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
