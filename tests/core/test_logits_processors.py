"""Logits processors: called once for requests with equal ones, after suppression, before the choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForSeq2SeqLM,
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from transept import Engine, SamplingParams
from transept.core.execution.drawn import Drawn, SamplingRow
from transept.core.execution.sampler import Sampler
from transept.core.request.generation_defaults import complete
from transept.core.scheduling.step import SequenceData

VOCABULARY = 12


@dataclass(frozen=True)
class AfterLast:
    """Allows only the token after the last one, and notes what it was shown."""

    step: int
    seen: list[tuple[int, list[bool]]] = field(default_factory=list, compare=False)

    def __call__(self, logits: Tensor, rows: Sequence[SequenceData]) -> None:
        self.seen.append((len(rows), torch.isinf(logits[:, 3]).tolist()))
        for row, data in zip(logits, rows, strict=True):
            kept = (data.last_token_id + self.step) % VOCABULARY
            value = row[kept].clone()
            row.fill_(float("-inf"))
            row[kept] = value


def params(**options: object) -> SamplingParams:
    from transformers import GenerationConfig

    return complete(
        SamplingParams(**options), GenerationConfig(), prompt_token_ids=[0], max_positions=20, vocab_size=VOCABULARY
    )


def test_equal_processors_share_a_call_and_see_suppressed_logits() -> None:
    one, other, two = AfterLast(1), AfterLast(1), AfterLast(2)
    greedy = {"temperature": 0.0, "suppress_tokens": [3]}
    rows = [
        SamplingRow(seq_id, SequenceData([0], [output], 0), params(logits_processors=(processor,), **greedy), 1)
        for seq_id, (output, processor) in enumerate(((5, one), (7, two), (9, other)))
    ]
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(0))
    sampled = Drawn(Sampler(torch.device("cpu"))(logits, rows)).collect()
    assert [sampled[seq_id][0].token_id for seq_id in range(3)] == [6, 9, 10]
    assert [sampled[seq_id][0].logprob for seq_id in range(3)] == [0.0, 0.0, 0.0]  # of what the processor left
    assert one.seen == [(2, [True, True])]
    assert other.seen == []
    assert two.seen == [(1, [True])]


def test_a_beam_search_normalises_what_they_leave() -> None:
    processor = AfterLast(4)
    beams = params(num_beams=2, logits_processors=(processor,))
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(0))
    choices = Sampler(torch.device("cpu"))(logits, [SamplingRow(0, SequenceData([0], [5], 0), beams, 4)])
    sampled = Drawn(choices).collect()
    ((token,),) = sampled.values()
    assert token.token_id == 9
    assert token.logprob == pytest.approx(0.0)


@dataclass(frozen=True)
class Returns:
    """Returns what a function makes of the logits."""

    make: Callable[[Tensor], object]

    def __call__(self, logits: Tensor, rows: Sequence[SequenceData]) -> object:
        return self.make(logits)


def only(token: int) -> Callable[[Tensor], Tensor]:
    """New logits, as processors of transformers make them, that allow one token."""
    return lambda logits: torch.full_like(logits, float("-inf")).index_fill_(1, torch.tensor([token]), 0.0)


def first_tokens(logits: Tensor, **options: object) -> list[list[int]]:
    rows = [SamplingRow(seq_id, SequenceData([0], [5], 0), params(**options), 1) for seq_id in range(len(logits))]
    drawn = Drawn(Sampler(torch.device("cpu"))(logits.clone(), rows)).collect()
    return [[token.token_id for token in tokens] for tokens in drawn.values()]


@pytest.mark.parametrize("options", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 2}, {"num_beams": 2}], ids=str)
def test_returned_logits_are_taken(options: dict[str, object]) -> None:
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(0))
    assert first_tokens(logits, logits_processors=Returns(only(7)), **options) == [[7]] * 3
    in_turn = (Returns(only(7)), Returns(lambda given: given.roll(1, dims=1)))
    assert first_tokens(logits, logits_processors=in_turn, **options) == [[8]] * 3


@pytest.mark.parametrize(
    "make",
    [
        lambda logits: None,
        lambda logits: logits,
        lambda logits: logits.mul_(1.0),
        lambda logits: logits.clone(),
        lambda logits: logits.view_as(logits),
        lambda logits: logits.T.contiguous().T,
    ],
)
def test_returned_logits_that_are_the_same_change_nothing(make: Callable[[Tensor], object]) -> None:
    logits = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0))
    plain = first_tokens(logits, temperature=0.0)
    assert first_tokens(logits, temperature=0.0, logits_processors=Returns(make)) == plain


def test_a_view_of_the_logits_may_be_returned() -> None:
    """Here the rows of which are columns: copied over themselves they would be mixed."""
    logits = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0))
    turned = first_tokens(logits.T.contiguous(), temperature=0.0)
    assert first_tokens(logits, temperature=0.0, logits_processors=Returns(lambda given: given.T)) == turned


class Last(LogitsProcessor):
    """As users of transformers write one: allows only the token after the last, or what comes of a function."""

    def __init__(self, change: Callable[[Tensor], object] = lambda scores: scores) -> None:
        self.change = change

    def __call__(self, input_ids: Tensor, scores: Tensor) -> object:
        assert scores.shape == (len(input_ids), VOCABULARY)
        scores = torch.full_like(scores, float("-inf")).scatter_(1, input_ids[:, -1:] + 1, 0.0)
        return self.change(scores)


def test_processors_of_transformers_are_taken_as_they_are() -> None:
    processors = LogitsProcessorList([SuppressTokensLogitsProcessor([6], device="cpu"), Last()])
    options = params(temperature=0.0, logits_processors=processors)
    contents = [SequenceData([0], [2, 4], 0), SequenceData([0, 3, 1], [7], 0), SequenceData([9], [], 0)]
    rows = [SamplingRow(seq_id, data, options, 1) for seq_id, data in enumerate(contents)]
    sampled = Drawn(Sampler(torch.device("cpu"))(torch.zeros(3, VOCABULARY), rows)).collect()
    assert [sampled[seq_id][0].token_id for seq_id in range(3)] == [5, 8, 10]


@pytest.mark.parametrize("returned", ["logits", torch.zeros(3), torch.zeros(1, VOCABULARY, dtype=torch.float64)])
def test_a_wrong_return_value_of_transformers_kind_is_named(returned: object) -> None:
    with pytest.raises(ValueError, match="it must return None, or logits like those"):
        first_tokens(torch.randn(2, VOCABULARY), logits_processors=(Last(lambda scores: returned),))


@pytest.mark.parametrize("num_beams", [1, 3])
def test_they_have_the_tokens_of_transformers_generate(num_beams: int) -> None:
    directory = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
    engine = Engine(directory, device="cpu", kv_cache_bytes=1 << 20)
    model = AutoModelForSeq2SeqLM.from_pretrained(directory).eval()
    processors = [RepetitionPenaltyLogitsProcessor(3.0), SequenceBiasLogitsProcessor([[[102], -9.0]])]
    words = ["window", "bananas"]
    options = SamplingParams(temperature=0.0, max_tokens=12, logits_processors=processors)
    if num_beams > 1:
        options = SamplingParams(num_beams=num_beams, max_tokens=12, logits_processors=processors)
    for output in engine.generate(words, options):
        ids = torch.tensor([output.encoder_prompt_token_ids])
        settings = {"num_beams": num_beams, "do_sample": False, "max_length": len(output.prompt_token_ids) + 12}
        settings |= {"renormalize_logits": True}
        start = torch.tensor([output.prompt_token_ids])
        expected = model.generate(
            ids, decoder_input_ids=start, logits_processor=LogitsProcessorList(processors), **settings
        )
        tokens = [*output.prompt_token_ids, *output.outputs[0].token_ids]
        assert tokens == expected[0].tolist()
