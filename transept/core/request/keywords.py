"""Keywords: terms that decoding prefers, as users give them and as token ids. No torch here.

`keywords` parses the option of SamplingParams and TranscriptionOptions. `tokenize_keywords`, which the input processor
calls, turns the terms into Spellings. The sampler makes a `KeywordTree` of these.
"""

from __future__ import annotations

import json
import operator
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from transept.errors import ParameterError, shown
from transept.options import LONE_SURROGATE, Option

MAX_KEYWORDS = 10_000
MAX_KEYWORD_LENGTH = 200  # characters, or token ids
DEFAULT_BOOST = 6.0
MAX_BOOST = 100.0  # far above any relevant difference of two log probabilities
FOLLOWERS = 3  # maximum number of beams that a KeywordSearch adds to follow keywords; max_num_seqs may lower it
TERM_CANDIDATES = 3  # tokens of keywords that the sampler returns for each beam of a KeywordSearch
REMEMBERED = 32  # lists of keywords in each cache
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "MYANMAR", "KHMER")  # scripts without blanks between words
OPENING_MARKS = ('"', "'", "“", "‘", "(", "[", "{", "«", "¿", "¡", "-", "–", "—", "/", "\n")  # noqa: RUF001  are meant
Term: TypeAlias = str | tuple[int, ...]
GivenKeywords: TypeAlias = Mapping[str, float] | Sequence[str | Sequence[int] | tuple[Term, float | None]]


class Keywords(tuple[tuple[Term, float | None], ...]):
    """Checked terms, each with its boost; None: the option keyword_boost."""

    @cached_property
    def token_ids(self) -> frozenset[int]:
        """All token ids of the terms that are lists of token ids."""
        return frozenset(token for term, _ in self if not isinstance(term, str) for token in term)

    @cached_property
    def _hash(self) -> int:
        return tuple.__hash__(self)

    def __hash__(self) -> int:
        return self._hash


class Spelling(NamedTuple):
    """Token ids that write a term. boost: for each token. begins_anywhere: False if only at the start of a word.

    A spelling with a leading blank starts a word, so it may begin anywhere. ends_anywhere: False if only at the end of
    a word, which only a KeywordSearch checks.
    """

    token_ids: tuple[int, ...]
    boost: float
    begins_anywhere: bool
    ends_anywhere: bool = True


class Spellings(tuple[Spelling, ...]):
    """All spellings of all keywords. Equal ones are the same object in a process, so comparing them is cheap.

    openers: tokens after which a word begins without a blank, such as an opening quotation mark.
    """

    openers: frozenset[int]
    _hash: int

    def __new__(cls, spellings: Iterable[Spelling], openers: frozenset[int] = frozenset()) -> Spellings:
        """Use `spellings` instead, which returns the same object for equal arguments."""
        made = super().__new__(cls, spellings)
        made.openers, made._hash = openers, hash((tuple(made), openers))
        return made

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Spellings):
            return self is other
        return self._hash == other._hash and self.openers == other.openers and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __reduce__(self) -> Any:
        return spellings, (tuple(self), self.openers)


@lru_cache(REMEMBERED)
def spellings(each: tuple[Spelling, ...], openers: frozenset[int]) -> Spellings:
    """Return the Spellings for these arguments, the same object for equal arguments."""
    return Spellings(each, openers)


def keywords(name: str, given: Any) -> Keywords | Spellings:
    """Parse terms: a mapping of terms to boosts, a list of terms or of (term, boost) pairs, or one text.

    The text has commas between terms, and perhaps after the last one, or is a JSON object or list. A term is a text or
    a list of token ids. A blank text holds no terms. Raises ParameterError, also for an empty term.
    """
    if isinstance(given, Keywords | Spellings):
        return given
    if given is None:
        return Keywords()
    terms: dict[Term, float | None] = {}
    for term, boost in islice(_pairs(name, given), MAX_KEYWORDS + 1):
        terms[_term(name, term)] = None if boost is None else _boost(name, term, boost)
    if len(terms) > MAX_KEYWORDS:
        raise ParameterError(f"{{{name}}} holds more than {MAX_KEYWORDS} terms; keep those that matter", param=name)
    return Keywords(terms.items())


