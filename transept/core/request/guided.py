"""Guide: the value of the option `guided`: the form that an output must have. No llguidance and no torch here.

`guide` parses what users give. The input processor compiles it (`transept.core.request.grammars`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from transept.errors import ParameterError, shown
from transept.option_names import Alias
from transept.options import LONE_SURROGATE, Option

KINDS = ("choice", "regex", "json", "grammar")
MAX_LENGTH = 100_000  # characters of a grammar
MAX_CHOICES = 10_000
MOST_OPTIONAL = 500  # properties of one object in a JSON schema; the time of a mask grows with their square
WANTED = 'one of {"choice": [...]}, {"regex": "..."}, {"json": schema} and {"grammar": "..."}'

DEAD_END = (
    "no token continues the output in the form that guided asks for: this model's vocabulary cannot write the "
    "characters that must come next, or other options forbid them. Ask for a form without them"
)


@dataclass(frozen=True, slots=True)
class Guide:
    """The form of an output.

    kind: one of KINDS. text: the regular expression, the grammar, or JSON: the schema or the list of choices.
    leading_blank: True to accept a blank before the text, which is not part of its form, as in Whisper's outputs.
    """

    kind: str
    text: str
    leading_blank: bool = False


@dataclass(frozen=True)
class Grammar:
    """A compiled Guide. Another process receives the Guide alone.

    start: the state before the first token, an LLMatcher, of which each sequence gets copies. num_words: length of a
    mask, in words of 32 bits.
    """

    guide: Guide
    start: Any = field(compare=False, repr=False)
    num_words: int = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Guide, (self.guide.kind, self.guide.text, self.guide.leading_blank)


def guide(name: str, given: Any) -> Guide | Grammar | None:
    """Parse a form: a mapping with one of KINDS, its JSON, a text such as ``regex=[0-9]+``, or a list of choices.

    choice: a list of texts; in a text, JSON or texts with commas between them. json: a schema as a mapping or as JSON.
    grammar: a grammar in Lark's or GBNF's notation. Raises ParameterError.
    """
    if given is None or isinstance(given, Guide | Grammar):
        return given
    if isinstance(given, str):
        given = _of_text(name, given)
    if isinstance(given, Sequence) and not isinstance(given, bytes):
        given = {"choice": given}
    named = {key: value for key, value in given.items() if value is not None} if isinstance(given, Mapping) else {}
    if len(named) != 1 or not {*named} <= {*KINDS}:
        raise _refusal(name, given, f"must be {WANTED}, not {{{name}!}}")
    ((kind, value),) = named.items()
    text = _choices(name, value) if kind == "choice" else _schema(name, value) if kind == "json" else value
    if not isinstance(text, str) or not text.strip():
        raise _refusal(name, given, f"holds {shown(value)} as its {kind}, which must be a non-empty text")
    if LONE_SURROGATE.search(text):
        raise _refusal(name, given, f"holds half a surrogate pair, which is not valid text: {shown(text)}")
    if len(text) > MAX_LENGTH:
        raise _refusal(name, kind, f"has a {kind} of {len(text)} characters; shorten it to at most {MAX_LENGTH}")
    return Guide(kind, text)


def _of_text(name: str, text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        kind, found, value = text.partition("=")
        if not found or kind.strip() not in KINDS:
            raise _refusal(name, text, f"must be {WANTED}, or KIND=VALUE; a text alone is a choice in a list")
        return {kind.strip(): value}
    return _loaded(name, text)


def _choices(name: str, given: Any) -> str:
    """Return the JSON of a list of texts."""
    if isinstance(given, str):
        listed = given.lstrip().startswith("[")
        given = _loaded(name, given) if listed else [each.strip() for each in given.split(",") if each.strip()]
    several = list(islice(given, MAX_CHOICES + 1)) if isinstance(given, Iterable) else []
    if not several or not all(isinstance(each, str) and each for each in several):
        raise _refusal(name, given, f"holds {shown(given)} as its choice, which must be a list of non-empty texts")
    if len(several) > MAX_CHOICES:
        raise _refusal(name, "choice", f"holds more than {MAX_CHOICES} choices; keep those that matter")
    return json.dumps(list(dict.fromkeys(several)), ensure_ascii=False)


def _schema(name: str, given: Any) -> str:
    """Return a JSON schema as JSON."""
    if isinstance(given, str):
        given = _loaded(name, given)
    if hasattr(given, "model_json_schema"):  # a class of pydantic
        given = given.model_json_schema()
    if given is True:  # the schema of any value
        given = {}
    if not isinstance(given, Mapping):
        raise _refusal(name, given, f"holds {shown(given)} as its json, which must be a JSON schema: an object")
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(name, "json", f"holds a schema that is not JSON: {error}; use plain values") from None
    if (most := _most_optional(given)) > MOST_OPTIONAL:
        problem = (
            f"holds a JSON schema with {most} optional properties in one object, of which at most {MOST_OPTIONAL} "
        )
        raise _refusal(name, "json", f"{problem}are possible. List others as required, or divide the object")
    return text


def _most_optional(schema: Any) -> int:
    """Return the largest number of optional properties that an object of a JSON schema has."""
    most, parts = 0, [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, Mapping):
            named, required = part.get("properties"), part.get("required")
            if isinstance(named, Mapping):
                listed = {each for each in required if isinstance(each, str)} if isinstance(required, list) else set()
                most = max(most, len(named.keys() - listed))
            parts += part.values()
        elif isinstance(part, list | tuple):
            parts += part
    return most


def _loaded(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        begin = text[:100]
        raise _refusal(name, begin, f"holds {shown(begin)}, which is not valid JSON: {error}. Send JSON") from None


def _refusal(name: str, given: Any, problem: str) -> ParameterError:
    return ParameterError(f"{{{name}}} {problem}", param=name, value=given)


HELP = {
    "choice": "the output must be one of these texts: TEXT,TEXT or a JSON list",
    "regex": "the whole output must match a regular expression",
    "json": "the output must be JSON by this schema; @FILE reads it from a file",
    "grammar": "the output must follow a grammar in Lark's or GBNF's notation; @FILE reads it from a file",
}


def _of_kind(kind: str) -> Alias:
    """Return vLLM's name for a form of one kind."""
    return Alias(f"guided_{kind}", convert=lambda value: None if value is None else {kind: value}, help=HELP[kind])


GUIDED = Option(
    "the form that the output must have: choices, a regular expression, a JSON schema or a grammar",
    f"{WANTED[0].upper()}{WANTED[1:]}; a list of choices alone; in a text, KIND=VALUE. The end-of-sequence token is "
    "drawn exactly where the form is complete. Needs the extra guided.",
    metavar="KIND=VALUE",
    aliases=(*map(_of_kind, KINDS), "structured_outputs"),
    parse=guide,
    also="Mapping[str, Any] | Sequence[str] | str",
)
