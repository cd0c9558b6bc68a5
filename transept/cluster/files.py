"""Files that rows name: on this machine by path, in an object store by a URI that pyarrow's filesystems read."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs

from transept.errors import MediaError, PromptError

URI_CHARACTERS = "/?#@!$&'()*+,;=:%"  # beside letters, digits and -._~
MAX_TEXT_BYTES = 1 << 30  # 1 GiB; a document is bounded by Limits, long before that


def is_uri(text: str) -> bool:
    """Whether it is a URI, such as ``s3://bucket/talk.mp3``, rather than a path."""
    scheme, colon, _ = text.partition("://")
    return bool(colon) and scheme.replace("+", "").isalnum()


def open_binary(value: Any) -> Any:
    """What `load_audio` takes for a row's value: a path as it is, an open file for a URI, bytes for bytes.

    Raises MediaError for a URI that cannot be opened, and for what names no file.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str) or not value:
        raise MediaError(f"a row names its file by a path or a URI, or holds its bytes, not {value!r}")
    if not is_uri(value):
        return value
    return open_uri(value)


def filesystem_of(uri: str) -> tuple[Any, str]:
    """The filesystem of a URI, and the path in it. What a URI may not hold, such as blanks, is taken as it stands."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    filesystem, path = pa.fs.FileSystem.from_uri(f"{scheme}://{authority}{slash}{quote(path, safe=URI_CHARACTERS)}")
    return filesystem, path


def open_uri(uri: str) -> Any:
    """An open file of bytes. Raises MediaError."""
    try:
        filesystem, path = filesystem_of(uri)
        return filesystem.open_input_file(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise MediaError(f'"{uri}" cannot be opened: {reason_of(error)}') from None


def read_text(file: Any) -> str:
    """The text of a file in UTF-8, by its path or URI. Raises PromptError."""
    if not isinstance(file, str) or not file:
        raise PromptError(f"a row holds a document, or names its file by a path or a URI, not {file!r}")
    try:
        with open_uri(file) if is_uri(file) else open(file, "rb") as opened:
            data = opened.read(MAX_TEXT_BYTES + 1)
    except (OSError, MediaError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise PromptError(f'cannot read "{file}": {reason}') from None
    if len(data) > MAX_TEXT_BYTES:
        raise PromptError(f'"{file}" has more than {MAX_TEXT_BYTES} bytes, and is read as a whole: split it')
    try:
        return str(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise PromptError(f'"{file}" is not UTF-8 text ({error})') from None


def reason_of(error: Exception) -> str:
    """What the system or pyarrow says, in one line."""
    if (
        isinstance(error, OSError)
        and error.strerror
        and error.errno is not None
        and not str(error).startswith("[Errno")
    ):
        return error.strerror
    found = re.search(r"\[errno \d+\] (.+)$", text := str(error).strip())
    return found[1] if found else (text.splitlines() or [type(error).__name__])[0]
