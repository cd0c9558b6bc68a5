"""Grammars: compiles the forms that outputs must have, with llguidance, for one model's vocabulary. No torch here.

The input processor compiles each request's form, so that an invalid or too large one is refused before it runs. A
worker in another process compiles it again. llguidance is imported on first use.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from transept.core.request.guided import Grammar, Guide
from transept.core.request.vocabulary import vocabulary_of
from transept.errors import ParameterError, require_packages, shown

MOST_COMPILED = 64  # grammars that are kept compiled
STACK_SIZE = 256 << 20  # bytes of address space; a chain of rules in a grammar of guided.MAX_LENGTH takes a tenth
# They bound a mask to about 10 ms, and a grammar's automaton to a few MB. Most of llguidance's own limits are 2 to 12
# times higher.
LIMITS = {
    "max_items_in_row": 2048,  # 4 for each of guided.MOST_OPTIONAL properties, and a few for others
    "initial_lexer_fuel": 500_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 25_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}
JSON_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}  # as json.dumps writes it
MOST_FORCED = 64  # characters, longer than almost all tokens
DEAD = "NoExtension"  # begins llguidance's error if no token continues the text
LONGEST_FAULT = 200  # characters of llguidance's message that an error repeats
TOO_LARGE = re.compile(r"too (big \(|deeply|many|complex)|size limit")
LARK_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): (.+)")
GBNF_PLACE = re.compile(r".+? at line \d+(?=, )")
REGEX_INDENT = 4  # blanks before the regular expression in llguidance's message, and before the marks below it
WORD = re.compile(r"\w+")
NOTATIONS = {
    "choice": "Leave such choices out",
    "regex": "Write it in the syntax of Rust's regex crate, without look-around and back-references",
    "json": "Use the supported keywords of JSON Schema, to which docs/decoding.md links",
    "grammar": "Write Lark with a rule start, or GBNF with a rule root",
}
SIMPLER = "Use fewer or smaller repetitions, rules, choices and properties"


class Grammars:
    """Compiles guides, and caches the most recent grammars. Several threads may call it.

    tokenizer: returns the decoder's tokenizer, or None if the checkpoint has none; called on first use.
    size: number of the model's tokens.
    end: the bit of a mask that stands for the end of the text. It follows the bits of all tokens. Later bits have no
    meaning.
    """

    def __init__(self, tokenizer: Callable[[], Any | None], size: int) -> None:
        self._tokenizer, self.end = tokenizer, size
        self._compiled: OrderedDict[Guide, Grammar] = OrderedDict()
        self._lock = threading.Lock()
        self._tokens: Any = None  # LLTokenizer
        self._drops_first_blank = False

    def __call__(self, given: Guide | Grammar) -> Grammar:
        """Compile a guide. Raises ParameterError for an invalid or too large one, and without a tokenizer.

        Raises MissingPackageError without llguidance.
        """
        guide = given.guide if isinstance(given, Grammar) else given
        with self._lock:
            grammar = self._compiled.pop(guide, None) or _on_large_stack(lambda: self._compile(guide))
            self._compiled[guide] = grammar
            if len(self._compiled) > MOST_COMPILED:
                self._compiled.popitem(last=False)
            return grammar

    def latest(self, given: Guide | Grammar) -> Grammar:
        """Return the grammar that `anew` returned, or else a Grammar that is given, or else compile a guide."""
        with self._lock:
            compiled = self._compiled.get(given.guide if isinstance(given, Grammar) else given)
        return compiled or (given if isinstance(given, Grammar) else self(given))

    def anew(self, guide: Guide) -> Grammar:
        """Compile a guide again. For one whose automaton has reached its limits."""
        with self._lock:
            self._compiled.pop(guide, None)
        return self(guide)

    def _compile(self, guide: Guide) -> Grammar:
        require_packages("guided", {"llguidance": "llguidance"}, "guided")
        from llguidance import LLMatcher, LLParserLimits

        if self._tokens is None:
            self._read_tokenizer()
        try:
            source = _source(guide, self._drops_first_blank)
        except Exception as error:  # of a converter of GBNF
            raise _invalid(guide, str(error)) from None
        limits = LLParserLimits(**LIMITS)
        matcher = LLMatcher(self._tokens, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise _invalid(guide, matcher.get_error())
        first = matcher.deep_copy()
        mask = int.from_bytes(first.compute_bitmask(), "little")
        writable = mask % (1 << self.end + 1) and all(token < self.end for token in first.compute_ff_tokens())
        if first.is_error() and not first.get_error().startswith(DEAD):  # it has reached the limits
            raise _refusal(guide, "is too large", SIMPLER)
        if first.is_error() or not writable:
            problem = "matches no text that this model's vocabulary can write"
            raise _refusal(guide, problem, "Ask for texts that end, of characters that the vocabulary has")
        return Grammar(guide, matcher, (self._tokens.vocab_size + 31) // 32)

    def _read_tokenizer(self) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        tokenizer = self._tokenizer()
        if tokenizer is None:
            message = "{guided} needs a tokenizer, which this checkpoint lacks; use {allowed_token_ids}"
            raise ParameterError(message, param="guided")
        vocabulary = vocabulary_of(tokenizer, self.end)
        self._drops_first_blank = vocabulary.drops_first_blank
        tokens = _Tokens(vocabulary.tokens)
        self._tokens = LLTokenizer(TokenizerWrapper(tokens))
        tokens.greedy_tokenize = self._tokens.greedy_tokenize


class _Tokens:
    """A vocabulary as llguidance's TokenizerWrapper reads it, which can write every text.

    After the model's tokens come a token for the end of the text, and a token for each byte that no token of the model
    writes alone. A sequence that can only continue with such a byte has reached a dead end.

    greedy_tokenize: of the LLTokenizer that is made of it.
    """

    bos_token_id = None
    greedy_tokenize: Callable[[str], list[int]]

    def __init__(self, tokens: list[bytes]) -> None:
        alone = {token for token in tokens if len(token) == 1}
        others = [bytes([byte]) for byte in range(256) if bytes([byte]) not in alone]
        self.tokens = [*tokens, b"<|end|>", *others]
        self.eos_token_id = len(tokens)
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: str) -> list[int]:
        """Return the longest tokens that write a text, one after the other.

        llguidance calls it where the grammar leaves only one text, and then allows only the first token. So the
        beginning of a long text suffices.
        """
        return self.greedy_tokenize(text[:MOST_FORCED])


def _source(guide: Guide, drops_first_blank: bool) -> str:
    """Return llguidance's form of a guide. drops_first_blank: see Vocabulary; the output then begins with a blank."""
    from llguidance import LLMatcher
    from llguidance.gbnf_to_lark import any_to_lark

    if guide.kind == "json":
        (body,) = json.loads(LLMatcher.grammar_from_json_schema(guide.text, defaults=JSON_LAYOUT))["grammars"]
    elif guide.kind == "regex":
        (body,) = json.loads(LLMatcher.grammar_from_regex(guide.text))["grammars"]
    elif guide.kind == "choice":
        choices = (json.dumps(each, ensure_ascii=False) for each in json.loads(guide.text))
        body = {"lark_grammar": f"start: CHOICE\nCHOICE: {' | '.join(choices)}"}
    else:
        body = {"lark_grammar": any_to_lark(guide.text)}
    before = '" "' if drops_first_blank else '" "?' if guide.leading_blank else ""
    whole = [{"lark_grammar": f"start: {before} @body"}, {**body, "name": "body"}] if before else [body]
    return json.dumps({"grammars": whole})


