"""Find the inputs of a batch: files from folders, patterns, manifests and URIs, and documents from manifests.

Called by `transept batch`. Uses pyarrow's filesystems for local paths and object stores. Reads the rows of manifests,
but not the content of other files.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from transept.cluster.files import filesystem_of, is_uri, reason_of
from transept.errors import ParameterError

MANIFESTS = (".jsonl", ".parquet")
HIDDEN = re.compile(r"(?:^|/)\.")
NOT_UTF8 = "its name is not UTF-8: rename it"
COLUMNS = ("file", "text")  # of a manifest, which needs at least one of them


@dataclass(frozen=True)
class Input:
    """A row of a batch. file: the user's name for it, which identifies its result; unique in a batch.

    path: absolute, or a URI; None for a row without a file. text: the document, if a manifest contains it.
    """

    file: str
    path: str | None
    text: str | None = None


@dataclass(frozen=True)
class Missing:
    """An argument without inputs, and the reason."""

    argument: str
    reason: str


def find_inputs(arguments: Iterable[str], suffixes: Collection[str]) -> tuple[list[Input], list[Missing]]:
    """Return the rows of arguments, without duplicates, in order, and the arguments without rows.

    suffixes: lowercase, of the files to find in folders and their subfolders, without hidden ones. A pattern finds all
    files that it matches. A manifest is a file of `MANIFESTS` with a column ``file`` or ``text``.
    Raises ParameterError for an invalid manifest.
    """
    found: dict[str, Input] = {}
    missing: list[Missing] = []
    for argument in arguments:
        for each in _of_argument(argument, suffixes):
            if isinstance(each, Missing):
                missing.append(each)
            else:
                found.setdefault(each.file, each)
    return list(found.values()), missing


def _of_argument(argument: str, suffixes: Collection[str]) -> Iterator[Input | Missing]:
    if _escaped(argument) != argument:
        yield Missing(_escaped(argument), NOT_UTF8)
        return
    if not is_uri(argument) and glob.has_magic(argument) and not os.path.lexists(argument):
        yield from _of_pattern(argument, suffixes)
        return
    try:
        filesystem, path = _filesystem(argument)
        info = filesystem.get_file_info(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        yield Missing(argument, reason_of(error))
        return
    if info.type == pa.fs.FileType.Directory:
        yield from _of_folder(argument, suffixes)
    elif info.type == pa.fs.FileType.NotFound:
        if is_uri(argument) and "*" in path:
            yield from _of_uri_pattern(argument, filesystem, path)
        else:
            yield Missing(argument, "there is no such file")
    elif argument.lower().endswith(MANIFESTS):
        yield from _of_manifest(argument, filesystem, path)
    else:
        yield _input(argument)


def _filesystem(argument: str) -> tuple[Any, str]:
    """Return the filesystem of a path or a URI, and the path in it."""
    return filesystem_of(argument) if is_uri(argument) else (pa.fs.LocalFileSystem(), os.path.abspath(argument))


def _input(file: str) -> Input:
    return Input(file, file if is_uri(file) else os.path.abspath(file))


def _below(root: str, path: str) -> Input:
    """Return a file found below a folder or URI. path: relative to it, with unescaped characters."""
    return Input(root + path, root + quote(path) if is_uri(root) else os.path.abspath(root + path))


def _of_pattern(pattern: str, suffixes: Collection[str]) -> Iterator[Input | Missing]:
    matches = sorted(glob.glob(pattern, recursive=True))
    if not matches:
        yield Missing(pattern, "no such file, and no file matches it as a pattern")
    for match in matches:
        if _escaped(match) != match:
            yield Missing(_escaped(match), NOT_UTF8)
        elif os.path.isfile(match):
            yield _input(match)
        elif "**" not in pattern:  # ** also matches the content of folders
            yield from _of_folder(match, suffixes)


def _of_uri_pattern(pattern: str, filesystem: Any, path: str) -> Iterator[Input | Missing]:
    """Yield the files of an object store that match a pattern; ``**`` matches any folders, ``*`` a part of a name."""
    fixed = path.partition("*")[0].rpartition("/")[0]
    steps = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    parts = re.split(r"(\*\*/|\*\*|\*)", path)
    expression = re.compile("".join(steps.get(part, re.escape(part)) for part in parts))
    files, missing = _files(filesystem, fixed, pattern)
    yield from missing
    matches = [each for each in files if expression.fullmatch(each) and not HIDDEN.search(each[len(fixed) :])]
    if not matches and not missing:
        yield Missing(pattern, "no file matches this pattern")
    root = unquote(pattern).partition(path)[0]
    yield from (_below(root, match) for match in matches)


def _of_folder(folder: str, suffixes: Collection[str]) -> Iterator[Input | Missing]:
    filesystem, path = _filesystem(folder)
    files, missing = _files(filesystem, path, folder)
    yield from missing
    found = False
    for each in files:
        relative = os.path.relpath(each, path)
        if os.path.splitext(each)[1].lower() in suffixes and not HIDDEN.search(relative):
            found = True
            yield _below(f"{folder.rstrip('/')}/", relative)
    if not found and not missing:
        yield Missing(folder, "this folder and its subfolders have no file for this task")


def _files(filesystem: Any, folder: str, argument: str) -> tuple[list[str], list[Missing]]:
    """Return all files below a folder, and the folders that cannot be read. argument: the user's name of it."""
    try:
        listed = filesystem.get_file_info(pa.fs.FileSelector(folder, recursive=True))
    except (OSError, ValueError, pa.ArrowException):  # a folder in it cannot be read
        listed = None
    files: list[str] = []
    missing: list[Missing] = []
    if listed is not None:
        for info in listed:
            _add_path(info, folder, {pa.fs.FileType.File: files}, missing)
        return sorted(files), missing
    folders = [folder]
    for each in folders:
        try:
            listed = filesystem.get_file_info(pa.fs.FileSelector(each))
        except (OSError, ValueError, pa.ArrowException) as error:
            missing.append(Missing(argument if each == folder else each, reason_of(error)))
            continue
        for info in listed:
            _add_path(info, each, {pa.fs.FileType.File: files, pa.fs.FileType.Directory: folders}, missing)
    return sorted(files), missing


