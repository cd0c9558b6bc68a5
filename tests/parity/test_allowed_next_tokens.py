"""allowed_next_tokens: hypotheses and scores equal to transformers' with prefix_allowed_tokens_fn, and its errors."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from test_beam_variants import EOS, GIVEN, PROMPT, START, VOCAB_SIZE, without_padding
from test_beam_variants import engine as engine
from test_beam_variants import model as model
from transformers import BartForConditionalGeneration, GenerationConfig

from transept import Engine, SamplingParams
from transept.errors import ParameterError


class Trie:
    """Titles of a catalogue, as in GENRE (De Cao et al. 2021): each continues the decoder's start token."""

    def __init__(self, titles: Iterable[list[int]]) -> None:
        self.next: dict[tuple[int, ...], set[int]] = {}
        for title in titles:
            whole = [EOS, *title, EOS]
            for length in range(1, len(whole)):
                self.next.setdefault(tuple(whole[:length]), set()).add(whole[length])

    def of_tokens(self, tokens: list[int]) -> list[int]:
        return sorted(self.next.get(tuple(tokens), {EOS}))

    def of_transformers(self, batch_id: int, tokens: torch.Tensor) -> list[int]:
        return self.of_tokens(tokens.tolist())


@pytest.fixture(scope="module")
def trie() -> Trie:
    generator = torch.Generator().manual_seed(5)
    titles = [torch.randint(3, VOCAB_SIZE, (length,), generator=generator).tolist() for length in (1, 2, 3, 4) * 8]
    common = [[7, 8, *title] for title in titles[:9]]
    return Trie([*titles, *common])


def config_of(num_beams: int, **settings: Any) -> GenerationConfig:
    return GenerationConfig(
        num_beams=num_beams, num_return_sequences=num_beams, max_new_tokens=8, early_stopping=False, **settings, **START
    )


@pytest.mark.parametrize(
    ("num_beams", "settings"),
    [
        (1, {}),
        (4, {}),
        (1, {"min_new_tokens": 4}),
        (1, {"repetition_penalty": 1.5, "suppress_tokens": [7]}),
        (4, {"repetition_penalty": 1.5, "suppress_tokens": [7]}),
    ],
)
def test_titles_rank_as_in_transformers(
    model: BartForConditionalGeneration, engine: Engine, trie: Trie, num_beams: int, settings: dict[str, Any]
) -> None:
    """With a minimum of four tokens, shorter titles end on forbidden tokens."""
    config = config_of(num_beams, **settings)
    params = [
        SamplingParams(allowed_next_tokens=trie.of_tokens),
        SamplingParams(prefix_allowed_tokens_fn=trie.of_transformers),
    ]
    outputs = engine.generate([GIVEN] * 2, params, generation_config=config)
    model.generation_config = config
    result = model.generate(
        torch.tensor([PROMPT]),
        prefix_allowed_tokens_fn=trie.of_transformers,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for output in outputs:
        assert [tuple(each.token_ids) for each in output.outputs] == [
            without_padding(row) for row in result.sequences.tolist()
        ]
        if num_beams > 1:
            scores = [each.score for each in output.outputs]
            assert scores == pytest.approx(result.sequences_scores.tolist(), rel=1e-4, abs=1e-5)


NOT_A_HYPOTHESIS = -1e7  # transformers fills up with beams of such scores, of which -1e9 is a part


@pytest.mark.parametrize("num_beams", [1, 2, 4])
@pytest.mark.parametrize("settings", [{}, {"min_new_tokens": 3}, {"min_new_tokens": 5, "repetition_penalty": 1.5}])
@pytest.mark.parametrize("no_repeat_ngram_size", [0, 1, 2])
def test_fewer_titles_than_beams(
    model: BartForConditionalGeneration,
    engine: Engine,
    trie: Trie,
    num_beams: int,
    settings: dict[str, Any],
    no_repeat_ngram_size: int,
) -> None:
    """Only hypotheses that a search found are returned; each has its score in transformers."""
    few = Trie([[3, 59, 28], [22], [41, 9, 41]])
    config = config_of(num_beams, no_repeat_ngram_size=no_repeat_ngram_size, **settings)
    model.generation_config = config
    for titles in (trie, few):
        (output,) = engine.generate(
            GIVEN, SamplingParams(allowed_next_tokens=titles.of_tokens), generation_config=config
        )
        result = model.generate(
            torch.tensor([PROMPT]),
            prefix_allowed_tokens_fn=titles.of_transformers,
            return_dict_in_generate=True,
            output_scores=True,
        )
        rows = [without_padding(row) for row in result.sequences.tolist()]
        if num_beams > 1:
            found = [each for each in result.sequences_scores.tolist() if each > NOT_A_HYPOTHESIS]
            assert [each.score for each in output.outputs] == pytest.approx(found, rel=1e-4, abs=1e-5)
            rows = rows[: len(found)]
        assert [tuple(each.token_ids) for each in output.outputs] == rows


def test_a_logits_processor_ranks_otherwise(engine: Engine, trie: Trie) -> None:
    """It is normalized again, so a title's score counts only the choices between titles."""

    def hide(logits: torch.Tensor, rows: Any) -> torch.Tensor:
        mask = torch.full_like(logits, float("-inf"))
        for place, row in enumerate(rows):
            mask[place, trie.of_tokens(row.token_ids)] = 0.0
        return logits + mask

    params = [SamplingParams(allowed_next_tokens=trie.of_tokens), SamplingParams(logits_processors=hide)]
    constrained, processed = engine.generate([GIVEN] * 2, params, generation_config=config_of(4))
    assert processed.outputs[0].score > constrained.outputs[0].score + 1


@pytest.mark.parametrize(
    ("allowed", "message"),
    [
        (lambda tokens: [], "returned no token after 1 tokens"),
        (lambda tokens: [VOCAB_SIZE], "returned 60; this model's token ids are 0 to 59"),
        (lambda tokens: [-1], "returned -1"),
        (lambda tokens: "ab", "must return a list of token ids"),
        (lambda tokens: 5, "returned 5; it must return a list"),
        (lambda tokens: tokens[9], "IndexError"),
    ],
)
def test_a_bad_function_fails_its_own_request(engine: Engine, allowed: Any, message: str) -> None:
    plain = SamplingParams(temperature=0.0, max_tokens=4)
    (expected,) = engine.generate(GIVEN, plain)
    engine.add_request("plain", GIVEN, plain)
    engine.add_request("bad", GIVEN, SamplingParams(temperature=0.0, max_tokens=4, allowed_next_tokens=allowed))
    finished = {}
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    assert message in str(finished["bad"].error)
    assert finished["plain"].outputs == expected.outputs


def test_a_function_must_be_callable() -> None:
    with pytest.raises(ParameterError, match="allowed_next_tokens must be hashable and callable"):
        SamplingParams(allowed_next_tokens=[1, 2])