def _on_large_stack(function: Callable[[], Grammar]) -> Grammar:
    """Call a function in a thread with a large stack: llguidance follows the rules of a grammar recursively."""
    returned: list[Grammar] = []
    raised: list[BaseException] = []

    def call() -> None:
        try:
            returned.append(function())
        except BaseException as error:
            raised.append(error)

    usual = threading.stack_size(STACK_SIZE)
    try:
        thread = threading.Thread(target=call, name="grammar")
        thread.start()
    finally:
        threading.stack_size(usual)
    thread.join()
    if raised:
        raise raised[0]
    return returned[0]


def _invalid(guide: Guide, message: str) -> ParameterError:
    """Return the error of a form that does not compile. message: llguidance's."""
    if TOO_LARGE.search(message):
        return _refusal(guide, "is too large", SIMPLER)
    fault = _fault(guide.text, message)
    return _refusal(
        guide, f"is not valid: {fault[0].lower()}{fault[1:]}" if fault else "is not valid", NOTATIONS[guide.kind]
    )


def _fault(form: str, message: str) -> str:
    """Return the fault that llguidance's message names; "" if it has no place: no position and no word of the form."""
    first, *others = message.split("\n")
    if fault := next((line for line in others if line.startswith("error: ")), None):
        marks = next((line for line in others if line.strip() and not line.strip(" ^")), "")
        column = marks.find("^") - REGEX_INDENT + 1
        return f"{fault.removeprefix('error: ')}, at character {column} of the regular expression"
    if place := LARK_PLACE.match(first):
        return f"{_short(place[3])}, at line {place[1]}, character {place[2]}"
    if place := GBNF_PLACE.match(first):
        return place[0]
    fault = _short(first)
    return fault if {*WORD.findall(fault)} & {*WORD.findall(form)} else ""


def _short(fault: str) -> str:
    """Return a fault without llguidance's quotations and lists of alternatives."""
    return re.split(r' \(at "|; |\. |, expected ', " ".join(fault.split()))[0][:LONGEST_FAULT]


def _refusal(guide: Guide, problem: str, advice: str) -> ParameterError:
    text = f"{{guided}} holds {shown(guide.text)} as its {guide.kind}, which {problem}. {advice}"
    return ParameterError(text, param="guided", value=guide.kind)
