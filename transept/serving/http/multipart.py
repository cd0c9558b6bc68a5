"""Parse multipart bodies that have a preamble, or file names only in RFC 5987's encoding, as the RFCs allow.

Called by `forms`. The parser is Starlette's, which supports neither.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from email.message import Message
from typing import Any

from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from transept.serving.errors import ApiError

AS_FILE = "send a recording or an image as a file, with a file name, and shorter texts"
CHECK_FORM = "check that each part begins with the boundary that Content-Type names, and has headers and an empty line"
FILE_FIELD = "file"  # of every endpoint that takes a file
MAX_PREAMBLE_BYTES = 64 << 10  # before the first boundary


async def parse_multipart(request: Request, max_fields: int, max_field_bytes: int) -> FormData:
    """Parse a form with at most one file; the caller closes it. Raises ApiError for a body that is not multipart."""
    parser = _Parser(
        request.headers,
        _without_preamble(request.stream(), _boundary(request)),
        max_files=1,
        max_fields=max_fields,
        max_part_size=max_field_bytes,
    )
    if _boundary(request) == b"--":
        what = "the Content-Type multipart/form-data names no boundary"
        raise ApiError(400, f"{what}: let the HTTP client write this header", code="invalid_body")
    try:
        return await parser.parse()
    except MultiPartException as error:
        texts = [name for name in parser.file_fields if name != FILE_FIELD]
        if texts and error.message.startswith("Too many files"):
            told = (
                f"{texts[0][:100]} was sent as a file, and the form has more than one file: send texts without filename"
            )
            raise ApiError(400, told, param=texts[0][:100], code="invalid_body") from error
        raise form_error(error.message, max_fields, max_field_bytes) from error


def form_error(message: str, max_fields: int, max_field_bytes: int) -> ApiError:
    """Return the answer to a form that Starlette's parser refused with this message."""
    for begin, told in (
        ("Too many files", "the form has more than one file: send one, and a request for each further file"),
        ("Too many fields", f"the form has more than {max_fields} fields: send fewer"),
        ("Field exceeded", f"a field of the form is larger than {max_field_bytes >> 10} KiB: {AS_FILE}"),
        ("Part exceeded", f"a field of the form is larger than {max_field_bytes >> 10} KiB: {AS_FILE}"),
        ("The Content-Disposition", "a part of the form has no name: send each as Content-Disposition with a name"),
    ):
        if message.startswith(begin):
            param = "file" if begin == "Too many files" else None
            return ApiError(400, told, param=param, code="invalid_body")
    return ApiError(400, f"the form cannot be read: {CHECK_FORM}", code="invalid_body")


class _Parser(MultiPartParser):
    """Starlette's parser, which ignores ``filename*``, as RFC 7578 section 4.2 asks. Some clients send nothing else.

    file_fields: the names of the fields so far that have a file name.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.file_fields: list[str] = []

    def on_headers_finished(self) -> None:
        disposition = self._current_part.content_disposition or b""
        _, options = parse_options_header(disposition)
        header = Message()
        header["Content-Disposition"] = disposition.decode("latin-1")
        try:
            name = header.get_filename()  # also decodes filename*
        except ValueError:  # its charset is unknown or cannot decode it; UnicodeError is a ValueError
            name = disposition.partition(b"''")[2].decode("latin-1") or "upload"
        if b"filename" not in options and name is not None:
            quoted = name.replace("\\", "\\\\").replace('"', '\\"').encode(self._charset, errors="replace")
            self._current_part.content_disposition = disposition + b'; filename="' + quoted + b'"'
        if name is not None:
            self.file_fields.append(options.get(b"name", b"").decode(errors="replace"))
        super().on_headers_finished()


def _boundary(request: Request) -> bytes:
    _, parameters = parse_options_header(request.headers["content-type"])
    return b"--" + parameters.get(b"boundary", b"")


async def _without_preamble(chunks: AsyncIterator[bytes], boundary: bytes) -> AsyncGenerator[bytes, None]:
    """Drop the lines before the first boundary of a body, which are to be ignored (RFC 2046, section 5.1.1).

    A body that begins with a boundary, or has none within MAX_PREAMBLE_BYTES, is unchanged.
    """
    begin = bytearray()
    async for chunk in chunks:
        begin += chunk
        if begin.startswith(boundary[: len(begin)]):
            found = 0 if len(begin) >= len(boundary) else -1
        else:
            found = begin.find(b"\n" + boundary) + 1 or -1
        if found >= 0 or len(begin) > MAX_PREAMBLE_BYTES:
            yield bytes(begin[max(0, found) :])
            break
    else:
        yield bytes(begin)
    async for chunk in chunks:
        yield chunk
