"""Glossary: terms that a model misspells, each with its right spelling. Replaces whole words of a transcript.

TranscriptionOptions declares `glossary_terms` as the ``parse`` of its option glossary; `corrected` applies the terms to
each segment of a transcription, and `Transcript.corrected` to a transcript.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from unicodedata import normalize

from transept.errors import ParameterError, shown
from transept.speech.retiming import with_text
from transept.speech.segments import Segment
from transept.speech.word_breaks import UNSPACED_SCRIPTS

Terms: TypeAlias = tuple[tuple[str, str], ...]  # (wrong, right)

SEPARATORS = ("→", "=>", "->", "=", "\t", ",")  # between wrong and right; a line is split at the first one found
COMMENT = "#"
HEAD = ("wrong", "right")  # first row of a table, skipped
MOST_TERMS = 5000
LONGEST_TERM = 200  # characters
MOST_BYTES = 4 << 20  # of a file
REMOVED = ("\x01", "\x02")  # marks of removed words; the second one of those with a capital letter
_MARK = f"[{''.join(REMOVED)}]"
AT_BEGINNING = re.compile(  # of a text, a line, a sentence, a quotation or a bracket
    rf"(^[ \t]*(?:[-\u2013\u2014][ \t]*)?|[.?!\u2026][)\"'\u201d\u2019\]]*[ \t]+|[(\[\"\u201c\u2018\u00bf\u00a1])"
    rf"({_MARK})(?:[,;.?!\u2026]+|(?=\W|$))[ \t]*(\w|{_MARK}|)",
    re.MULTILINE,
)
# Brackets and quotation marks from within which all words were removed.
EMPTY = re.compile(r"[ \t]*(?:\(\)|\[\]|\"\"|\u201c\u201d|\u2018\u2019)")
AT_END = re.compile(rf",?[ \t]*{_MARK}(?=[ \t]*(?:[.?!…;:]|\Z))")
AFTER_COMMA = re.compile(rf",[ \t]*{_MARK},?")
ELSEWHERE = re.compile(rf"[ \t]*{_MARK}")
FORMS = 'a dict {"wrong": "right"}, lines "wrong = right", or the pathlib.Path of a file of them'


def glossary_terms(name: str, given: Any) -> Terms:
    """Return the terms of a dict, of a file, or of a text with a term in each line or with a JSON object.

    A text is never a path, since it may come from a client of a server. Raises ParameterError for a bad term or file.
    """
    pairs: Iterable[Any]
    if given is None:
        return ()
    if isinstance(given, os.PathLike):
        pairs = list(_in_file(name, Path(given)))
        if not pairs:
            message = f'{{{name}}}: "{given}" has no terms; write some, such as "teh = the"'
            raise ParameterError(message, param=name, value=str(given))
    elif isinstance(given, str):
        pairs = _in_text(name, given)
    elif isinstance(given, Mapping):
        pairs = given.items()
    elif isinstance(given, list | tuple):
        pairs = given
    else:
        raise ParameterError(f"{{{name}}} must be {FORMS}, not {{{name}!}}", param=name, value=given)
    terms = tuple(_checked(name, pair) for pair in pairs)
    spellings: dict[str, str] = {}
    for wrong, right in terms:
        if spellings.setdefault(wrong.casefold(), right) != right:
            both = f"{shown(spellings[wrong.casefold()])} and {shown(right)}"
            message = (
                f"{{{name}}}: {shown(wrong)} has two right spellings, {both}; leave one out, since case is ignored"
            )
            raise ParameterError(message, param=name, value=given)
    if len(terms) > MOST_TERMS:
        message = f"{{{name}}} has {len(terms)} terms; give at most {MOST_TERMS}"
        raise ParameterError(message, param=name, value=given)
    return terms


def corrected(segment: Segment, terms: Terms) -> Segment:
    """Return the segment with each term replaced by its right spelling; the same object if it has no terms.

    Words match whole and in any case. A right side in lower case takes the case of the text: capitals at the start, or
    throughout. Unchanged words keep their times; the words of a term share the time of those that they replace. With an
    empty right side, the words are removed with the blanks and commas around them.
    """
    folded = segment.text.casefold()
    near = tuple(wrong for wrong, first in _first_words(terms) if first in folded)  # most terms are in no segment
    text = _pattern(near).sub(lambda found: _right(found, _table(terms)), segment.text) if near else segment.text
    if any(mark in text for mark in REMOVED):
        text = _tidied(text)
    return segment if text == segment.text else with_text(segment, text)


def _in_file(name: str, path: Path) -> Iterable[Any]:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            message = f'{{{name}}}: "{path}" has more than {MOST_BYTES >> 20} MB'
            raise ParameterError(message, param=name, value=str(path))
        text = data.decode("utf-8-sig")
    except OSError as error:
        message = f'{{{name}}}: cannot read "{path}": {error.strerror}'
        raise ParameterError(message, param=name, value=str(path)) from None
    except UnicodeDecodeError as error:
        message = f'{{{name}}}: "{path}" is not UTF-8 text ({error})'
        raise ParameterError(message, param=name, value=str(path)) from None
    if path.suffix.lower() in (".csv", ".tsv"):
        rows = csv.reader(text.splitlines(), delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        return [row for row in rows if any(each.strip() for each in row) and tuple(row) != HEAD]
    return _in_text(name, text)


def _in_text(name: str, text: str) -> Iterable[Any]:
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text)).items()
        except (ValueError, TypeError, RecursionError) as error:
            message = f"{{{name}}} begins like a JSON object, but is not valid JSON: {error}"
            raise ParameterError(message, param=name, value=text[:LONGEST_TERM]) from None
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(COMMENT):
            continue
        separator = next((each for each in SEPARATORS if each in line), None)
        if separator is None:
            message = f'{{{name}}}: line {number} must be "wrong = right", not {shown(line.strip())}'
            raise ParameterError(message, param=name, value=text[:LONGEST_TERM])
        pairs.append(tuple(line.split(separator, 1)))
    return pairs


def _checked(name: str, pair: Any) -> tuple[str, str]:
    """Return a term without blanks around its sides. Its right side may be empty: the words are then left out."""
    if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
        message = f"{{{name}}}: a term is a wrong and a right spelling, not {shown(pair)}"
        raise ParameterError(message, param=name, value=pair)
    wrong, right = (" ".join(normalize("NFC", each).split()) for each in pair)
    if not wrong or max(len(wrong), len(right)) > LONGEST_TERM:
        message = f"{{{name}}}: the spellings of a term must have 1 to {LONGEST_TERM} characters, unlike {shown(pair)}"
        raise ParameterError(message, param=name, value=pair)
    return wrong, right


@lru_cache(maxsize=16)
def _table(terms: Terms) -> dict[str, tuple[str, str]]:
    """Return the terms by their wrong sides in lower case."""
    return {wrong.casefold(): (wrong, right) for wrong, right in terms}


@lru_cache(maxsize=16)
def _first_words(terms: Terms) -> tuple[tuple[str, str], ...]:
    """Return each wrong side with its first word in lower case, the longest side first."""
    longest_first = sorted({wrong for wrong, _ in terms}, key=len, reverse=True)
    return tuple((wrong, wrong.split()[0].casefold()) for wrong in longest_first)


@lru_cache(maxsize=256)
def _pattern(wrong: tuple[str, ...]) -> re.Pattern[str]:
    """Return a pattern that matches the first of these wrong sides that fits."""
    return re.compile("|".join(map(_whole, wrong)), re.IGNORECASE)


def _whole(wrong: str) -> str:
    """Return the pattern of a term as whole words. Scripts without blanks have no ends of words to look for."""
    first, last = (wrong[end].isalnum() and not UNSPACED_SCRIPTS.match(wrong[end]) for end in (0, -1))
    words = r"\s+".join(map(re.escape, wrong.split()))
    return (r"(?<!\w)" if first else "") + words + (r"(?!\w)" if last else "")


def _right(found: re.Match[str], table: Mapping[str, tuple[str, str]]) -> str:
    """Return the right spelling of a match. A spelling in lower case takes the case of the text.

    For words to remove, a mark, which `_tidied` removes. A part of a compound, such as "um-hum", is not removed.
    """
    spelt = " ".join(found[0].split())
    wrong, right = table.get(spelt.casefold(), (spelt, spelt))
    if not right:
        is_part = "-" in (found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1])
        return found[0] if is_part else REMOVED[spelt[0].isupper()]
    if right != right.lower() or (spelt == wrong and wrong != wrong.lower()):
        return right
    if spelt.isupper() and len(spelt) > 1:
        return right.upper()
    return right[:1].upper() + right[1:] if spelt[0].isupper() else right


def _tidied(text: str) -> str:
    """Remove the marks of removed words, each with a blank and the comma that set it off.

    At the beginning of a sentence, the next word gets the capital letter. If a mark is a whole sentence, its full
    stop is removed as well.
    """
    while (tidied := AT_BEGINNING.sub(_next_capital, text)) != text:
        text = tidied
    for pattern, rest in ((EMPTY, ""), (AT_END, ""), (AFTER_COMMA, ","), (ELSEWHERE, "")):
        text = pattern.sub(rest, text)
    lines = (re.sub(r"\s+$", "", line) for line in text.split("\n"))
    kept = "\n".join(line for line in lines if line.strip(" \t-\u2013\u2014"))
    return kept if text.startswith("\n") else kept.lstrip("\n")


def _next_capital(found: re.Match[str]) -> str:
    begin, mark, following = found.groups()
    if mark == REMOVED[True]:
        following = mark if following in REMOVED else following.upper()
    return begin + following
