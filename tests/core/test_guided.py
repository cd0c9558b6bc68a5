"""Guided outputs: texts of small random models, by parsers of their own, and masks by search through the vocabulary."""

from __future__ import annotations

import json
import pickle
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch

from transept import Engine, SamplingParams
from transept.core.execution.grammar_masks import GrammarMasks
from transept.core.outputs import RequestOutput
from transept.core.request.grammars import LIMITS, Grammars
from transept.core.request.guided import MOST_OPTIONAL, Grammar, Guide, guide
from transept.core.scheduling.step import SequenceData
from transept.errors import MissingPackageError, ParameterError, RequestFailedError

pytest.importorskip("llguidance", reason="needs the extra guided")

PROMPTS = ["The rain in Spain", "Dr. Smith walked to the library", "Her note had two lines"]
CHOICES = ["yes", "no", "no, not now", "perhaps later"]
DATE = r"(1\d|20)\d\d-(0[1-9]|1[0-2])-[0-3]\d|[a-z ]{3,12}[.!]"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["whole", "part"]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
GBNF = """
# moves of a game
root ::= move (", " move)? "."
move ::= ((piece | "king") " " "to "?)? [a-h] (" up" | " down")
piece ::= "bishop" |
    "rook"
unused ::= root
"""
LARK = 'start: move (", " move)? "."\nmove: (("bishop" | "rook" | "king") " " "to "?)? /[a-h] (up|down)/'
MOVE = "(((bishop|rook|king) (to )?)?[a-h] (up|down))"
MOVES = rf"{MOVE}(, {MOVE})?\."


def optional(count: int) -> dict[str, Any]:
    """A schema of optional properties."""
    return {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(count)}}


def is_of_schema(text: str) -> bool:
    jsonschema.validate(json.loads(text), SCHEMA)
    return True


FORMS: dict[str, tuple[dict[str, Any], Callable[[str], Any]]] = {
    "choice": ({"choice": CHOICES}, CHOICES.__contains__),
    "regex": ({"regex": DATE}, re.compile(DATE).fullmatch),
    "json": ({"json": SCHEMA}, is_of_schema),
    "gbnf": ({"grammar": GBNF}, re.compile(MOVES).fullmatch),
    "lark": ({"grammar": LARK}, re.compile(MOVES).fullmatch),
}
SEARCHES = {"greedy": {"temperature": 0.0}, "samples": {"temperature": 1.0, "n": 4}, "beams": {"num_beams": 3}}


@pytest.fixture(scope="module")
def bart(bart_dir: Path) -> Engine:
    return Engine(bart_dir)


@pytest.fixture(scope="module")
def t5(t5_dir: Path) -> Engine:
    return Engine(t5_dir)


def written(engine: Engine, prompts: list[str], **params: Any) -> list[list[list[int]]]:
    """The tokens of each prompt's outputs."""
    outputs = engine.generate(prompts, SamplingParams(seed=7, max_tokens=40, **params), progress=False)
    return [[each.token_ids for each in output.outputs] for output in outputs]


def run(engine: Engine, *params: SamplingParams) -> list[RequestOutput]:
    """The outputs of requests for one prompt, also of those that fail."""
    for number, each in enumerate(params):
        engine.add_request(str(number), PROMPTS[0], each)
    outputs = {}
    while engine.has_unfinished_requests:
        outputs.update({output.request_id: output for output in engine.step()})
    return [outputs[str(number)] for number in range(len(params))]


def is_complete(output: RequestOutput) -> bool:
    return all(each.finish_reason == "stop" for each in output.outputs)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_every_output_has_the_form(
    request: pytest.FixtureRequest, family: str, form: str, search: dict[str, Any]
) -> None:
    given, is_valid = FORMS[form]
    engine = request.getfixturevalue(family)
    params = SamplingParams(guided=given, max_tokens=90, seed=11, **search)
    if (family, form) == ("t5", "json"):  # its vocabulary has no braces, as that of the published T5
        with pytest.raises(ParameterError, match="as its json, which matches no text that this model's vocabulary can"):
            engine.generate(PROMPTS, params, progress=False)
        return
    for output in engine.generate(PROMPTS, params, progress=False):
        assert is_complete(output)
        assert all(is_valid(each.text) for each in output.outputs)


