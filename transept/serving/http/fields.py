"""Body: the declared fields of an endpoint's body, with their checks and schema; Given: the fields of one request.

Endpoints declare their own fields beside the library's options; `forms` and `bodies` read them from a request. The
schema is for `/docs`: FastAPI cannot make it, because it would read a body before `places` has admitted the request.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter
from starlette.datastructures import UploadFile

from transept.core.config import EngineConfig
from transept.core.request.limits import Limits
from transept.errors import ParameterError, suggest
from transept.option_names import Alias, by_own_names, hint
from transept.options import DeclaredOption, declared, members_of, take_options
from transept.serving.errors import ApiError, api_error

Kind = TypeVar("Kind")

FORM, JSON = "multipart/form-data", "application/json"
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
NUMBERS = ("integer", "number")
OF_SERVER = {
    name
    for kind in (EngineConfig, Limits)
    for each in declared(kind).values()
    for name in (each.name, *(alias.name for alias in each.aliases))
}
# Field -> names for it in other APIs.
_NAMES_ELSEWHERE = {
    "input": "document documents inputs prompt q sentences text texts",
    "prompt": "document input inputs messages text texts",
    "file": "audio image input pdf recording",
    "source": "from language source_lang src src_lang",
    "target": "to target_lang tgt tgt_lang",
    "language": "lang source source_lang src_lang",
    "target_language": "target tgt_lang",
    "max_new_tokens": "max_completion_tokens max_tokens",
    "format": "fmt output_format response_format type",
    "file_name": "name title",
    "segments": "transcript transcription",
}


class Body:
    """The fields that an endpoint accepts.

    media_type: FORM or JSON. kinds: dataclasses of declared options; the first one that has a field declares it.
    without: options that only Python has. refused: other fields of OpenAI's API, each with the reason.
    """

    def __init__(
        self, media_type: str, *kinds: type[Any], without: Iterable[str] = (), refused: Mapping[str, str] | None = None
    ) -> None:
        self.media_type, self.kinds, self.refused = media_type, kinds, dict(refused or {})
        self.kind_of: dict[str, type[Any]] = {}
        for kind in kinds:
            for name in declared(kind):
                if name not in without:
                    self.kind_of.setdefault(name, kind)
        named = {name: declared(kind)[name] for name, kind in self.kind_of.items()}
        self.fields = {name: _without_aliases(each, named) for name, each in named.items()}
        self.aliases = {alias.name: (alias, each) for each in self.fields.values() for alias in each.aliases}

    def value_of(self, name: str, text: str) -> Any:
        """Return the value that a field's text stands for. Raises ApiError for an invalid text."""
        alias, each = self.declaration(name)
        try:
            return alias.from_text(text) if alias.values is not None else each.from_text(text)
        except ParameterError as error:
            raise api_error(error) from None

    def declaration(self, name: str) -> tuple[Alias, DeclaredOption]:
        """Return a field's name as an alias, and the option that the field sets, renamed to it."""
        alias, each = self.aliases.get(name) or (Alias(name), self.fields[name])
        return alias, dataclasses.replace(each, name=name)

    def check(self, name: str, sent: str | None = None) -> None:
        """Raise ApiError for a name that is not a field. sent: how a form spells a name that is refused."""
        if name in self.refused:
            sent = sent or name
            raise ApiError(400, f"{sent}: {self.refused[name]}; leave it out", param=sent, code="unsupported")
        if name in self.fields or name in self.aliases:
            return
        shown = name[:100]
        if name in OF_SERVER:
            meant = " It is a setting of the server, which requests cannot change: leave it out."
        elif ours := next((each for each in self.fields if name in _NAMES_ELSEWHERE.get(each, "").split()), None):
            meant = f" Did you mean {ours!r}?"
        else:
            meant = hint(shown, self.fields) or suggest(shown, self.fields)
        raise ApiError(400, f"there is no field {shown!r}.{meant}", param=shown, code="unknown_field")

    def given(self, values: Mapping[str, Any], file: UploadFile | None = None, lists: Container[str] = ()) -> Given:
        """Return the fields of a request. Raises ApiError for a field that is sent under two names.

        values: under the names by which they were sent. file: of a form. lists: the names that were sent as ``name[]``.
        """
        own = {name: self.aliases[name][1].name if name in self.aliases else name for name in values}
        spelt = {name: f"{name}[]" if name in lists else name for name in values}
        sent = {own[name]: spelt[name] for name in values if spelt[name] != own[name]}
        try:
            return Given(self, by_own_names(values, self.fields.values()), sent, file)
        except ParameterError as error:
            if not error.others:
                raise api_error(error) from error
            names = " and ".join((str(error.param), *error.others))
            message = f"{names} are the same field: send one of them"
            raise ApiError(400, message, param=error.param, code="invalid_value") from error

    def documented(self) -> dict[str, Any]:
        """Return the schema of the request, as ``openapi_extra`` of a route."""
        schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
        for name, each in self.fields.items():
            schema["properties"][name] = schema_of(each, in_form=self.media_type == FORM)
            if each.default is dataclasses.MISSING:
                schema.setdefault("required", []).append(name)
        return {"requestBody": {"required": True, "content": {self.media_type: {"schema": schema}}}}


