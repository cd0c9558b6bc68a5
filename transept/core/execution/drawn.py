"""The rows of logits of a step, and the tokens that the sampler chose for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transept.core.kernels.transfer import Download, upload
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken
from transept.core.scheduling.step import SequenceData

_AS_SAMPLED = partial(tuple.__new__, SampledToken)  # of its five fields, without a call of Python code


class SamplingRow(NamedTuple):
    """One row of logits: a sequence, and the prefix of it that the row's token continues.

    A step has one row for most sequences, whose prefix is the whole sequence. A sequence with a draft has one row for
    itself, followed by one for each prefix that ends with a draft token; see `SequenceData.prefixes`. Rules about
    earlier tokens, rules about their number, and draws depend on the row's own prefix.

    data: the prefix. num_samples: tokens to draw from the row; for a beam, candidates to return.
    """

    seq_id: int
    data: SequenceData
    params: SamplingParams
    num_samples: int


class Chosen(NamedTuple):
    """Tokens chosen for some rows, and their log probabilities, [rows, samples] each, still on the device.

    top: the same for the top-k tokens, [rows, logprobs], if requested. forbidden: True if tokens with a log probability
    of minus infinity may be among the chosen ones. boosts: what keywords added to the log probabilities of the tokens,
    [rows, samples]; None without keywords, and for a KeywordSearch. noise: see SampledToken, [rows, samples]; None
    unless beams are drawn.
    """

    rows: Seq[SamplingRow]
    tokens: Tensor
    logprobs: Tensor
    top: tuple[Tensor, Tensor] | None
    forbidden: bool = False
    boosts: Tensor | None = None
    noise: Tensor | None = None


class Drawn:
    """Tokens chosen for the sequences of a step, on the device, with an asynchronous copy to the host."""

    def __init__(self, chosen: Seq[Chosen]) -> None:
        self.chosen = chosen
        self.seq_ids = [row.seq_id for each in chosen for row in each.rows]
        self._parts = [
            (each.tokens, each.logprobs, *(part for part in (each.boosts, each.noise) if part is not None))
            + (each.top or ())
            for each in self.chosen
        ]
        flat = [part for parts in self._parts for part in parts]
        self._download = Download([part.double() if part.is_cuda else part for part in flat])  # exact for token ids

    def collect(self) -> dict[int, list[SampledToken]]:
        """Wait for the copy. Returns the drawn tokens by sequence id, in order, without forbidden ones.

        For a sequence with a draft: the tokens of its rows, up to the first row that drew another token than its draft.
        The prefixes of all further rows are wrong.
        """
        numbers = iter(self._download.collect())
        drawn: dict[int, list[SampledToken]] = {}
        wrong: set[int] = set()  # sequences whose draft is rejected from here on
        for each, parts in zip(self.chosen, self._parts, strict=True):
            if each.top is None and each.rows[0].params.beam_search:
                values = [next(numbers) for _ in parts]
                if not values[1].isneginf().any():
                    drawn.update(_all_of(each, *values))
                    continue
                tokens, logprobs, *top = (value.tolist() for value in values)
            else:
                tokens, logprobs, *top = (next(numbers).tolist() for _ in parts)
            none = [[0.0] * len(row) for row in tokens]
            boosts = none if each.boosts is None else top.pop(0)
            noise = none if each.noise is None else top.pop(0)
            of_rows = zip(each.rows, tokens, logprobs, boosts, noise, strict=True)
            for index, (row, *numbers_of_row) in enumerate(of_rows):
                earlier = drawn.setdefault(row.seq_id, [])
                if earlier and (row.seq_id in wrong or row.data.last_token_id != earlier[-1].token_id):
                    wrong.add(row.seq_id)
                    continue
                token_ids, values, *added = numbers_of_row
                found = map(int, token_ids)
                asked: Iterable[dict[int, float] | None] = repeat(None, len(values))
                if top:
                    of_top = {int(token): value for token, value in zip(*(part[index] for part in top), strict=True)}
                    asked = [{**of_top, int(token): value} for token, value in zip(token_ids, values, strict=True)]
                made: Iterator[Any] = map(_AS_SAMPLED, zip(found, values, asked, *added, strict=True))
                if each.forbidden and -math.inf in values:
                    made = (token for token in made if token.logprob != -math.inf)
                earlier += made
        return drawn

    def tokens_of(self, seq_ids: list[int]) -> Tensor:
        """Return the token drawn for each of these sequences, which have no draft, [sequences] int64 on the device."""
        parts = [each.tokens[:, 0] for each in self.chosen]
        tokens = parts[0] if len(parts) == 1 else torch.cat(parts)
        if seq_ids == self.seq_ids:
            return tokens
        rows = {seq_id: row for row, seq_id in enumerate(self.seq_ids)}
        return tokens[upload([rows[seq_id] for seq_id in seq_ids], tokens.device)]


def _all_of(
    chosen: Chosen, tokens: Tensor, logprobs: Tensor, *added: Tensor
) -> Iterator[tuple[int, list[SampledToken]]]:
    """Yield each beam's candidates, if no candidate is forbidden. All rows at once, because there are many."""
    boosts = repeat(0.0) if chosen.boosts is None else added[0].flatten().tolist()
    noise = repeat(0.0) if chosen.noise is None else added[-1].flatten().tolist()
    token_ids = map(int, tokens.flatten().tolist())
    made: list[Any] = list(
        map(_AS_SAMPLED, zip(token_ids, logprobs.flatten().tolist(), repeat(None), boosts, noise, strict=False))
    )
    size = tokens.shape[1]
    for index, row in enumerate(chosen.rows):
        yield row.seq_id, made[index * size : (index + 1) * size]
