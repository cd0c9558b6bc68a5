"""Ends of sentences in texts: their marks, and abbreviations that end with a full stop.

All code that cuts a transcript at sentences calls it, except the rules of openai-whisper in `timing.words`, which have
their own marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SPACED, UNSPACED = ".!?…؟۔।॥", "。！？｡"  # noqa: RUF001  marks before a blank, and of scripts without blanks
CLOSING = r"""["'”’»)\]」』）]*"""  # noqa: RUF001
SENTENCE_END = re.compile(rf"[{SPACED}{UNSPACED}]{CLOSING}\s*$")
WITHIN = re.compile(rf"[{SPACED}]{CLOSING}\s+|[{UNSPACED}]+{CLOSING}\s*")
# Titles and other abbreviations of the Latin script, capitals such as the initial of a name, and runs such as "e.g."
ABBREVIATION = re.compile(
    r"""(?:^|[^\w.])
    (?: (?i:mr|mrs|ms|messrs|dr|dra|prof|st|sr|sra|srta|jr|mme|mlle|hr|fr|dott|sig|vs|approx)
      | [A-ZÀ-ÖØ-ÞΑ-ΩА-Я] | (?:[^\W\d_]\.)+[^\W\d_] )
    \.\s*$""",
    re.VERBOSE,
)
LONGEST_ABBREVIATION = 20  # characters


def ends_sentence(text: str) -> bool:
    """True if a text ends with a sentence, perhaps with closing marks or blanks; False after an abbreviation."""
    return SENTENCE_END.search(text[-LONGEST_ABBREVIATION:]) is not None and not _is_abbreviated(text)


def sentence_ends(text: str) -> Iterator[int]:
    """Yield where each sentence of a text but the last one ends: after its mark and the blanks that follow it.

    A sentence does not begin with a small letter.
    """
    begin = 0
    for found in WITHIN.finditer(text):
        end = found.end()
        if end < len(text) and not text[end].islower() and not _is_abbreviated(text[begin:end]):
            yield end
            begin = end


def _is_abbreviated(text: str) -> bool:
    return ABBREVIATION.search(text.rstrip()[-LONGEST_ABBREVIATION:]) is not None