@dataclass(frozen=True)
class Given:
    """The fields that a client sent.

    values: under the fields' own names. sent: own name -> the name by which the client sent it, if another. file: None
    if it is missing.
    """

    body: Body
    values: dict[str, Any]
    sent: dict[str, str]
    file: UploadFile | None

    def part(self, kind: type[Any]) -> dict[str, Any]:
        """Return the fields that one of the body's dataclasses declares."""
        return {name: value for name, value in self.values.items() if self.body.kind_of.get(name) is kind}

    def made(self, kind: type[Kind]) -> Kind:
        """Make one of the body's dataclasses. Raises ApiError for a missing field or a wrong value."""
        for name, each in declared(kind).items():
            if each.default is dataclasses.MISSING and name not in self.values:
                raise ApiError(400, f"{name} is missing. Send {each.wanted}", param=name, code=f"missing_{name}")
        try:
            made = kind(**self.part(kind))
            if not hasattr(kind, "__post_init__"):
                take_options(made)
            return made
        except ParameterError as error:
            raise self.error(error) from error

    def error(self, error: Exception, data_field: str | None = None) -> ApiError:
        """Return the answer to an error, which names fields as the client sent them. data_field: see `api_error`."""
        return api_error(error, data_field, self._name_sent)

    def _name_sent(self, name: str) -> str:
        """Return the name by which the client sent an option or a part of one, such as ``vad_options.threshold``."""
        option, dot, part = name.partition(".")
        if option in OF_SERVER and option not in self.body.fields:
            return f"the server's {name}"
        return self.sent.get(name) or self.sent.get(option, option) + dot + part


def _without_aliases(each: DeclaredOption, fields: Container[str]) -> DeclaredOption:
    """Return an option without the aliases that are fields themselves."""
    aliases = tuple(alias for alias in each.aliases if alias.name not in fields)
    return dataclasses.replace(each, option=dataclasses.replace(each.option, aliases=aliases))


def schema_of(each: DeclaredOption, *, in_form: bool) -> dict[str, Any]:
    """Return the JSON Schema of an option: its type, bounds, default and help. in_form: omit null."""
    schema = _schema_of_type(each.kind, in_form)
    bounds = {theirs: getattr(each.option, ours) for ours, theirs in BOUNDS.items()}
    for branch in schema.get("anyOf", [schema]):
        if branch.get("type") in NUMBERS:
            branch |= {name: bound for name, bound in bounds.items() if bound not in (None, math.inf)}
    default = list(each.default) if isinstance(each.default, tuple) else each.default
    if default not in (None, "", [], math.inf, dataclasses.MISSING) and not each.is_object:
        schema["default"] = default
    return {"description": _description(each), **schema}


def _schema_of_type(kind: Any, in_form: bool) -> dict[str, Any]:
    branches = []
    for member in members_of(kind):
        if isinstance(member, type) and dataclasses.is_dataclass(member):
            parts = {name: schema_of(part, in_form=False) for name, part in declared(member).items()}
            required = [name for name, part in declared(member).items() if part.default is dataclasses.MISSING]
            more = {"required": required} if required else {}
            branches.append({"type": "object", "additionalProperties": False, "properties": parts, **more})
        elif not (in_form and member is type(None)):
            branches.append(TypeAdapter(member).json_schema())
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def _description(each: DeclaredOption) -> str:
    """Return an option's help as sentences, with fields in place of the command's flags."""
    aliases = ", ".join(f"`{alias.name}`" for alias in each.aliases)
    parts = (each.option.help, each.option.more.rstrip("."), aliases and f"Other programs' names for it: {aliases}")
    text = ". ".join(filter(None, parts)) + "."
    return re.sub(r"--(\w[\w-]*\w)", lambda flag: flag[1].replace("-", "_"), text.replace("--no-", "false"))