def _pairs(name: str, given: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(given, str) and given.lstrip().startswith(("{", "[")):
        given = _of_json(name, given)
    if isinstance(given, str):
        *terms, last = given.split(",")
        return ((term, None) for term in ([*terms, last] if last.strip() else terms))
    if isinstance(given, Mapping):
        return iter(given.items())
    if isinstance(given, Iterable) and not isinstance(given, bytes):
        return (each if _is_pair(each) else (each, None) for each in given)
    wanted = 'a list of terms, or {term: boost}, such as {"Dashwood": 2.0}'
    raise ParameterError(f"{{{name}}} must be {wanted}, not {{{name}!}}", param=name, value=given)


def _of_json(name: str, text: str) -> Any:
    """Return the object or the list of a JSON text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"{{{name}}} begins like JSON, but is not valid JSON: {error}. Send an object, a list, or TERM,TERM"
        raise ParameterError(message, param=name, value=text[:MAX_KEYWORD_LENGTH]) from None


def _is_pair(each: Any) -> bool:
    """True for a text with its boost or None, as in Keywords."""
    return isinstance(each, tuple | list) and len(each) == 2 and isinstance(each[0], str)


def _term(name: str, term: Any) -> Term:
    if isinstance(term, str):
        found: Term = " ".join(term.split())
        if LONE_SURROGATE.search(term):
            raise ParameterError(
                f"{{{name}}} holds half a surrogate pair, which is not valid text: {shown(term)}", param=name
            )
    else:
        try:
            found = tuple(operator.index(token) for token in islice(term, MAX_KEYWORD_LENGTH + 1))
        except TypeError:
            message = f"{{{name}}} holds {shown(term)}; a term is a text or a list of token ids"
            raise ParameterError(message, param=name, value=term) from None
        if found and min(found) < 0:
            raise ParameterError(f"{{{name}}} holds {min(found)}; token ids start at 0", param=name, value=term)
    if not found:
        raise ParameterError(f"{{{name}}} holds an empty term; leave it out", param=name, value=term)
    if len(found) > MAX_KEYWORD_LENGTH:
        unit = "characters" if isinstance(found, str) else "token ids"
        message = f"{{{name}}} holds a term of more than {MAX_KEYWORD_LENGTH} {unit}; shorten it: {shown(term)}"
        raise ParameterError(message, param=name, value=term)
    return found


def _boost(name: str, term: Any, boost: Any) -> float:
    number = isinstance(boost, int | float) and not isinstance(boost, bool)
    if not number or not 0.0 < boost <= MAX_BOOST:
        message = f"{{{name}}} holds the boost {shown(boost)} of {shown(term)}; it must be above 0 and at most"
        raise ParameterError(f"{message} {MAX_BOOST:g}", param=name, value=boost)
    return float(boost)


def tokenize_keywords(given: Keywords, boost: float, tokenizer: Any | None, vocab_size: int) -> Spellings:
    """Return the spellings of keywords. boost: of terms without one.

    A text is spelt with a leading blank, and also without one for words that follow no blank: at the start of the
    output, after an opening mark, and anywhere in scripts without blanks. A text that begins with a lower-case letter
    is also spelt with a capital, as at the start of a sentence. Spellings with special tokens, or with ids of
    `vocab_size` or above, are left out: the model cannot write them.
    Raises ParameterError for texts if the checkpoint has no tokenizer.
    """
    if tokenizer is None and any(isinstance(term, str) for term, _ in given):
        message = "{keywords} need a tokenizer, which this checkpoint lacks; give lists of token ids"
        raise ParameterError(message, param="keywords")
    found: dict[tuple[int, ...], Spelling] = {}
    special = frozenset(() if tokenizer is None else tokenizer.all_special_ids)

    def encode(text: str) -> tuple[int, ...]:
        assert tokenizer is not None  # checked above
        return tuple(tokenizer(text, add_special_tokens=False).input_ids)

    def add(token_ids: tuple[int, ...], each: float, begins_anywhere: bool, ends_anywhere: bool) -> None:
        if token_ids and max(token_ids) < vocab_size and special.isdisjoint(token_ids):
            other = found.get(token_ids)
            if other is not None:
                each, begins_anywhere = max(each, other.boost), begins_anywhere or other.begins_anywhere
                ends_anywhere = ends_anywhere or other.ends_anywhere
            found[token_ids] = Spelling(token_ids, each, begins_anywhere, ends_anywhere)

    for term, own in given:
        each = boost if own is None else own
        if not isinstance(term, str):
            add(term, each, True, True)
            continue
        ends_anywhere = not term[-1].isalnum() or is_unspaced(term[-1])
        for text in {term: None, term[0].upper() + term[1:]: None}:
            add(encode(f" {text}"), each, True, ends_anywhere)
            add(encode(text), each, is_unspaced(text[0]), ends_anywhere)
    openers: frozenset[int] = frozenset()
    if tokenizer is not None:
        marks = (encode(blank + mark) for mark in OPENING_MARKS for blank in ("", " "))
        openers = frozenset(token_ids[0] for token_ids in marks if len(token_ids) == 1).difference(special)
    return spellings(tuple(found.values()), openers)


def is_unspaced(character: str) -> bool:
    """True for a letter of a script that puts no blanks between words, such as Chinese or Thai."""
    return unicodedata.name(character, "").startswith(UNSPACED)


KEYWORDS = Option(
    "terms to prefer, such as names",
    "A list of texts or of lists of token ids, or a mapping of texts to boosts. A text matches whole words. Texts need "
    "the checkpoint's tokenizer. Without sampling, a request takes up to three more of max_num_seqs.",
    metavar="TERM,...",
    default="",
    parse=keywords,
    also="str | None",
)
KEYWORD_BOOST = Option(
    "added to the log probability of each token of a keyword that has no individual boost",
    "The first token gets less. Higher values find more of the terms, also where other words are spoken. Reported log "
    "probabilities exclude boosts.",
    metavar="X",
    gt=0,
    le=MAX_BOOST,
)