def test_outputs_differ_where_the_form_leaves_a_choice(bart: Engine) -> None:
    params = SamplingParams(guided={"choice": CHOICES}, temperature=1.5, n=32, seed=1)
    (output,) = bart.generate(PROMPTS[0], params)
    assert {each.text for each in output.outputs} == {*CHOICES}


def test_a_text_that_is_cut_off_is_a_begin_of_the_form(bart: Engine) -> None:
    (output,) = bart.generate(PROMPTS[0], SamplingParams(guided={"regex": "[ab]{90}"}, max_tokens=9, temperature=0.0))
    assert output.outputs[0].finish_reason == "length"
    assert re.fullmatch("[ab]{4,}", output.outputs[0].text)


def test_the_most_optional_properties_of_a_schema(bart: Engine) -> None:
    """Each of them may follow, from the first to the last."""
    grammars = Grammars(lambda: bart.tokenizer, bart.shape.vocab_size)
    schema = optional(MOST_OPTIONAL) | {"required": ["p0", "other"]}
    schema["properties"] |= {"other": {"type": "null"}, "last": {"type": "boolean"}}
    matcher = grammars(guide("guided", {"json": schema})).start.deep_copy()
    text = json.dumps({f"p{number}": number for number in range(0, MOST_OPTIONAL, 25)} | {"other": None, "last": True})
    for token in grammars._tokens.greedy_tokenize(text):
        matcher.compute_bitmask()
        assert matcher.consume_token(token), matcher.get_error()
    assert int.from_bytes(matcher.compute_bitmask(), "little") >> grammars.end & 1


@pytest.mark.parametrize("family", ["bart", "t5"])
@pytest.mark.parametrize("begin", ["", "no", "no, n", "perhaps"])
def test_a_mask_allows_each_way_to_go_on_and_no_other(request: pytest.FixtureRequest, family: str, begin: str) -> None:
    """Where one text alone may follow, llguidance allows its longest token, and not all that begin it."""
    tokenizer = request.getfixturevalue(family).tokenizer
    size = len(tokenizer.get_vocab())
    grammars = Grammars(lambda: tokenizer, size)
    grammar = grammars(Guide("choice", json.dumps(CHOICES)))
    tokens = grammars._tokens.tokenize_str(" " * (family == "t5") + begin)
    logits = torch.zeros(1, size)
    GrammarMasks(torch.device("cpu"), grammars).forbid(logits, [(grammar, SequenceData([0], tokens, 0), 0)], [2])
    allowed = (logits[0] == 0.0).nonzero().flatten().tolist()
    prefixes = [tokenizer.decode([*tokens, each]) for each in allowed if each != 2]
    rest = {choice[len(begin) :][:1] for choice in CHOICES if choice.startswith(begin)} - {""}
    assert (2 in allowed) == (begin in CHOICES)
    assert {each[len(begin) :][:1] for each in prefixes} == rest
    assert all(any(choice.startswith(each) for choice in CHOICES) for each in prefixes)


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_results_are_those_of_the_request_alone(bart: Engine, bart_dir: Path, search: dict[str, Any]) -> None:
    """In any batch, next to requests with other forms and with none, and after preemption."""
    plain = written(bart, PROMPTS, **search)
    alone = {form: written(bart, PROMPTS[:1], guided=FORMS[form][0], **search)[0] for form in FORMS}
    small = Engine(bart_dir, block_size=4, kv_cache_bytes=2 * 2 * 48 * 4 * 4 * 60)  # some are preempted
    params = [SamplingParams(seed=7, max_tokens=40, guided=given, **search) for given, _ in FORMS.values()]
    params += [SamplingParams(seed=7, max_tokens=40, **search)] * len(PROMPTS)
    for engine in (bart, small):
        outputs = engine.generate([PROMPTS[0]] * len(FORMS) + PROMPTS, params, progress=False)
        tokens = [[each.token_ids for each in output.outputs] for output in outputs]
        assert tokens[: len(FORMS)] == [*alone.values()]
        assert tokens[len(FORMS) :] == plain


