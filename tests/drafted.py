"""Drafts that are right, wrong, and both, for requests whose output is known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from transept import RequestOutput, SamplingParams


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
