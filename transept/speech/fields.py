"""Fields of a transcript in plain dicts, read with checks of every value; called by `Transcript.from_dict`.

Errors name the place of a wrong value, such as ``segments[3].start``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from transept.errors import ParameterError
from transept.option_names import finite
from transept.options import refuse_lone_surrogates
from transept.speech.segments import Segment, Word

MAX_SECONDS = 1e9  # of a time: 31 years, so that its milliseconds are exact


class Fields:
    """A dict whose fields are read with a check of their types. The value None counts as missing.

    place: name of the dict, such as ``"segments[3]"``; empty for the outermost. Every method raises ParameterError
    for a wrong value, and for a missing one without a default.
    """

    def __init__(self, given: Any, place: str = "") -> None:
        if not isinstance(given, Mapping):
            raise wrong_field(place or "transcript", "an object", given)
        self._given, self._place = given, place

    def raw(self, name: str) -> Any:
        """Return a field unchecked; None if it is missing."""
        return self._given.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value: str = self._checked(name, default, _is_text, "text")
        refuse_lone_surrogates(self._at(name), value)
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of texts, empty if missing."""
        texts = self.items(name, _is_text, "text")
        for index, text in enumerate(texts):
            refuse_lone_surrogates(f"{self._at(name)}[{index}]", text)
        return texts

    def seconds(self, name: str, default: float | None = None) -> float:
        """Return a time."""
        return float(self._checked(name, default, _is_time, f"a number of seconds from 0 to {MAX_SECONDS:.0f}"))

    def span(self) -> tuple[float, float]:
        """Return ``start`` and ``end``."""
        start, end = self.seconds("start"), self.seconds("end")
        if end < start:
            raise wrong_field(self._at("end"), f"at least start, which is {start:g}", end)
        return start, end

    def number(self, name: str, default: float) -> float:
        """Return a finite number."""
        return float(self._checked(name, default, is_number, "a number"))

    def integer(self, name: str, default: int) -> int:
        """Return an integer of at least 0."""
        value: int = self._checked(name, default, _is_index, "an integer of at least 0")
        return value

    def objects(self, name: str, default: list[Any] | None = None) -> list[Fields]:
        """Return a list of dicts."""
        place = self._at(name)
        return [Fields(each, f"{place}[{index}]") for index, each in enumerate(self._list(name, default))]

    def numbers(self, name: str) -> dict[str, float]:
        """Return an object of numbers, empty if missing."""
        given = Fields(self.raw(name) or {}, name)
        return {each: given.number(each, 0.0) for each in given._given}

    def items(self, name: str, is_right: Callable[[Any], bool], wanted: str) -> list[Any]:
        """Return a list whose entries all pass `is_right`; empty if missing. wanted: describes a valid entry."""
        items = self._list(name, [])
        for index, each in enumerate(items):
            if not is_right(each):
                raise wrong_field(f"{self._at(name)}[{index}]", wanted, each)
        return items

    def _list(self, name: str, default: list[Any] | None) -> list[Any]:
        value: list[Any] = self._checked(name, default, lambda each: isinstance(each, list), "a list")
        return value

    def _checked(self, name: str, default: Any, is_right: Callable[[Any], bool], wanted: str) -> Any:
        value = self._given.get(name)
        if value is None:
            value = default
        if value is None:
            raise ParameterError(f"{{{self._at(name)}}} is missing", param=self._at(name))
        if not is_right(value):
            raise wrong_field(self._at(name), wanted, value)
        return value

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name


def segment_of(fields: Fields, index: int) -> Segment:
    """Return a segment. index: its id, if the dict has no id or has an event's id (``"seg_3"``)."""
    has_words, has_logprobs = (fields.raw(name) is not None for name in ("words", "token_logprobs"))
    start, end = fields.span()
    return Segment(
        id=index if isinstance(fields.raw("id"), str) else fields.integer("id", index),
        seek=fields.integer("seek", 0),
        start=start,
        end=end,
        text=fields.text("text"),
        tokens=fields.items("tokens", _is_index, "an integer of at least 0"),
        temperature=fields.number("temperature", 0.0),
        avg_logprob=fields.number("avg_logprob", 0.0),
        compression_ratio=fields.number("compression_ratio", 0.0),
        no_speech_prob=fields.number("no_speech_prob", 0.0),
        words=[_word(each, start, end) for each in fields.objects("words")] if has_words else None,
        token_logprobs=fields.items("token_logprobs", is_number, "a number") if has_logprobs else None,
        language=fields.text("language", "") or None,
        speaker=fields.text("speaker", "") or None,
    )


def _word(fields: Fields, earliest: float, latest: float) -> Word:
    """Return a word. earliest, latest: the times of its segment, which it must overlap or touch."""
    start, end = fields.span()
    if end < earliest or start > latest:
        raise wrong_field(fields._at("start"), f"within its segment, from {earliest:g} to {latest:g}", start)
    return Word(start, end, fields.text("word"), fields.number("probability", 1.0))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    """True for a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(finite(value))


def _is_time(value: Any) -> bool:
    return is_number(value) and 0 <= value <= MAX_SECONDS


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_stretch(value: Any) -> bool:
    """True for a list of two times."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_time, value))


def wrong_field(place: str, wanted: str, value: Any) -> ParameterError:
    """Return the error about a field's value. wanted: describes a valid one."""
    return ParameterError(f"{{{place}}} must be {wanted}, not {{{place}!}}", param=place, value=value)
