"""Open the files of rows, given by a path, or by a URI that pyarrow's filesystems read."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs

from transept.errors import MediaError, PromptError

URI_CHARACTERS = "/?#@!$&'()*+,;=:%"  # besides letters, digits and -._~
MAX_TEXT_BYTES = 1 << 30  # 1 GiB, far above the engine's limits on a document


def is_uri(text: str) -> bool:
    """Return True for a URI, such as ``s3://bucket/talk.mp3``, and False for a path."""
    scheme, colon, _ = text.partition("://")
    return bool(colon) and scheme.replace("+", "").isalnum()


def open_binary(value: Any) -> Any:
    """Return a row's value for `load_audio`: a path unchanged, an open file for a URI, or bytes.

    Raises MediaError for a URI that cannot be opened, and for a value of another type.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str) or not value:
        raise MediaError(f"a row has the path, the URI or the bytes of a file, not {value!r}")
    if not is_uri(value):
        return value
    return open_uri(value)


def filesystem_of(uri: str) -> tuple[Any, str]:
    """Return the filesystem of a URI, and the path in it. Unescaped characters, such as blanks, are accepted."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    filesystem, path = pa.fs.FileSystem.from_uri(f"{scheme}://{authority}{slash}{quote(path, safe=URI_CHARACTERS)}")
    return filesystem, path


def open_uri(uri: str) -> Any:
    """Open a file for reading bytes. Raises MediaError."""
    try:
        filesystem, path = filesystem_of(uri)
        return filesystem.open_input_file(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise MediaError(f'"{uri}" cannot be opened: {reason_of(error)}') from None


def read_text(file: Any) -> str:
    """Return the text of a UTF-8 file, given by its path or URI. Raises PromptError."""
    if not isinstance(file, str) or not file:
        raise PromptError(f"a row has a document, or the path or URI of its file, not {file!r}")
    try:
        with open_uri(file) if is_uri(file) else open(file, "rb") as opened:
            data = opened.read(MAX_TEXT_BYTES + 1)
    except (OSError, MediaError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise PromptError(f'cannot read "{file}": {reason}') from None
    if len(data) > MAX_TEXT_BYTES:
        raise PromptError(f'"{file}" has more than {MAX_TEXT_BYTES} bytes, the limit of a document: split it')
    try:
        return str(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise PromptError(f'"{file}" is not UTF-8 text ({error})') from None


def reason_of(error: Exception) -> str:
    """Return the reason of the system's or pyarrow's error, in one line."""
    if (
        isinstance(error, OSError)
        and error.strerror
        and error.errno is not None
        and not str(error).startswith("[Errno")
    ):
        return error.strerror
    found = re.search(r"\[errno \d+\] (.+)$", text := str(error).strip())
    return found[1] if found else (text.splitlines() or [type(error).__name__])[0]
