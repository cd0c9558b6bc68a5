"""Requests of all kinds, their results, and drafts that are right, wrong, and both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transept import Engine, RequestOutput, SamplingParams
from transept.core.scheduling.step import SequenceData

CHECKPOINTS = Path(__file__).parent / "data" / "cmudict"
HERE = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32", "kv_cache_bytes": 1 << 26}
WORDS = ["grapheme", "ox", "transept", "a", "engine", "nave", "crossing", "choir", "apse", "vault", "tower", "it"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def no_doubles(logits: Tensor, rows: Sequence[SequenceData]) -> None:
    """A processor that reads the last token of each row."""
    for index, row in enumerate(rows):
        logits[index, row.token_ids[-1]] = float("-inf")


def refuse_wrong_tokens(logits: Tensor, rows: Sequence[SequenceData]) -> None:
    """A processor that raises for a token that it never allows."""
    for row in rows:
        if 7 in row.output_token_ids:
            raise ValueError("7 cannot be here")
    logits[:, 7] = float("-inf")


KINDS = [
    GREEDY,
    SamplingParams(temperature=0.0, max_tokens=24),
    SamplingParams(temperature=0.0, max_tokens=1),
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, min_tokens=12, forced_eos_token_id=2),
    SamplingParams(temperature=0.0, max_tokens=19, logprobs=3, begin_suppress_tokens=[5], suppress_tokens=[9]),
    SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, repetition_penalty=1.5, frequency_penalty=0.5),
    SamplingParams(
        temperature=0.0,
        max_tokens=16,
        ignore_eos=True,
        no_repeat_ngram_size=2,
        logit_bias={11: 1.0},
        sequence_bias={(12,): 0.5, (11, 12): -2.0},
        encoder_repetition_penalty=1.2,
        exponential_decay_length_penalty=(4, 1.1),
    ),
    SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True, stop=["AH", "K S"], min_tokens=3),
    SamplingParams(temperature=0.0, max_tokens=20, stop_token_ids=[12], allowed_token_ids=[*range(2, 40)]),
    SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True, logits_processors=[no_doubles]),
    SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True, logits_processors=[refuse_wrong_tokens]),
    SamplingParams(temperature=1.0, seed=3, max_tokens=20, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0.7, seed=4, max_tokens=12, n=3, top_k=10, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=4, max_tokens=9, n=2, keywords=[[11, 12]]),
    SamplingParams(temperature=0.0, max_tokens=9, keywords=[[11, 12]]),  # a keyword search, without drafts
    SamplingParams(num_beams=3, max_tokens=9),
]


def results(output: RequestOutput) -> list[Any]:
    return [
        (each.token_ids, each.text, each.finish_reason, each.stop_reason, each.logprobs and [*map(set, each.logprobs)])
        for each in output.outputs
    ]


def assert_same(ours: list[RequestOutput], theirs: list[RequestOutput]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.error is None
        assert results(one) == results(other)
        for mine, expected in zip(one.outputs, other.outputs, strict=True):
            assert mine.cumulative_logprob == pytest.approx(expected.cumulative_logprob, abs=1e-3)


def assert_nothing_is_held(engine: Engine) -> None:
    manager = engine.block_manager
    manager.check_integrity()
    assert manager.num_free_device_blocks == manager.num_device_blocks


def spoiled(tokens: Sequence[int], rng: random.Random, vocab_size: int) -> list[int]:
    """The tokens, of which about every fifth is another, is missing or stands twice."""
    draft: list[int] = []
    for token in tokens:
        draft += rng.choice([[token]] * 12 + [[rng.randrange(vocab_size)], [], [token, token]])
    return draft


def drafted(params: SamplingParams, output: RequestOutput, rng: random.Random, vocab_size: int) -> SamplingParams:
    """The parameters with a draft made of the output, which is theirs. Beam searches have none."""
    if params.beam_search:
        return params
    tokens = rng.choice(output.outputs).token_ids
    drafts = [tokens, spoiled(tokens, rng, vocab_size), [rng.randrange(vocab_size) for _ in range(24)], None]
    draft = rng.choice(drafts)
    return replace(params, draft="lookup", draft_tokens=draft, draft_length=rng.choice((1, 2, 4, 7)))
