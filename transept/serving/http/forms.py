"""Forms: one uploaded file, and the declared fields of a body. Dependencies of the endpoints that take a file."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from transept.options import NOTHING
from transept.serving.errors import ApiError, as_json
from transept.serving.http.fields import Body, Given
from transept.serving.http.multipart import FILE_FIELD, form_error, parse_multipart

logger = logging.getLogger(__name__)

MAX_FIELDS = 200
MAX_FIELD_BYTES = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk, a user's quota, or the largest allowed file
NO_FILES = (errno.EMFILE, errno.ENFILE)
RETRY_SECONDS = 30.0  # time for other uploads to end
IN_MEMORY_BYTES = 1 << 20  # of an upload; a larger one is stored in a file until its request ends
PART = re.compile(r"\w+\]")  # the text after the bracket of ``name[part]``


@dataclass(frozen=True)
class Upload:
    """An uploaded file. name: the client's file name. data: its bytes, or the path of the server's copy.

    what: kind of its content, audio or image.
    """

    name: str
    data: bytes | str
    what: str = "audio"

    def in_message(self, message: str) -> str:
        """Return a message about the file with the client's file name in place of the server's."""
        shown = self.name[:200] or "the upload"
        if isinstance(self.data, str):
            return message.replace(self.data, shown)
        return message.replace(f"{self.what} data of {len(self.data)} bytes", f'{self.what} file "{shown}"')


def form_of(body: Body) -> Callable[[Request], AsyncGenerator[Given, None]]:
    """Return a dependency of an endpoint: the fields of a form, whose file is deleted once the request is answered.

    Raises ApiError for a body that is not a form, a file that cannot be stored, and an unknown field.
    """

    async def form(request: Request) -> AsyncGenerator[Given, None]:
        data = await received(request)
        try:
            file = data.get(FILE_FIELD)
            lists = {sent.removesuffix("[]") for sent in data if sent.endswith("[]")}
            yield body.given(_values(data, body), file if isinstance(file, UploadFile) else None, lists)
        finally:
            await data.close()

    return form


async def received(request: Request) -> FormData:
    """Receive a form; the caller closes it. Raises ApiError for a body that is not a form, and as `parse_multipart`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        with kept():
            return await parse_multipart(request, MAX_FIELDS, MAX_FIELD_BYTES)
    if kind == "application/x-www-form-urlencoded":
        try:
            return await request.form(max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        except HTTPException as error:
            raise form_error(str(error.detail), MAX_FIELDS, MAX_FIELD_BYTES) from error
    raise ApiError(400, f"send this as multipart/form-data, not {kind or 'without a type'}", code="invalid_body")


@asynccontextmanager
async def upload(form: Given, what: str = "audio") -> AsyncGenerator[Upload, None]:
    """Return the file in the field `file`. what: audio or image. Raises ApiError if the file is missing.

    An empty file without a name counts as missing: browsers send that if no file was chosen.
    """
    given, called = form.file, "recording" if what == "audio" else what
    if given is None and (text := form.values.get(FILE_FIELD)) is not None:
        message = f"{FILE_FIELD} is the text {as_json(text)}: send the {called} itself, with curl as -F file=@talk.flac"
        raise ApiError(400, message, param=FILE_FIELD, code="missing_file")
    if given is None or not (given.filename or given.size):
        raise ApiError(
            400,
            f"send the {called} in the field {FILE_FIELD}, as a file with a file name, up to the last boundary",
            param=FILE_FIELD,
            code="missing_file",
        )
    name = given.filename or ""
    if (given.size or 0) <= IN_MEMORY_BYTES:
        yield Upload(name, await given.read(), what)
        return
    with kept():
        given.file.flush()
    without_name = f"/proc/self/fd/{given.file.fileno()}"  # the form's file is unnamed, and gone once the process ends
    if os.path.exists(without_name):
        yield Upload(name, without_name, what)
        return
    with contextlib.ExitStack() as stack:  # without /proc: a copy with a path, from which decoders can stream
        with kept():
            copy = os.path.join(stack.enter_context(tempfile.TemporaryDirectory(prefix="transept-")), "upload")
            await given.seek(0)
            await run_in_threadpool(_copy, given.file, copy)
        yield Upload(name, copy, what)


def _copy(source: BinaryIO, path: str) -> None:
    with open(path, "wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)


def _values(data: FormData, body: Body) -> dict[str, Any]:
    """Return the fields of a form as sent. Texts become values of the declared types; the dataclasses check bounds.

    A field is sent as ``name`` or ``name[]``, or, like OpenAI's client sends objects, as one field ``name[part]`` for
    each part. Lists may be comma-separated or repeated, and objects may be JSON. Empty fields are left out, since HTML
    forms send every field.
    """
    texts: dict[tuple[str, str], list[str]] = {}
    for sent, value in data.multi_items():
        name, _, part = sent.partition("[")
        body.check(name, f"{name}[]" if part == "]" else name)
        if part not in ("", "]") and not (body.declaration(name)[1].is_object and PART.fullmatch(part)):
            message = f"there is no field {sent[:100]!r}, because {name} is a single value: send {name}"
            raise ApiError(400, message, param=name, code="unknown_field")
        if name != FILE_FIELD and not isinstance(value, str):
            raise ApiError(
                400, f"{name} is a text, not a file: send it without a file name", param=name, code="invalid_value"
            )
        if isinstance(value, str) and value.strip():
            texts.setdefault((name, part[:-1]), []).append(value)
    found: dict[str, Any] = {}
    for (name, part), values in texts.items():
        _, each = body.declaration(name)
        if part and (name, "") not in texts:
            found.setdefault(name, {})[part] = _parsed(_once(f"{name}[{part}]", values))
        elif tuple in each.types and str not in each.types:
            found[name] = ",".join(
                value for value in values if value.strip().lower() not in NOTHING
            )  # the option parses it
        elif not part:
            found[name] = body.value_of(name, _once(name, values))
    return found


def _once(name: str, values: list[str]) -> str:
    if len(values) > 1:
        raise ApiError(400, f"{name} was sent {len(values)} times: send it once", param=name, code="invalid_value")
    return values[0]


def _parsed(value: str) -> Any:
    """Return a part of an object: the number or flag that it is, or the text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


@contextmanager
def kept() -> Iterator[None]:
    """Raise ApiError for a file that cannot be written: 507 if the disk is full, 503 if too many files are open.

    The log names the full folder; the answer does not.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            logger.error("an upload could not be stored in %s: %s", _folder(), error.strerror)
            message = (
                "the server has no room on its disk for this upload: send a smaller file, such as one compressed to "
                "opus or mp3, or try again later"
            )
            raise ApiError(507, message, param="file", code="disk_full", retry_after=RETRY_SECONDS) from error
        if error.errno in NO_FILES:
            logger.error("an upload could not be stored: %s", error.strerror)
            message = "the server has too many open files to take this upload: try again later"
            raise ApiError(503, message, code="unavailable", retry_after=RETRY_SECONDS) from error
        raise


def _folder() -> str:
    try:
        return tempfile.gettempdir()
    except OSError:  # no folder can be written to
        return "the temporary folder"
