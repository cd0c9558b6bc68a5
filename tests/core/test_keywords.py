"""Keywords: their prefix tree against a search by hand, the sampler against dense scores, and small random models."""

from __future__ import annotations

import pickle
import random
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_whisper import SECONDS, save_random_whisper

from transept import Engine, SamplingParams
from transept.core.checkpoints.plain_tokenizer import PlainTokenizer
from transept.core.execution.drawn import Drawn, SamplingRow
from transept.core.execution.sampler import Sampler
from transept.core.request.inputs import DecoderInputs, EncoderDecoderInputs, EncoderInputs
from transept.core.request.keyword_tree import FIRST_SHARE, KeywordTree
from transept.core.request.keywords import (
    MAX_KEYWORDS,
    TERM_CANDIDATES,
    Spelling,
    keywords,
    spellings,
    tokenize_keywords,
)
from transept.core.request.prompt_probe import PromptProbe
from transept.core.scheduling.keyword_search import AGREEMENT, KeywordSearch
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.core.scheduling.step import SequenceData
from transept.errors import ParameterError

VOCAB_SIZE = 40
CPU = torch.device("cpu")
NOISE = np.random.default_rng(0).normal(0.0, 0.3, size=(6, int(SECONDS * 16_000))).astype(np.float32)


def tree_of(*terms: tuple[int, ...], boost: float = 2.0, openers: tuple[int, ...] = ()) -> KeywordTree:
    return KeywordTree(spellings(tuple(Spelling(term, boost, True) for term in terms), frozenset(openers)))


def gained(tree: KeywordTree, tokens: list[int]) -> float:
    """The sum of what keywords add to the log probabilities of some tokens, one after the other."""
    total = 0.0
    for index, token in enumerate(tokens):
        state = tree.state(tokens[:index])
        gain = tree.scores(state).get(token, 0.0) - tree.refund(state)
        assert tree.gain(state, token) == gain
        total += gain
    return total


def worth(length: int, boost: float = 2.0) -> float:
    return boost * (length - 1 + FIRST_SHARE)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3], worth(3)),
        ([9, 1, 2, 3, 9, 9], worth(3)),
        ([1, 2, 9], 0.0),  # a match that breaks is refunded
        ([1, 1, 2, 9, 2, 3], 0.0),
        ([1, 2, 1, 2, 3], worth(3)),
        ([1, 2, 3, 9, 1, 2, 3], 2 * worth(3)),
        ([1, 2, 5, 6, 9], worth(2)),  # of 5, 6: a match within one that breaks
        ([1, 2, 5, 6, 7], worth(5)),
        ([8], worth(1)),
        ([8, 4, 9], worth(1)),  # a longer term that breaks leaves the shorter one
        ([8, 4, 4], worth(1) + 4.0),
    ],
    ids=str,
)
def test_whole_terms_gain_their_boosts_and_broken_ones_nothing(tokens: list[int], expected: float) -> None:
    tree = tree_of((1, 2, 3), (1, 2, 5, 6, 7), (5, 6), (8,), (8, 4, 4))
    assert gained(tree, tokens) == pytest.approx(expected)


def test_a_state_is_the_longest_end_of_the_output_that_begins_a_term() -> None:
    draw = random.Random(0)
    for _ in range(30):
        terms = {tuple(draw.choices(range(3), k=draw.randint(1, 4))) for _ in range(4)}
        tree = tree_of(*terms)
        begins = {term[:size] for term in terms for size in range(1, len(term) + 1)}
        output: list[int] = draw.choices(range(4), k=12)
        for size in range(len(output) + 1):
            ends = [tuple(output[first:size]) for first in range(size)]
            longest = next((end for end in ends if end in begins), ())
            continued = {begin[-1] for begin in begins if any(begin[:-1] == end for end in [*ends, ()])}
            assert {*tree.scores(tree.state(output[:size]))} == continued
            assert tree.state(output[:size]) == tree.state(list(longest)) or longest == ()


def test_some_terms_begin_only_where_a_word_may() -> None:
    tree = KeywordTree(spellings((Spelling((1, 2), 2.0, False), Spelling((3,), 2.0, True)), frozenset({7})))
    for output, begun in (([], {1, 3}), ([5], {3}), ([7], {1, 3}), ([5, 7], {1, 3}), ([7, 5], {3}), ([1], {2, 3})):
        assert {*tree.scores(tree.state(output))} == begun


