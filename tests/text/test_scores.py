"""TextGenerator.score against the log probabilities of transformers' models for the same texts."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from small_checkpoints import POSITIONS, TEXTS
from torch import Tensor

import transept
from transept import TextScore
from transept.aio import AsyncTextGenerator
from transept.core.execution.prompt_probes import POSITIONS_AT_ONCE
from transept.errors import ParameterError, PromptError, UnsupportedTaskError

TARGETS = ["The rain falls.", TEXTS[1], "a", ""]
LONG = " ".join(2 * TEXTS)  # more tokens than positions are computed at once


@dataclass(frozen=True)
class Row:
    """A call of ours, and the text that transformers' encoder is given. target_code: a language's token."""

    family: str
    options: dict[str, Any]
    prefix: str = ""
    source: str | None = None
    target_code: str | None = None


ROWS = {
    "t5": Row("t5", {}),
    "t5, with a task's prefix": Row(
        "t5", {"task": "translate", "source": "en", "target": "German"}, "translate English to German: "
    ),
    "bart": Row("bart", {}),
    "nllb": Row(
        "nllb",
        {"task": "translate", "source": "eng_Latn", "target": "deu_Latn"},
        source="eng_Latn",
        target_code="deu_Latn",
    ),
}


def expected(case: Any, row: Row, document: str, target: str) -> tuple[list[int], Tensor]:
    """The target's tokens and their log probabilities, by transformers."""
    tokenizer, model = case.tokenizer, case.reference
    if row.source is not None:
        tokenizer.src_lang = row.source
    inputs = tokenizer(row.prefix + document, return_tensors="pt")
    start = [model.config.decoder_start_token_id]
    labels = tokenizer(target, add_special_tokens=row.target_code is None).input_ids
    if row.target_code is not None:
        start.append(tokenizer.convert_tokens_to_ids(row.target_code))
        labels = [*labels, tokenizer.eos_token_id]
    elif len(case.generator.engine.preprocess.decoder_inputs(None).token_ids) > 1:
        start, labels = [*start, labels[0]], labels[1:]  # BART's prompt already has the token that begins every label
    with torch.inference_mode():
        logits = model(**inputs, decoder_input_ids=torch.tensor([[*start, *labels[:-1]]])).logits
    logprobs = logits[0, len(start) - 1 :].float().log_softmax(dim=-1)
    return labels, logprobs.gather(1, torch.tensor(labels)[:, None])[:, 0]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_scores_are_those_of_transformers(cases: Callable[[str], Any], row: Row) -> None:
    case = cases(row.family)
    targets = [*TARGETS, LONG] if row.family == "t5" else TARGETS  # T5 has no limit of positions
    scores = case.generator.score(TEXTS[0], targets, **row.options)
    assert max(len(score.token_ids) for score in scores) > POSITIONS_AT_ONCE or row.family != "t5"
    for score, target in zip(scores, targets, strict=True):
        token_ids, logprobs = expected(case, row, TEXTS[0], target)
        assert score.token_ids == token_ids
        torch.testing.assert_close(torch.tensor(score.logprobs), logprobs, rtol=1e-4, atol=1e-4)
        assert score.logprob == pytest.approx(float(logprobs.sum()), rel=1e-5, abs=1e-3)
        assert score.perplexity == pytest.approx(math.exp(-float(logprobs.mean())), rel=1e-3)


def test_pairs_share_an_encoder_run(cases: Callable[[str], Any]) -> None:
    generator = cases("t5").generator
    before = generator.engine.num_encoder_runs
    choices = generator.score("is it raining?", ["yes", "no", "perhaps"])
    assert generator.engine.num_encoder_runs == before + 1
    alone = [generator.score("is it raining?", each.target) for each in choices]
    assert [each.token_ids for each in alone] == [each.token_ids for each in choices]
    assert [each.logprob for each in alone] == pytest.approx([each.logprob for each in choices])
    assert generator.score(["is it raining?", TEXTS[0]], "yes")[0].logprob == pytest.approx(choices[0].logprob)
    both = generator.score([TEXTS[0], "is it raining?"], ["yes", "no"])
    assert both[1].logprob == pytest.approx(choices[1].logprob)
    assert isinstance(both[0], TextScore)


def test_what_is_generated_scores_as_it_was_generated(cases: Callable[[str], Any]) -> None:
    generator = cases("t5").generator
    written = generator.generate(TEXTS[0], num_beams=1, temperature=0.0, max_tokens=8)
    score = generator.score(TEXTS[0], written.text)
    first = generator.engine.tokenizer(written.text, add_special_tokens=False).input_ids
    assert score.token_ids[: len(first)] == first
    assert score.logprob < 0


def test_every_call_gives_the_same(cases: Callable[[str], Any]) -> None:
    case = cases("t5")
    expected = case.generator.score(TEXTS[0], "yes")
    assert transept.score(TEXTS[0], "yes", case.directory, kv_cache_bytes=1 << 24) == expected

    async def scored() -> TextScore:
        generator = AsyncTextGenerator(case.generator)
        try:
            return await generator.score(TEXTS[0], "yes")
        finally:
            generator.engine.stop()

    assert asyncio.run(scored()) == expected


def test_errors(cases: Callable[[str], Any]) -> None:
    generator = cases("bart").generator
    with pytest.raises(ParameterError, match="1 targets for 2 documents; give one for each"):
        generator.score(["a", "b"], ["c"])
    with pytest.raises(PromptError, match=r"the target has .* this model has room for"):
        generator.score("a", "word " * POSITIONS)
    (bad,) = generator.score("a", [1])
    assert str(bad.error) == "a target is a string, not int"
    with pytest.raises(PromptError, match="targets must be a string, or several in a list, not int"):
        generator.score("a", 1)
    with pytest.raises(ParameterError, match="a score is of a whole document"):
        generator.score("a", "b", chunk=True)
    with pytest.raises(UnsupportedTaskError):
        generator.score("a", "b", task="translate")
    good, bad = generator.score(["a", " "], "b")
    assert good.error is None
    assert isinstance(bad.error, PromptError)
    assert math.isnan(bad.perplexity)
    assert bad.to_dict()["perplexity"] is None
