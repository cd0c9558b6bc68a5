"""Whole words among timed tokens, where a line, a subtitle or a segment may be cut, and their durations.

Whisper's words are runs of tokens: a word with a hyphen, an apostrophe or a decimal point has several. Attention
gives some words no duration. The Transcriber gives every word of a transcript one; `transept.speech.output` does the
same for subtitles, because transcripts also come from elsewhere. `timing.turns` and batched mode use the breaks.
"""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterable, Sequence

from transept.speech.segments import Segment, Word

SHORTEST = 0.02  # seconds; one position of Whisper's encoder
# Scripts that put no blanks between words: Thai and Lao, Burmese, Khmer, Chinese, Japanese, and full-width forms.
UNSPACED_SCRIPTS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u3190-\ua4cf\uaa60-\uaa7f\uf900-\ufaff\uff00-\uff9f"
    "\U00020000-\U0003ffff]"
)
NEVER_FIRST = ("Mn", "Mc", "Pe", "Pf", "Po", "Lm")  # categories: vowel signs, closing marks, stops, marks of length
NEVER_LAST = ("Ps", "Pi")  # categories: opening marks
SMALL_KANA = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ"  # belong to the character before them
LEADING_SIGNS = "เแโใไເແໂໃໄ\u1039\u17d2"  # vowels and stackers that belong to the consonant after them
LINE_BREAKS = re.compile(r"(?<![ \t\r\n])[ \t]*[\r\n][ \t\r\n]*")


def may_break(before: str, after: str) -> bool:
    """True if a word ends between two adjacent texts, neither of them empty.

    Words end at blanks; in scripts without blanks, between any two runs of tokens that punctuation and vowel signs do
    not hold together.
    """
    last, first = before[-1], after[0]
    if last.isspace() or first.isspace():
        return True
    if not (UNSPACED_SCRIPTS.match(last) or UNSPACED_SCRIPTS.match(first)):
        return False
    starts = unicodedata.category(first) not in NEVER_FIRST and first not in SMALL_KANA
    return starts and unicodedata.category(last) not in NEVER_LAST and last not in LEADING_SIGNS


def joined_text(texts: Iterable[str]) -> str:
    """Return the texts of segments as one, with a blank between two words that would run together."""
    whole = ""
    for text in texts:
        whole += text if not whole or not text or may_break(whole, text) else f" {text}"
    return whole


def whole_text(texts: Iterable[str]) -> str:
    """Return the texts of segments as one, with blanks in place of the ends of lines."""
    return LINE_BREAKS.sub(" ", joined_text(texts)).strip()


def parts_of_words(words: Sequence[Word]) -> list[list[Word]]:
    """Group the parts of each whole word of a segment; a lone blank joins the next word."""
    groups: list[list[Word]] = []
    last, is_blank = "", True  # of the current word: its last character, and whether it shows nothing yet
    for word in words:
        if groups and (not word.word or is_blank or not may_break(last, word.word)):
            groups[-1].append(word)
        else:
            groups.append([word])
            is_blank = True
        last = word.word[-1:] or last
        is_blank = is_blank and not word.word.strip()
    return groups


def whole_words(words: Sequence[Word]) -> list[Word]:
    """Return the whole words of a segment, without words that show nothing.

    A whole word lasts from its first part's start to its last part's end. Line feeds become blanks, and a blank at the
    end of a word moves to the start of the next.
    """
    whole = []
    blank = ""  # at the end of the previous word
    for parts in parts_of_words(words):
        text = LINE_BREAKS.sub(" ", "".join(part.word for part in parts))
        shown = [part for part in parts if part.word.strip()]
        if shown:
            head = "" if text[0].isspace() else blank
            whole.append(dataclasses.replace(shown[0], end=shown[-1].end, word=head + text.rstrip()))
            blank = " " if text[-1].isspace() else ""
    return whole


def lengthened(words: Sequence[Word]) -> list[Word]:
    """Return the words, each at least SHORTEST long, and none beginning before the previous one ends.

    A word that is too short takes time from the pause after it, or from the next words without a pause. The last
    word ends later than before only if the whole sequence is too short for its words.
    """
    if not words:
        return []
    begin = done = words[0].start
    times = []
    for word in words:
        start = max(word.start, done)
        done = max(word.end, start + SHORTEST)
        times.append((start, done))
    limit = max(words[-1].end, begin + len(words) * SHORTEST)
    for index in range(len(words) - 1, -1, -1):
        start, end = times[index]
        end = min(end, limit)
        limit = max(begin, min(start, end - SHORTEST))
        times[index] = (limit, end)
    return [
        word if (word.start, word.end) == (start, end) else dataclasses.replace(word, start=start, end=end)
        for word, (start, end) in zip(words, times, strict=True)
    ]


def lasting(segment: Segment) -> Segment:
    """Return the segment. It gets longer words if one has no duration, and a later end if its text has no duration."""
    start, end, words = segment.start, segment.end, segment.words
    if words and any(word.end <= word.start for word in words):
        words = [
            each if each is word else dataclasses.replace(each, start=round(each.start, 3), end=round(each.end, 3))
            for word, each in zip(words, lengthened(words), strict=True)
        ]
        end = max(end, words[-1].end)
    if segment.text and end <= start:
        end = round(start + SHORTEST, 3)
    if words is segment.words and end == segment.end:
        return segment
    return dataclasses.replace(segment, end=end, words=words)