@pytest.mark.parametrize(
    ("given", "parsed"),
    [
        (None, ()),
        (" ", ()),
        ("Dashwood, Norland Park,", (("Dashwood", None), ("Norland Park", None))),
        (["Ada", " Grace  Hopper "], (("Ada", None), ("Grace Hopper", None))),
        ({"Ada": 2, (4, 5): 3.5}, (("Ada", 2.0), ((4, 5), 3.5))),
        ([[4, 5], np.array([6])], (((4, 5), None), ((6,), None))),
        ([["Ada", 2.0], ("Grace", None)], (("Ada", 2.0), ("Grace", None))),
    ],
    ids=str,
)
def test_forms_of_keywords(given: Any, parsed: Any) -> None:
    assert keywords("keywords", given) == parsed
    assert keywords("keywords", keywords("keywords", given)) == parsed
    assert SamplingParams(keywords=given).keywords == parsed


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "must be a list of terms"),
        (["Ada", " "], "holds an empty term"),
        (",,", "holds an empty term"),
        (" , ", "holds an empty term"),
        ("Ada,,Grace", "holds an empty term"),
        ('{"": 2}', "holds an empty term"),
        ([[]], "holds an empty term"),
        ([3.5], "holds 3.5; a term is a text or a list of token ids"),
        ([[-1]], "token ids start at 0"),
        (["a" * 201], "a term of more than 200 characters"),
        ([[1] * 201], "a term of more than 200 token ids"),
        (["\ud800"], "half a surrogate pair"),
        ({"Ada": 0}, "the boost 0 of 'Ada'; it must be above 0"),
        ({"Ada": float("nan")}, "it must be above 0 and at most 100"),
        ({"Ada": "2"}, "it must be above 0"),
        ([[index] for index in range(MAX_KEYWORDS + 1)], f"more than {MAX_KEYWORDS} terms"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_keywords_that_cannot_be_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        SamplingParams(keywords=given)


@pytest.fixture(scope="module")
def tokenizer(tiny_en_dir: Path) -> PlainTokenizer:
    from tokenizers import Tokenizer

    return PlainTokenizer(Tokenizer.from_file(str(tiny_en_dir / "tokenizer.json")))


def test_texts_are_spelt_as_words(tokenizer: PlainTokenizer) -> None:
    given = keywords("keywords", {"zebra": 4.0, "Ada Lovelace": None, "東京": None})
    found = tokenize_keywords(given, 3.0, tokenizer, 51_864)
    spelt = {tokenizer.decode(each.token_ids): (each.boost, each.begins_anywhere) for each in found}
    assert spelt == {
        " zebra": (4.0, True),
        "zebra": (4.0, False),
        " Zebra": (4.0, True),
        "Zebra": (4.0, False),
        " Ada Lovelace": (3.0, True),
        "Ada Lovelace": (3.0, False),
        " 東京": (3.0, True),
        "東京": (3.0, True),  # no blank comes before a word there
    }
    assert {tokenizer.decode([token]) for token in found.openers} >= {'"', ' "', " (", "-"}
    assert pickle.loads(pickle.dumps(found)) is found  # requests with equal ones are sampled together


def test_spellings_that_the_model_cannot_write_are_left_out(tokenizer: PlainTokenizer) -> None:
    given = keywords("keywords", ["<|endoftext|>", "a", [7, 5000]])
    found = tokenize_keywords(given, 3.0, tokenizer, 51_864)
    assert {tokenizer.decode(each.token_ids) for each in found} == {" a", "a", " A", "A", tokenizer.decode([7, 5000])}
    assert all(max(each.token_ids) < 4_000 for each in tokenize_keywords(given, 3.0, tokenizer, 4_000))
    assert given.token_ids == {7, 5000}
    with pytest.raises(ParameterError, match="need a tokenizer, which this checkpoint lacks"):
        tokenize_keywords(given, 3.0, None, 51_864)


TERMS = spellings((Spelling((4, 5, 6), 3.0, True), Spelling((9, 2), 1.5, True)), frozenset())


def rows_of(params: SamplingParams, outputs: list[list[int]], num_samples: int = 1) -> list[SamplingRow]:
    return [
        SamplingRow(index, SequenceData([0], output, 0), params, num_samples) for index, output in enumerate(outputs)
    ]


def dense(outputs: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, vocabulary] scores, and [rows] refunds."""
    tree, scores, refunds = KeywordTree(TERMS), torch.zeros(len(outputs), VOCAB_SIZE), torch.zeros(len(outputs))
    for row, output in enumerate(outputs):
        state = tree.state(output)
        for token, score in tree.scores(state).items():
            scores[row, token] = score
        refunds[row] = tree.refund(state)
    return scores, refunds


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0, "stop": "x"},
        {"temperature": 0.0, "stop": "x", "logprobs": 2},
        {"temperature": 1.0, "seed": 3},
    ],
    ids=str,
)
def test_tokens_are_chosen_with_the_scores_and_reported_without(options: dict[str, Any]) -> None:
    outputs = [[], [4], [4, 5], [9], [4, 5, 6]] * 8
    logits = torch.randn(len(outputs), VOCAB_SIZE, generator=torch.Generator().manual_seed(1)) * 2
    scores, refunds = dense(outputs)
    params = SamplingParams(keywords=TERMS, **options)
    plain = SamplingParams(**options)
    drawn = Drawn(Sampler(CPU)(logits.clone(), rows_of(params, outputs))).collect()
    expected = Drawn(Sampler(CPU)(logits + scores, rows_of(plain, outputs))).collect()
    unlike = Drawn(Sampler(CPU)(logits.clone(), rows_of(plain, outputs))).collect()
    assert any(drawn[row][0].token_id != unlike[row][0].token_id for row in range(len(outputs)))
    for row in range(len(outputs)):
        (token,), (other,) = drawn[row], expected[row]
        assert token.token_id == other.token_id
        assert token.logprob == pytest.approx(logits[row].log_softmax(dim=-1)[token.token_id].item(), abs=1e-5)
        assert token.boost == pytest.approx((scores[row, token.token_id] - refunds[row]).item())


@pytest.mark.parametrize("num_beams", [1, 3])
def test_a_keyword_search_gets_the_likeliest_tokens_and_those_of_keywords(num_beams: int) -> None:
    outputs = [[], [4], [4, 5], [9]]
    logits = torch.randn(len(outputs), VOCAB_SIZE, generator=torch.Generator().manual_seed(1)) * 2
    scores, _ = dense(outputs)
    params = SamplingParams(keywords=TERMS, temperature=0.0, num_beams=num_beams)
    number = 1 if num_beams == 1 else 6
    drawn = Drawn(Sampler(CPU)(logits.clone(), rows_of(params, outputs, number + TERM_CANDIDATES))).collect()
    logprobs = logits.log_softmax(dim=-1)
    for row in range(len(outputs)):
        likeliest = logprobs[row].topk(number).indices.tolist()
        listed = torch.where(scores[row] > 0.0, logprobs[row] + scores[row], -torch.inf)
        terms = listed.topk(min(TERM_CANDIDATES, int((scores[row] > 0.0).sum()))).indices.tolist()
        expected = [*likeliest, *(token for token in terms if token not in likeliest)]
        assert [token.token_id for token in drawn[row]] == expected
        assert [token.logprob for token in drawn[row]] == pytest.approx(logprobs[row, expected].tolist(), abs=1e-5)


EOS = 0
SPOKEN_NOWHERE = spellings((Spelling((38, 39), 3.0, True),), frozenset())
INPUTS = EncoderDecoderInputs(EncoderInputs(None, [1], 1), DecoderInputs(None, [1]))


def searched(
    logprobs: dict[tuple[int, ...], dict[int, float]],
    terms: Any,
    max_tokens: int = 12,
    num_beams: int = 1,
    parts: tuple[int, ...] = (),
) -> tuple[list[int], int]:
    """The output of a keyword search, and its most sequences at a time.

    logprobs: of tokens, by the output before them. parts: tokens that continue a word.
    """
    params = SamplingParams(temperature=0.0, keywords=terms, num_beams=num_beams, early_stopping=True)
    search, new_id = KeywordSearch(params, 0, continues_word=lambda last, token: token in parts), count(1)
    beams, most, tree = [Sequence(0, INPUTS)], 1, KeywordTree(terms)

    def end(beam: Sequence, token: int) -> Any:
        if token == EOS:
            return SequenceStatus.STOPPED, None
        return (SequenceStatus.LENGTH, None) if len(beam.output_token_ids) + 1 == max_tokens else None

    while True:
        sampled = {}
        for beam in beams:
            own = logprobs.get(tuple(beam.output_token_ids), {EOS: -0.1})
            scores = tree.scores(tree.state(beam.output_token_ids))
            tokens = sorted(own, key=lambda token: -own[token])
            number = search.num_candidates - TERM_CANDIDATES
            chosen = [*tokens[:number], *(token for token in tokens[number:] if token in scores)]
            sampled[beam.seq_id] = [SampledToken(token, own[token], None) for token in chosen]
        going_on = search.advance(beams, sampled, end)
        if not going_on:
            return search.hypotheses[0].output_token_ids, most
        beams = [each.parent.fork(next(new_id), 0) for each in going_on]
        for beam, each in zip(beams, going_on, strict=True):
            beam.append_token(each.token)
        most = max(most, len(beams))


MEANT = {(): {8: -1.0, 4: -2.5}, (8,): {9: -0.1}, (4,): {7: -0.4, 5: -1.5}, (4, 5): {6: -0.1}}


def test_a_keyword_search_follows_a_term_until_it_is_clear_whether_it_was_meant() -> None:
    terms = spellings((Spelling((4, 5, 6), 3.0, True),), frozenset())
    assert searched(MEANT, terms) == ([4, 5, 6, EOS], 2)
    begun = {**MEANT, (4,): {7: -0.1, 5: -9.0}}  # no term after all: what a greedy search writes
    assert searched(begun, terms) == ([8, 9, EOS], 2)
    elsewhere = {**MEANT, (): {8: -1.0, 4: -12.0}}  # where no term begins, there is one beam
    assert searched(elsewhere, terms) == ([8, 9, EOS], 1)
    sure = {**MEANT, (): {8: -0.2, 4: -2.5}}  # nor where the model is sure
    assert searched(sure, terms) == ([8, 9, EOS], 1)


def test_no_follower_begins_from_a_follower() -> None:
    terms = spellings((Spelling((4, 5, 6), 3.0, True), Spelling((7, 2), 3.0, True)), frozenset())
    assert searched({**MEANT, (4,): {7: -0.9, 5: -1.5}, (8,): {9: -0.1}}, terms) == ([4, 5, 6, EOS], 2)


def test_beams_keep_their_places_while_others_follow_a_term() -> None:
    terms = spellings((Spelling((4, 5, 6), 3.0, True),), frozenset())
    others = {(): {8: -1.0, 7: -2.0, 10: -2.1, 4: -2.5}, (7,): {9: -0.1}, (8, 9): {1: -0.1}, (8, 9, 1): {1: -0.1}}
    assert searched({**MEANT, **others}, terms, num_beams=2) == ([4, 5, 6, EOS], 3)
    rare = {**MEANT, **others, (4,): {7: -0.1, 5: -19.0}}
    assert searched(rare, terms, num_beams=2) == (searched(rare, SPOKEN_NOWHERE, num_beams=2)[0], 3)


def test_a_term_is_a_whole_word() -> None:
    likely = {(): {8: -1.0, 4: -1.5}, (8,): {9: -0.1}, (4,): {5: -0.3}, (4, 5): {7: -0.1}}
    for ends_anywhere, parts, expected in (
        (False, (7,), [8, 9, EOS]),
        (False, (), [4, 5, 7, EOS]),
        (True, (7,), [4, 5, 7, EOS]),
    ):
        terms = spellings((Spelling((4, 5), 3.0, True, ends_anywhere),), frozenset())
        assert searched(likely, terms, parts=parts)[0] == expected


@pytest.mark.parametrize("num_beams", [1, 2])
def test_no_term_is_repeated_for_its_boosts(num_beams: int) -> None:
    terms = spellings((Spelling((4, 5), 3.0, True),), frozenset())
    logprobs: dict[tuple[int, ...], dict[int, float]] = {(): {8: -1.0, 4: -1.5}, (8,): {9: -0.1}}
    for size in range(6):
        logprobs[(4, 5) * size + (4,)] = {5: -0.2}
        logprobs[(4, 5) * (size + 1)] = {EOS: -0.5, 4: -1.0}
    assert searched(logprobs, terms, num_beams=num_beams)[0] == [4, 5, EOS]


def test_beams_that_no_keyword_parts_become_one() -> None:
    terms = spellings((Spelling((4, 6), 3.0, True),), frozenset())
    after = {(*first, *[7] * size): {7: -0.1} for first in ((8, 3), (4, 6)) for size in range(AGREEMENT + 3)}
    begin = {(): {8: -0.5, 4: -1.0}, (8,): {3: -0.1}, (4,): {6: -1.5}}
    output, most = searched({**after, **begin}, terms, max_tokens=AGREEMENT + 4)
    assert (output, most) == ([4, 6] + [7] * (AGREEMENT + 2), 2)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("random-whisper"))


def prompt(index: int) -> dict[str, Any]:
    return {"multi_modal_data": {"audio": (NOISE[index], 16_000)}}


SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "beams": {"num_beams": 3},
    "samples": {"temperature": 0.8, "n": 2, "seed": 5},
}
BOOST = 45.0  # the random model is sure of its tokens
CALLED = [[11, 12, 13], [20, 21], [17, 30, 31, 32], [40]]


def written(engine: Engine, options: dict[str, Any], indices: list[int]) -> list[list[list[int]]]:
    params = SamplingParams(max_tokens=16, **options)
    outputs = engine.generate([prompt(index) for index in indices], params, progress=False)
    return [[each.token_ids for each in output.outputs] for output in outputs]


def contains(tokens: list[int], run: list[int]) -> bool:
    return any(tokens[first : first + len(run)] == run for first in range(len(tokens)))


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_engines_write_keywords_alone_as_in_any_batch(directory: Path, search: dict[str, Any]) -> None:
    called = {**search, "keywords": CALLED, "keyword_boost": BOOST}
    engine = Engine(directory)
    plain = written(engine, search, [0, 1, 2])
    alone = [written(engine, called, [index])[0] for index in range(3)]
    assert alone != plain
    assert any(contains(tokens, run) for outputs in alone for tokens in outputs for run in CALLED)
    assert written(engine, called, [0, 1, 2]) == alone
    small = Engine(directory, block_size=4, kv_cache_bytes=2 * 2 * 64 * 4 * 4 * 60)  # some are preempted
    assert written(small, called, [0, 1, 2, 0, 1, 2]) == [*alone, *alone]
    small.block_manager.check_integrity()


def test_ranks_write_the_same_keywords(directory: Path) -> None:
    called = {"keywords": CALLED, "keyword_boost": BOOST}
    alone = Engine(directory)
    with Engine(directory, tensor_parallel_size=2, num_threads=1) as ranks:
        for search in (SEARCHES["greedy"], SEARCHES["beams"]):
            assert written(ranks, {**search, **called}, [0, 1]) == written(alone, {**search, **called}, [0, 1])


def test_an_engine_for_one_sequence_has_room_for_keywords(directory: Path) -> None:
    engine = Engine(directory, max_num_seqs=1)
    (output,) = written(engine, {"temperature": 0.0, "keywords": [[11, 12]], "keyword_boost": 60.0}, [0])
    assert output[0][:2] == [11, 12]


def test_ids_of_keywords_are_within_the_vocabulary(directory: Path) -> None:
    engine = Engine(directory)
    with pytest.raises(ParameterError, match="keywords holds 1000000; this model's token ids end at"):
        engine.generate(prompt(0), SamplingParams(keywords=[[1_000_000]]))


def test_log_probabilities_are_those_of_the_model(directory: Path) -> None:
    """The tokens of a text with keywords get the log probabilities that a probe reads from the same text."""
    engine = Engine(directory)
    params = SamplingParams(temperature=0.0, max_tokens=8, keywords=CALLED, keyword_boost=BOOST)
    (output,) = engine.generate(prompt(0), params, progress=False)
    (best,) = output.outputs
    assert any(contains(best.token_ids, run) for run in CALLED)
    assert best.cumulative_boost > 0.0
    whole = [*output.prompt_token_ids, *best.token_ids]
    first = len(output.prompt_token_ids)
    probe = PromptProbe(logprobs=tuple((place - 1, whole[place]) for place in range(first, len(whole))))
    given = {"encoder_prompt": prompt(0), "decoder_prompt": {"prompt_tokens": whole}}
    (read,) = engine.generate(given, SamplingParams(max_tokens=1, prompt_probe=probe), progress=False)
    assert read.prompt_probe is not None
    assert best.cumulative_logprob == pytest.approx(sum(read.prompt_probe.logprobs), rel=1e-4)
