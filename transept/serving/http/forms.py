"""Multipart forms: one uploaded file, and fields as the options of a dataclass."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from transept.errors import ParameterError
from transept.options import NOTHING, TRUTHS, DeclaredOption, declared
from transept.serving.errors import ApiError, api_error, as_json
from transept.serving.http.multipart import form_error, parse_multipart
from transept.serving.http.storage import kept

MAX_FIELDS = 200
MAX_FIELD_BYTES = 1 << 20
IN_MEMORY_BYTES = 1 << 20  # of an upload; a larger one is a file until its request ends


@dataclass(frozen=True)
class Upload:
    """An uploaded file. name: as the client calls it. data: its bytes, or the path of a file of ours.

    what: it holds, audio or image.
    """

    name: str
    data: bytes | str
    what: str = "audio"

    def in_message(self, message: str) -> str:
        """A message about what it holds, with the client's name for it instead of ours."""
        shown = self.name[:200] or "the upload"
        if isinstance(self.data, str):
            return message.replace(self.data, shown)
        return message.replace(f"{self.what} data of {len(self.data)} bytes", f'{self.what} file "{shown}"')


@asynccontextmanager
async def read_form(request: Request) -> AsyncGenerator[FormData, None]:
    """Yield the request's form; leaving the context deletes its file.

    Raises ApiError for a body that is not a form, and for a file that cannot be kept.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        with kept():
            form = await parse_multipart(request, MAX_FIELDS, MAX_FIELD_BYTES)
    elif kind == "application/x-www-form-urlencoded":
        try:
            form = await request.form(max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
        except HTTPException as error:
            raise form_error(str(error.detail), MAX_FIELDS, MAX_FIELD_BYTES) from error
    else:
        raise ApiError(400, f"send this as multipart/form-data, not {kind or 'without a type'}", code="invalid_body")
    try:
        yield form
    finally:
        await form.close()


@asynccontextmanager
async def upload(form: FormData, field: str, what: str = "audio") -> AsyncGenerator[Upload, None]:
    """Return the file in a field. what: audio or image. Raises ApiError if the file is missing.

    An empty file without a name counts as missing: browsers send that if no file was chosen.
    """
    given, called = form.get(field), "recording" if what == "audio" else what
    if not isinstance(given, UploadFile) or not (given.filename or given.size):
        raise ApiError(
            400,
            f"send the {called} in the field {field}, as a file with a file name, up to the last boundary",
            param=field,
            code="missing_file",
        )
    name = given.filename or ""
    if (given.size or 0) <= IN_MEMORY_BYTES:
        yield Upload(name, await given.read(), what)
        return
    with kept():
        given.file.flush()
    without_name = f"/proc/self/fd/{given.file.fileno()}"  # what the form holds has none, and goes with the process
    if os.path.exists(without_name):
        yield Upload(name, without_name, what)
        return
    with kept():
        copied = await run_in_threadpool(_copied, given)
    with contextlib.closing(copied) as file:
        yield Upload(name, file.name, what)


def _copied(given: UploadFile) -> Any:
    """A copy that has a path, which decoders read piece by piece. For systems without /proc."""
    file = tempfile.NamedTemporaryFile(prefix="transept-")  # noqa: SIM115  closed by the caller
    try:
        given.file.seek(0)
        shutil.copyfileobj(given.file, file, 1 << 20)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


def texts(form: FormData, name: str) -> list[str]:
    """Return all values of a field, under its name or with OpenAI's ``[]`` after it.

    Empty values are dropped: HTML forms send every field, and an empty one means "not given".
    """
    values = [*form.getlist(name), *form.getlist(f"{name}[]")]
    if any(not isinstance(value, str) for value in values):
        raise ApiError(400, f"{name} is a text, not a file", param=name, code="invalid_value")
    return [value for value in map(str, values) if value.strip()]


def words(form: FormData, name: str) -> list[str]:
    """Return all words of a field that is repeated, or whose words are separated by commas."""
    return [word.strip() for value in texts(form, name) for word in value.split(",") if word.strip()]


def text(form: FormData, name: str) -> str | None:
    """The value of a field that comes once at most."""
    values = texts(form, name)
    if len(values) > 1:
        raise ApiError(400, f"{name} came {len(values)} times; send it once", param=name, code="invalid_value")
    return values[0] if values else None


def parts(form: FormData, name: str) -> dict[str, str]:
    """Return the non-empty parts of a field sent as ``name[part]``, as OpenAI's client sends objects."""
    found = (re.fullmatch(rf"{re.escape(name)}\[(\w+)\]", key) for key in form)
    return {match[1]: value for match in found if match and (value := text(form, match[0]))}


def choice(form: FormData, name: str, known: Iterable[str], default: str) -> str:
    """One of some words."""
    value, known = text(form, name) or default, list(known)
    if value not in known:
        raise ApiError(
            400, f"{name} must be one of {', '.join(known)}, not {as_json(value)}", param=name, code="invalid_value"
        )
    return value


def truth(form: FormData, name: str) -> bool:
    """A flag, false where it is missing."""
    return _truth(name, text(form, name) or "false")


def options(form: FormData, cls: type[Any]) -> dict[str, Any]:
    """Return the declared options of a dataclass that the form has fields for; bounds are the dataclass's to check.

    Numbers and flags are read from their texts, lists may be comma separated or repeated, options of options are JSON,
    or have a field for each part.
    """
    found: dict[str, Any] = {}
    for name, each in declared(cls).items():
        if values := texts(form, name):
            found[name] = _value(each, values)
        elif given := parts(form, name):
            found[name] = {part: _parsed(value) for part, value in given.items()}
    return found


def _value(each: DeclaredOption, values: list[str]) -> Any:
    """What some texts mean as a value of an option."""
    name = each.name
    if tuple in each.types and str not in each.types:
        return ",".join(value for value in values if value.strip().lower() not in NOTHING)  # the options take that
    if len(values) > 1:
        raise ApiError(400, f"{name} came {len(values)} times; send it once", param=name, code="invalid_value")
    try:
        return each.from_text(values[0])
    except ParameterError as error:
        raise api_error(error) from None


def _parsed(value: str) -> Any:
    """A part of an object: the number or flag that it is, or the text."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _truth(name: str, value: str) -> bool:
    try:
        return TRUTHS[value.strip().lower()]
    except KeyError:
        raise ApiError(
            400, f"{name} must be true or false, not {as_json(value)}", param=name, code="invalid_value"
        ) from None
