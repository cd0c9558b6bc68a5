"""New texts for segments with timed words: unchanged words keep their times, changed words share the old words' time.

Edits by hand, glossaries and redaction all use it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from transept.speech.segments import Segment, Word
from transept.speech.word_breaks import SHORTEST, lengthened, may_break

RUN = re.compile(r"\s*\S+")  # a word of a script with blanks, or a run of words without them


def with_text(segment: Segment, text: str) -> Segment:
    """Return a segment with another text. It has no tokens, since they would spell the old text.

    A segment with words gets the words of the new text. Words that both texts have keep their times and probabilities;
    others share the time of the words in their place.
    """
    words, end = segment.words, segment.end
    if words is not None:
        words = _timed(words, words_of(text), segment.start, segment.end)
        end = max([end, *(word.end for word in words[-1:])])
    logprobs: list[float] | None = None if segment.token_logprobs is None else []
    return dataclasses.replace(segment, text=text, words=words, end=end, tokens=[], token_logprobs=logprobs)


def with_estimated_words(segment: Segment) -> Segment:
    """Return a segment whose words, if it has none, share its time by their lengths."""
    if segment.words is not None:
        return segment
    words = _spread(words_of(segment.text), segment.start, segment.end, 1.0)
    return dataclasses.replace(segment, words=words)


def words_of(text: str) -> list[str]:
    """Return the words of a text, each with the blank before it. Joined, they are the text without trailing blanks."""
    return [word for run in RUN.findall(text) for word in _cut(run)]


def _cut(run: str) -> Iterator[str]:
    """Cut a run of characters where a word may end without a blank, as in Chinese."""
    begin = 0
    for index in range(1, len(run)):
        if run[begin:index].strip() and may_break(run[index - 1], run[index]):
            yield run[begin:index]
            begin = index
    yield run[begin:]


def _timed(old: Sequence[Word], texts: Sequence[str], start: float, end: float) -> list[Word]:
    """Return words with the texts. old: words whose times they get. start, end: of their segment."""
    spelt = ([word.word.strip() for word in old], [text.strip() for text in texts])
    words: list[Word] = []
    for kind, i, j, first, last in SequenceMatcher(None, *spelt, autojunk=False).get_opcodes():
        theirs, new = old[i:j], list(texts[first:last])
        if kind == "equal" or len(theirs) == len(new):
            words += [dataclasses.replace(word, word=text) for word, text in zip(theirs, new, strict=True)]
            continue
        begin = theirs[0].start if theirs else words[-1].end if words else start
        finish = theirs[-1].end if theirs else old[j].start if j < len(old) else end
        probabilities = [word.probability for word in theirs]
        if words and finish - begin < len(new) * SHORTEST:  # no room: share the time of the word before
            before = words.pop()
            begin, new = before.start, [before.word, *new]
            probabilities.append(before.probability)
        words += _spread(new, begin, max(begin, finish), sum(probabilities) / (len(probabilities) or 1) or 1.0)
    return lengthened(words) if any(word.end <= word.start for word in words) else words


def _spread(texts: Sequence[str], start: float, end: float, probability: float) -> list[Word]:
    """Return words that share a stretch of time by their lengths."""
    done = 0  # characters
    per_character = (end - start) / (sum(len(text.strip()) for text in texts) or 1)
    words = []
    for text in texts:
        begin, done = done, done + len(text.strip())
        first, last = (round(start + characters * per_character, 3) for characters in (begin, done))
        words.append(Word(first, last, text, probability))
    return words