@pytest.mark.parametrize(
    "sizes",
    [
        {"tensor_parallel_size": 2},
        pytest.param({"tensor_parallel_size": 2, "pipeline_parallel_size": 2}, marks=pytest.mark.slow),
    ],
    ids=["ranks", "ranks and stages"],
)
def test_ranks_and_stages_write_the_same(sizes: dict[str, int]) -> None:
    """Of a model whose tokens are phonemes. Its worker processes make the vocabulary and the grammar themselves."""
    checkpoint = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
    guided = {"guided": {"regex": "[A-Z]{1,2}[0-2]?( [A-Z]{1,2}[0-2]?){4}"}}
    alone = Engine(checkpoint)
    with Engine(checkpoint, threads=1, **sizes) as ranks:
        for search in SEARCHES.values():
            expected = written(alone, ["ox", "transept"], **guided, **search)
            assert written(ranks, ["ox", "transept"], **guided, **search) == expected


def test_a_state_is_that_of_the_tokens_alone(bart: Engine) -> None:
    """After other continuations, after shorter prefixes, and without the states of earlier steps."""
    grammars = Grammars(lambda: bart.tokenizer, bart.shape.vocab_size)
    grammar = grammars(guide("guided", {"regex": "[a-c]{2,5}x?"}))
    a, b, x = bart.tokenizer("abx", add_special_tokens=False).input_ids

    def allowed(masks: GrammarMasks, *prefixes: list[int]) -> torch.Tensor:
        logits = torch.zeros(len(prefixes), bart.shape.vocab_size)
        masks.forbid(logits, [(grammar, SequenceData([2, 0], each, 0), 0) for each in prefixes], [2])
        return logits

    masks = GrammarMasks(torch.device("cpu"), grammars)
    prefixes = [[], [a], [a, b], [a, b, b], [a, a], [a, b], [a, b, x]]
    together = allowed(masks, *prefixes)
    for prefix, expected in zip(prefixes, together, strict=True):
        assert torch.equal(allowed(masks, prefix)[0], expected)
        assert torch.equal(allowed(GrammarMasks(torch.device("cpu"), grammars), prefix)[0], expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"regex": "x(a"},
            r"'x\(a' as its regex, which is not valid: unclosed group, at character 2 of .*\. Write it in",
        ),
        ({"regex": "(?=a)b"}, r"is not valid: look-around, including .* not supported, at character 1 of"),
        ({"regex": r"[^\s\S]"}, r"as its regex, which matches no text that .* can write\. Ask for texts that"),
        ({"grammar": "start: missing"}, r'is not valid: unknown name: "missing", at line 1, character 8\. Write Lark'),
        ({"grammar": "start: start"}, "matches no text"),
        ({"grammar": "root ::= ("}, r"as its grammar, which is not valid: expected '\)' at line 1\. Write Lark"),
        (
            {"grammar": "start: <think>"},
            r'is not valid: unknown special token: "<think>", at line 1, character 8\. Write',
        ),
        ({"grammar": "start: <[99999999]>"}, "is not valid: token range end too large: 99999999, at line 1"),
        ({"grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000}, r"which is too large\. Use fewer"),
        ({"json": {"type": "thing"}}, r"as its json, which is not valid: invalid type: thing\. Use the supported"),
        ({"json": {"multipleOf": 0}}, r"as its json, which is not valid\. Use the supported keywords"),
        ({"json": {"$ref": "http://localhost/schema.json"}}, "is not valid: resource 'http://localhost"),
        ({"json": {"$ref": "file:///etc/passwd"}}, "as its json, which is not valid"),
        ({"json": {"$ref": "#"}}, "matches no text"),
        ({"json": "{"}, "not valid JSON"),
        ({"json": False}, "must be a JSON schema: an object"),
        ({"json": [1]}, "must be a JSON schema: an object"),
        ({"json": {"items": optional(MOST_OPTIONAL + 1)}}, "with 501 optional properties in one object, of which at"),
        ({"choice": []}, "a list of non-empty texts"),
        ({"choice": ["a", ""]}, "a list of non-empty texts"),
        ({"regex": ""}, "must be a non-empty text"),
        ({"regex": "a" * 100_001}, "shorten it to at most 100000"),
        ({"regex": "\ud800"}, "half a surrogate pair"),
        ({"regex": "a", "choice": ["a"]}, 'must be one of {"choice"'),
        ({"lark": "a"}, 'must be one of {"choice"'),
        ("anything", "a text alone is a choice in a list"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_invalid_forms_are_refused(bart: Engine, given: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(message) if "{" in message else message) as raised:
        bart.generate(PROMPTS[0], SamplingParams(guided=given))
    assert raised.value.param == "guided"


@pytest.mark.parametrize(
    "given",
    [
        {"grammar": "\n".join(["start: r0", *(f'r{i}: "x" r{i + 1} | "y"' for i in range(4000)), 'r4000: "z"'])},
        {
            "json": {
                "$ref": "#/$defs/r0",
                "$defs": {f"r{i}": {"$ref": f"#/$defs/r{i + 1}"} for i in range(2500)} | {"r2500": {"type": "null"}},
            }
        },
        {"regex": "((a{0,1000}){0,1000}){0,1000}"},
        {"json": {"type": "array", "minItems": 10**6, "items": {"type": "string", "maxLength": 10**7}}},
        {"choice": [f"value {number}" for number in range(5000)]},
        {"grammar": 'start: s\ns: s s s | "a" | "b" | ""'},
    ],
    ids=["rules", "references", "repetitions", "long", "choices", "ambiguous"],
)
def test_large_forms_harm_no_other_request(bart: Engine, given: Any) -> None:
    large = SamplingParams(guided=given, max_tokens=8, temperature=1.0, seed=0)
    outputs = run(bart, large, SamplingParams(seed=7, max_tokens=40))
    assert [each.token_ids for each in outputs[1].outputs] == written(bart, PROMPTS[:1])[0]


@pytest.mark.parametrize("limit", ["max_grammar_size", "initial_lexer_fuel", "step_lexer_fuel"])
def test_too_large_forms_are_refused(bart: Engine, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """While they are compiled, and with their first mask."""
    monkeypatch.setitem(LIMITS, limit, 2)
    grammars = Grammars(lambda: bart.tokenizer, bart.shape.vocab_size)
    with pytest.raises(
        ParameterError, match=r"holds 'start: .* as its grammar, which is too large\. Use fewer or smaller"
    ):
        grammars(Guide("grammar", 'start: (a | b | "c") start?\na: /a|.*[nst].{7}d/ | "b" a "c"\nb: "a" | "b" b'))


def test_a_form_that_grows_too_complex_fails_its_request_alone(bart_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "max_lexer_states", 10)
    engine = Engine(bart_dir)
    plain = SamplingParams(seed=7, max_tokens=40)
    hard = SamplingParams(guided={"regex": "x(.*[aeiou].{9}b|.*[nst].{7}d)"}, max_tokens=80)
    outputs = run(engine, plain, hard, hard)
    assert [each.token_ids for each in outputs[0].outputs] == written(engine, PROMPTS[:1])[0]
    for output in outputs[1:]:
        assert isinstance(output.error, RequestFailedError)
        assert "as its regex, which is too complex" in str(output.error)


class CountedGrammars(Grammars):
    number = 0  # of grammars that were compiled

    def _compile(self, guide: Guide) -> Grammar:
        self.number += 1
        return super()._compile(guide)


def test_rows_at_the_limits_compile_their_grammar_once(bart: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And have their usual masks. A row that breaks the grammar has an empty one, before and after."""
    form = Guide("regex", "x(.*[aeiou].{9}b|.*[nst].{7}d)")
    texts = ["xab", "xeab", "xsab", "xbd", "{"]

    def rows(grammars: Grammars, grammar: Grammar) -> list[Any]:
        tokens = [grammars._tokens.greedy_tokenize(text) for text in texts]
        return [(grammar, SequenceData([0], each, 0), 0) for each in tokens]

    def allowed(masks: GrammarMasks, rows: list[Any]) -> torch.Tensor:
        logits = torch.zeros(len(rows), bart.shape.vocab_size)
        masks.forbid(logits, rows, [2])
        return logits

    usual = Grammars(lambda: bart.tokenizer, bart.shape.vocab_size)
    expected = allowed(GrammarMasks(torch.device("cpu"), usual), rows(usual, usual(form)))
    monkeypatch.setitem(LIMITS, "max_lexer_states", 300)
    grammars = CountedGrammars(lambda: bart.tokenizer, bart.shape.vocab_size)
    grammar = grammars(form)
    filling = grammar.start.deep_copy()
    filling.consume_tokens(
        grammars._tokens.greedy_tokenize("x" + "".join(random.Random(0).choices("naebtdsi", k=2000)))
    )
    filling.compute_bitmask()
    assert "too many states" in filling.get_error()
    masks = GrammarMasks(torch.device("cpu"), grammars)
    assert torch.equal(allowed(masks, rows(grammars, grammar)), expected)
    assert not (expected[-1] == 0.0).any()
    assert grammars.number == 2
    assert torch.equal(allowed(masks, rows(grammars, grammar)), expected)
    assert grammars.number == 2  # later steps use the new one


def test_a_dead_end_fails_its_request(t5: Engine) -> None:
    """T5 cannot write a brace, which comes to light once a word is complete."""
    for search in ({"temperature": 0.0}, {"num_beams": 2}):
        with pytest.raises(RequestFailedError, match="no token continues the output in the form that guided asks for"):
            t5.generate(PROMPTS[0], SamplingParams(guided={"regex": r"(yes|no)\{"}, **search))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"min_tokens": 3}, "min_tokens=3 contradicts guided"),
        ({"ignore_eos": True}, "ignore_eos=True contradicts guided"),
    ],
)
def test_options_that_contradict_a_form(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SamplingParams(guided={"choice": CHOICES}, **params)


def test_own_bans_count_and_those_of_the_checkpoint_do_not(bart: Engine) -> None:
    config = type(bart.generation_config)(**vars(bart.generation_config))
    brace, end = bart.tokenizer("{", add_special_tokens=False).input_ids[0], bart.inputs.eos_token_ids
    config.update(suppress_tokens=[brace], min_length=30, no_repeat_ngram_size=1, eos_token_id=end)
    params = SamplingParams(guided={"json": SCHEMA}, temperature=0.0, max_tokens=60)
    (output,) = bart.generate(PROMPTS[0], params, generation_config=config)
    assert is_of_schema(output.outputs[0].text)
    banned = SamplingParams(guided={"choice": ["no", "yes"]}, temperature=0.0, bad_words=["no"])
    (output,) = bart.generate(PROMPTS[0], banned)
    assert output.outputs[0].text == "yes"
    with pytest.raises(RequestFailedError, match="or other options forbid them"):
        bart.generate(PROMPTS[0], SamplingParams(guided={"json": SCHEMA}, temperature=0.0, suppress_tokens=[brace]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("regex=[0-9]+=", Guide("regex", "[0-9]+=")),
        ("choice=yes, no", Guide("choice", '["yes", "no"]')),
        ('choice=["a, b"]', Guide("choice", '["a, b"]')),
        ('{"regex": "a", "json": null}', Guide("regex", "a")),
        ({"json": True}, Guide("json", "{}")),
        (["yes", "no"], Guide("choice", '["yes", "no"]')),
        ({"json": '{"type": "null"}'}, Guide("json", '{"type": "null"}')),
    ],
)
def test_texts_of_the_option(given: Any, expected: Guide) -> None:
    assert guide("guided", given) == expected
    assert SamplingParams(guided=given).guided == expected


def test_other_programs_names() -> None:
    expected = SamplingParams(guided={"regex": "a"})
    assert SamplingParams(guided_regex="a") == SamplingParams(structured_outputs={"regex": "a"}) == expected
    assert SamplingParams(guided_json={"type": "null"}).guided == Guide("json", '{"type": "null"}')
    with pytest.raises(ParameterError, match="guided_json holds"):
        SamplingParams(guided_json="{")


def test_a_guide_alone_goes_to_another_process() -> None:
    made = Guide("regex", "a", leading_blank=True)
    assert pickle.loads(pickle.dumps(Grammar(made, object(), 1))) == made


def test_without_the_package_the_error_names_the_extra(bart_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingPackageError, match=r'pip install "transept\[guided\]"'):
        Engine(bart_dir).generate(PROMPTS[0], SamplingParams(guided={"choice": CHOICES}))


@pytest.mark.parametrize("search", [SEARCHES["greedy"], {"temperature": 1.0}], ids=["greedy", "samples"])
def test_drafts_change_nothing(bart: Engine, search: dict[str, Any]) -> None:
    """Drafts that break the form, that follow it, and that leave it half way."""
    guided = {"guided": FORMS["json"][0], **search}
    expected = written(bart, PROMPTS, **guided)
    right = bart.tokenizer.decode(expected[0][0], skip_special_tokens=True)
    for draft in ("The rain in Spain", right, right[: len(right) // 2] + "the rain"):
        assert written(bart, PROMPTS, **guided, draft_tokens=draft, draft_length=3) == expected