def _add_path(info: Any, folder: str, lists: dict[Any, list[str]], missing: list[Missing]) -> None:
    """Append a folder's entry to the list of its type; ignore other types."""
    try:
        path = info.path
    except UnicodeDecodeError:  # pyarrow cannot decode it
        missing.append(Missing(folder, "it contains a file whose name is not UTF-8: rename it"))
        return
    if info.type in lists:
        lists[info.type].append(path)


def _refusal(message: str) -> ParameterError:
    return ParameterError(message, param="inputs")


def _escaped(path: str) -> str:
    """Return a path as text, with escapes for bytes that are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def _of_manifest(manifest: str, filesystem: Any, path: str) -> Iterator[Input]:
    """Yield the rows of a manifest. A relative path may start at the current folder or at the manifest's folder."""
    folder = manifest.rpartition("/")[0]
    for number, row in enumerate(_rows(manifest, filesystem, path), 1):
        file, text = row.get("file"), row.get("text")
        if not isinstance(file, str | None) or not isinstance(text, str | None) or (not file and text is None):
            raise _refusal(f'row {number} of "{manifest}" must have a string as "file" or "text"')
        if not file:
            yield Input(f"{manifest}:{number}", None, text)
            continue
        if not is_uri(file) and not os.path.isabs(file) and not os.path.exists(file) and folder:
            beside = f"{folder}/{file}"
            yield Input(file, beside if is_uri(beside) else os.path.abspath(beside), text)
            continue
        yield Input(file, _input(file).path, text)


def _rows(manifest: str, filesystem: Any, path: str) -> Sequence[dict[str, Any]]:
    try:
        with filesystem.open_input_file(path) as opened:
            if path.lower().endswith(".parquet"):
                return _rows_of_parquet(manifest, opened)
            lines = opened.read().decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise _refusal(f'the manifest "{manifest}" cannot be read: {reason_of(error)}') from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _refusal(f'line {number} of "{manifest}" is not JSON: {error}') from None
        if not isinstance(row, dict):
            raise _refusal(f'line {number} of "{manifest}" must be an object with "file" or "text"')
        rows.append(row)
    return rows


def _rows_of_parquet(manifest: str, opened: Any) -> list[dict[str, Any]]:
    file = pa.parquet.ParquetFile(opened)
    names = [name for name in COLUMNS if name in file.schema_arrow.names]
    if not names:
        found = ", ".join(file.schema_arrow.names)
        raise _refusal(f'the manifest "{manifest}" needs a column "file" or "text", and has {found}')
    return list(file.read(columns=names).to_pylist())
