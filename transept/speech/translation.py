"""Translate a transcript sentence by sentence, and keep its times.

A sentence may take several subtitles, and a subtitle may hold parts of several sentences. Sentences are translated
whole; each translation is then cut, between words, in proportion to the parts of its sentence.

     subtitles   | I have read that | the tower moves. Is |  it true?  |
     sentences   |-------------- 0 --------------|-------- 1 ----------|
     pieces      |------------------|------------|--------|------------|
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from transept.errors import ParameterError, shown
from transept.speech.retiming import words_of
from transept.speech.segments import Segment
from transept.speech.sentences import ends_sentence, sentence_ends
from transept.speech.word_breaks import UNSPACED_SCRIPTS, joined_text

Translate = Callable[[list[str]], Sequence[str]]  # sentences -> their translations

DASH = re.compile(r"^[ \t]*[-\u2013\u2014][ \t]*(?=\S)", re.MULTILINE)  # of a line in a dialogue
PAUSE = 3.0  # seconds; a longer one ends a sentence whose end has no mark
LONGEST = 600  # characters; a longer sentence ends with its subtitle
TO_MARK = 0.15  # share of a translation by which a cut may move to a mark of punctuation
MARKS = (",", ";", ":", ".", "!", "?", "—", "、", "，", "。")  # noqa: RUF001  full-width marks are meant


@dataclass
class Sentence:
    """A sentence: the indices of its segments, with its part of each."""

    segments: list[int] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The whole sentence, on one line."""
        return " ".join(joined_text(self.parts).split())


def translated(segments: Sequence[Segment], translate: Translate) -> list[Segment]:
    """Return the segments with the translations of their texts, and without words and tokens.

    A text has as many lines as before; lines of a dialogue, which begin with dashes, are translated separately.
    translate: called once with all sentences. Raises ParameterError if it does not return one text for each.
    """
    turns = [turns_of(segment) for segment in segments]
    texts = iter(_translated([turn for each in turns for turn in each], translate))
    return [
        dataclasses.replace(
            segment,
            text=_laid_out(segment.text, [next(texts) for _ in each]),
            words=None,
            tokens=[],
            token_logprobs=None,
            language=None,
        )
        for segment, each in zip(segments, turns, strict=True)
    ]


def turns_of(segment: Segment) -> list[Segment]:
    """Return the turns of a subtitle with a dialogue, each without its dash; of any other, the segment alone."""
    dashes = list(DASH.finditer(segment.text))
    if len(dashes) < 2 or segment.text[: dashes[0].start()].strip():
        return [segment]
    ends = [*(dash.start() for dash in dashes[1:]), len(segment.text)]
    return [
        dataclasses.replace(segment, text=segment.text[dash.end() : end], speaker=f"{segment.speaker}\n{turn}")
        for turn, (dash, end) in enumerate(zip(dashes, ends, strict=True))
    ]


def _translated(turns: Sequence[Segment], translate: Translate) -> list[str]:
    """Return the translation of each turn, on one line."""
    sentences = list(sentences_of(turns))
    given = translate([sentence.text for sentence in sentences])
    translations = [] if isinstance(given, str) else list(given)
    if isinstance(given, str) or not all(isinstance(text, str) for text in translations):
        message = f"translate must return a list of texts, one for each sentence, not {shown(given)}"
        raise ParameterError(message, param="translate")
    if len(translations) != len(sentences):
        message = (
            f"translate returned {len(translations)} texts for {len(sentences)} sentences; it must return one each"
        )
        raise ParameterError(message, param="translate")
    texts: list[list[str]] = [[] for _ in turns]
    for sentence, text in zip(sentences, translations, strict=True):
        for index, part in zip(sentence.segments, cut_text(text, [len(each) for each in sentence.parts]), strict=True):
            texts[index].append(part)
    return [_joined(parts) for parts in texts]


def _laid_out(original: str, texts: Sequence[str]) -> str:
    """Lay out the translations of a subtitle's turns in lines as in the original."""
    if len(texts) > 1:
        dashes = [dash[0].strip() for dash in DASH.finditer(original)]
        lines = [f"{dash} {text.strip()}" for dash, text in zip(dashes, texts, strict=True) if text.strip()]
        return " " + "\n".join(lines)
    (text,) = texts
    lines = [line for line in original.splitlines() if line.strip()]
    if len(lines) < 2:
        return text
    broken = "\n".join(filter(None, cut_text(text, [len(line) for line in lines])))
    return f" {broken}" if text.startswith(" ") else broken


def sentences_of(segments: Sequence[Segment]) -> Iterator[Sentence]:
    """Yield the sentences of a transcript in order, each of one speaker; segments without text have none."""
    sentence = Sentence()
    last: Segment | None = None
    for index, segment in enumerate(segments):
        pieces = pieces_of(segment.text)
        if not pieces:
            continue
        if last is not None and sentence.parts:
            pause = segment.start - last.end > PAUSE
            if pause or segment.speaker != last.speaker or sum(map(len, sentence.parts)) > LONGEST:
                yield sentence
                sentence = Sentence()
        for piece in pieces:
            sentence.segments.append(index)
            sentence.parts.append(piece)
            if ends_sentence(piece):
                yield sentence
                sentence = Sentence()
        last = segment
    if sentence.parts:
        yield sentence


def pieces_of(text: str) -> list[str]:
    """Return the parts of a subtitle's text that belong to different sentences, without blanks around them."""
    borders = [0, *sentence_ends(text), len(text)]
    return [piece for one, other in pairwise(borders) if (piece := text[one:other].strip())]


def cut_text(text: str, lengths: Sequence[int]) -> list[str]:
    """Cut a text between words into as many parts as there are lengths, in proportion to them.

    A cut moves to a mark of punctuation nearby. A text with fewer words than parts leaves some of them empty.
    """
    words = words_of(text)
    ends = [0, *accumulate(map(len, words))]  # characters before each word, and of the whole text
    total = ends[-1]
    cuts = [0]
    for part, length in enumerate(accumulate(lengths[:-1]), 1):
        wanted = total * length / (sum(lengths) or 1)
        first = min(cuts[-1] + 1, len(words))
        last = max(first, len(words) - (len(lengths) - part))  # leaves a word for each further part

        def miss(index: int, wanted: float = wanted) -> float:
            mark = index > 0 and words[index - 1].rstrip().endswith(MARKS)
            return abs(ends[index] - wanted) - (TO_MARK * total if mark else 0.0)

        cuts.append(min(range(first, last + 1), key=miss))
    cuts.append(len(words))
    return ["".join(words[begin:end]).strip() for begin, end in pairwise(cuts)]


def _joined(parts: Sequence[str]) -> str:
    text = joined_text(filter(None, parts))
    return text if not text or UNSPACED_SCRIPTS.match(text) else f" {text}"
