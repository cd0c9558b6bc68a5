"""Costs of ending a line or a subtitle between two adjacent words.

After the Netflix Timed Text Style Guide, General Requirements, section "Line Treatment" (after punctuation, before
conjunctions and prepositions; never between an article and its noun, or a first and a last name) and the BBC Subtitle
Guidelines, section 3.4 "Break at natural points". Without a grammar of the language, `function_words` stand for the
parts of speech, and runs of capitalised words for names. `styled_layout` and `broken_rules` call it.
"""

from __future__ import annotations

import re

from transept.speech.output.function_words import FUNCTION_WORDS, NONE, FunctionWords
from transept.speech.sentences import CLOSING, ends_sentence
from transept.speech.word_breaks import UNSPACED_SCRIPTS

SENTENCE, CLAUSE, CONJUNCTION, PREPOSITION, PHRASE, WORD, LEADING = 0.0, 10.0, 20.0, 25.0, 45.0, 60.0, 85.0
INSIDE = 150.0  # within a Japanese phrase, possibly within a word of several tokens
CLAUSE_END = re.compile(rf"(?:[,;:、，；：،]|[–—]|--){CLOSING}$")
OPENING = re.compile(r"^[(\[“‘«–—「『（]")
INITIALS = re.compile(r"^(?:\w\.)+$")  # of a name or a country
NUMBER = re.compile(r"\d[\d.,:/]*$")
COUNTED = re.compile(r"^(?:[\d%‰°€$£¥]|(?:kg|km|cm|mm|ms|am|pm|a\.m|p\.m|mph)\b)")  # follow a number
NOUN_CAPITALS = ("de",)  # languages that capitalise all nouns
PUNCTUATION = "\"'“”‘’«»()[]{}.,;:!?…–—¿¡-"
KATAKANA, KANA, HAN = (
    re.compile(f"[{each}]") for each in ("\u30a0-\u30ff", "\u3040-\u30ff", "\u3400-\u9fff\uf900-\ufaff")
)


def held_together(before: str, after: str, language: str, *, begins_sentence: bool) -> bool:
    """True if two words must stay on one line: an article and its noun, or parts of a number or of a name.

    before, after: with their punctuation, without blanks. begins_sentence: True if `before` is the first word of its
    sentence, so its capital does not mark a name.
    """
    known = FUNCTION_WORDS.get(language, NONE)
    plain, following = before.lower().strip(PUNCTUATION), after.lower().strip(PUNCTUATION)
    if before.lower() in known.titles and after[:1].isupper():
        return True
    if ends_sentence(before) or CLAUSE_END.search(before) or OPENING.match(after):
        return False
    if NUMBER.search(before) and (COUNTED.match(after.lower()) or following in known.numerals):
        return True
    if plain in known.numerals and following in known.numerals:
        return True
    if is_article(before, language):
        return True
    if UNSPACED_SCRIPTS.match(before[-1:]) or UNSPACED_SCRIPTS.match(after[:1]):
        return KATAKANA.match(before[-1:]) is not None and KATAKANA.match(after[:1]) is not None
    return not begins_sentence and language not in NOUN_CAPITALS and _is_name(before, known) and _is_name(after, known)


def is_article(word: str, language: str) -> bool:
    """True if a word is an article, perhaps after a quotation mark, that leads to the next word."""
    return word.lower().lstrip(PUNCTUATION) in FUNCTION_WORDS.get(language, NONE).articles


def _is_name(word: str, known: FunctionWords) -> bool:
    """True if a word is capitalised, and is neither a pronoun nor an interjection."""
    plain = word.strip(PUNCTUATION)
    return (
        plain[:1].isupper()
        and (plain[1:2].islower() or INITIALS.match(word) is not None)
        and (plain.lower() not in known.common)
    )


def break_cost(before: str, after: str, language: str) -> float:
    """Return the cost of a break between two words that are not held together: 0 at a sentence's end, LEADING at most.

    In Japanese, a break within a phrase costs INSIDE, which is more. Arguments: see `held_together`.
    """
    known = FUNCTION_WORDS.get(language, NONE)
    plain, following = before.lower().strip(PUNCTUATION), after.lower().strip(PUNCTUATION)
    if ends_sentence(before):
        return SENTENCE
    if CLAUSE_END.search(before) or OPENING.match(after):
        return CLAUSE
    if language == "ja":
        return _phrase_cost(before[-1:], after[:1])
    if plain in known.leading or plain in known.prepositions or plain in known.conjunctions:
        return LEADING
    if following in known.conjunctions:
        return CONJUNCTION
    if following in known.prepositions:
        return PREPOSITION
    if following in known.articles or following in known.leading:
        return PHRASE
    return WORD


def _phrase_cost(last: str, first: str) -> float:
    """Return the cost of a break between two Japanese characters: phrases end in kana, and begin without."""
    if KANA.match(last) and not KATAKANA.match(last):
        return INSIDE / 2 if KANA.match(first) and not KATAKANA.match(first) else PREPOSITION
    return INSIDE if HAN.match(last) and (HAN.match(first) or KANA.match(first)) else WORD
