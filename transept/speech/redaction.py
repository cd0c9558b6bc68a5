"""Redaction: replace private parts of a transcript by their kind, such as ``[number]``.

Patterns find numbers, phone numbers, e-mail addresses and URLs; a plugin finds names. TranscriptionOptions declares
`redacted_kinds` as the ``parse`` of its option redact.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from transept.errors import ParameterError, suggest
from transept.speech.retiming import with_text
from transept.speech.segments import Segment

FindNames = Callable[[str, str], Iterable[tuple[int, int]]]  # text, language -> start and end of each name

NAMES = "names"
URL_END = r"[!#-;=?-~]*[#$%&*+/\-0-9=@A-Za-z~]"  # ASCII without quotes and angle brackets; not a mark at the end
SPOKEN = r"\w{1,64}"  # a part of an address
TOP_LEVELS = "com|org|net|edu|gov|info|io|dev|app|eu|uk|de|fr|es|it|nl|at|ch"
LINE_FEED = re.compile(r"[\r\n]")  # of a subtitle's lines, which may cut a number
LETTER = "A-Za-z\u00c0-\u024f"  # of scripts with blanks; in other scripts, a number may touch words
DIGIT = r"\d\u00b2\u00b3\u00b9\u00bc-\u00be\u2150-\u2189"  # also powers, fractions such as \u00bd, and Roman numerals
DATE = r"\d{1,2}([/.-])\d{1,2}\1\d{4}(?!\d)|(?:19|20)\d\d([/.-])\d{1,2}\2\d{1,2}(?!\d)"
INTERNET_ADDRESS = r"\d{1,3}(?:\.\d{1,3}){3}(?![.\d]*\d)"  # IPv4
PATTERNS = {  # kind -> its pattern; if several match, the first kind wins
    "emails": re.compile(
        rf"(?<![{LETTER}\d_.+%-])[{LETTER}\d_.+%-]+@[{LETTER}\d-]+(?:\.[{LETTER}\d-]+)+"
        rf"|\b{SPOKEN}(?: dot {SPOKEN}){{0,5}} at {SPOKEN}(?: dot {SPOKEN}){{1,5}}",  # as dictated in English
        re.IGNORECASE,
    ),
    "urls": re.compile(
        rf"(?:https?://|www\.){URL_END}"
        rf"|(?<![{LETTER}\d.-])(?:[a-z0-9-]+\.)+(?:{TOP_LEVELS})(?![{LETTER}\d])(?:/{URL_END})?",
        re.IGNORECASE,
    ),
    "phones": re.compile(
        rf"(?<![{LETTER}\d])(?<!\d[/.-])(?!{DATE}|{INTERNET_ADDRESS})"
        rf"\+?\(?\d(?:[ ().\-/]{{0,3}}\d){{6,}}(?![{LETTER}\d])"
    ),
    "numbers": re.compile(
        rf"(?<![{LETTER}{DIGIT}])[+#]?[{LETTER}]*[{DIGIT}][{LETTER}{DIGIT}]*"
        rf"(?:[ .,:/\-][{LETTER}]*[{DIGIT}][{LETTER}{DIGIT}]*)*%?"
    ),
}
KINDS = (NAMES, *PATTERNS)
WORDS = {kind: f"[{kind.removesuffix('s')}]" for kind in KINDS}


def redacted_kinds(name: str, given: Any) -> tuple[str, ...]:
    """Return kinds, given as a list or a text with commas, in the order of KINDS. Raises ParameterError for others."""
    if given is None:
        return ()
    listed = [each.strip() for each in given.split(",") if each.strip()] if isinstance(given, str) else given
    if not isinstance(listed, list | tuple) or not all(isinstance(each, str) for each in listed):
        message = f"{{{name}}} must be some of {', '.join(KINDS)}, not {{{name}!}}"
        raise ParameterError(message, param=name, value=given)
    for each in listed:
        if each not in KINDS:
            message = f"{{{name}}} has no kind {each[:100]!r}.{suggest(each, KINDS)}"
            raise ParameterError(message, param=name, value=given)
    return tuple(kind for kind in KINDS if kind in listed)


def redacted(segment: Segment, kinds: Sequence[str], find_names: FindNames | None, language: str) -> Segment:
    """Return a segment with the kind in place of each private part of its text and words, and without its tokens.

    find_names: finds names; needed for the kind names. language: code of the text.
    """
    text = _redacted_text(segment.text, kinds, find_names, segment.language or language)
    spelt = None if segment.words is None else "".join(word.word for word in segment.words)
    if text != segment.text or (spelt is not None and "".join(spelt.split()) != "".join(text.split())):
        return with_text(segment, text)
    return dataclasses.replace(segment, tokens=[], token_logprobs=None if segment.token_logprobs is None else [])


def _redacted_text(text: str, kinds: Sequence[str], find_names: FindNames | None, language: str) -> str:
    found: list[tuple[int, int, str]] = []
    taken = bytearray(len(text))  # 1 for each character of a found part
    for kind, start, end in _find_private_parts(LINE_FEED.sub(" ", text), kinds, find_names, language):
        if 1 not in taken[start:end]:
            found.append((start, end, kind))
            taken[start:end] = b"\1" * (end - start)
    parts, done = [], 0
    for start, end, kind in sorted(found):
        parts += [text[done:start], WORDS[kind]]
        done = end
    return "".join([*parts, text[done:]])


def _find_private_parts(
    text: str, kinds: Sequence[str], find_names: FindNames | None, language: str
) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, the start and the end of each private part, which may overlap."""
    for kind, pattern in PATTERNS.items():
        if kind in kinds:
            for match in pattern.finditer(text):
                yield kind, *match.span()
    if NAMES in kinds and find_names is not None and text.strip():
        for start, end in find_names(text, language):
            yield NAMES, start, end
