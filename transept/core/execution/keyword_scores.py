"""Scores of keywords for the rows of a step, which the sampler adds to logits. They are sparse."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transept.core.kernels.transfer import upload
from transept.core.request.keyword_tree import KeywordTree, tree_of
from transept.core.request.keywords import Spellings
from transept.core.scheduling.step import SequenceData

MOST_SCORES = 1 << 22  # scores of all states on the device, 48 MiB with their token ids


class KeywordScores(NamedTuple):
    """Scores for some rows of logits.

    token_ids: int64 [rows, width]. scores: float32 [rows, width], of these tokens, at least 0; all other tokens get 0.
    A score of minus infinity fills a row that has fewer tokens. refunds: float32 [rows, 1], to subtract from all
    tokens of a row before rows are compared.
    """

    token_ids: Tensor
    scores: Tensor
    refunds: Tensor

    def add_to(self, logits: Tensor) -> Tensor:
        """Add the scores, without refunds, to logits [rows, vocabulary] in place. Returns old ones for `restore`."""
        plain = logits.gather(1, self.token_ids)
        logits.scatter_add_(1, self.token_ids, self.scores.clamp_min(0.0))
        return plain

    def restore(self, logits: Tensor, plain: Tensor) -> None:
        """Undo `add_to`, exactly."""
        logits.scatter_(1, self.token_ids, plain)

    def best(self, logits: Tensor, likeliest: Tensor) -> Tensor:
        """Return the token with the highest sum of logit and score in each row, [rows, 1].

        logits: [rows, vocabulary]. likeliest: [rows, 1], the tokens of the highest logits.
        """
        values, tokens = self.candidates(logits, 1)
        return torch.where(values > logits.gather(1, likeliest), tokens, likeliest)

    def candidates(self, logits: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Return the highest sums of logit and score among the tokens with a score, and these tokens.

        logits: [rows, vocabulary]. Returns [rows, number or fewer] twice; minus infinity for missing tokens.
        """
        values, indices = (logits.gather(1, self.token_ids) + self.scores).topk(min(number, self.scores.shape[1]))
        return values, self.token_ids.gather(1, indices)

    def joined(self, tokens: Tensor, logits: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Return each row's tokens and the `number` best tokens with a score, and which of these are new.

        tokens: [rows, count]. logits: [rows, vocabulary]. Returns [rows, count + number or fewer] and
        [rows, number or fewer], bool.
        """
        values, others = self.candidates(logits, number)
        is_new = (others[:, :, None] != tokens[:, None, :]).all(dim=-1) & (values > float("-inf"))
        return torch.cat([tokens, others], dim=-1), is_new

    def of(self, token_ids: Tensor) -> Tensor:
        """Return the scores of tokens in each row, minus the row's refund. token_ids: [rows, tokens]."""
        listed = self.token_ids[:, None, :] == token_ids[:, :, None]  # [rows, tokens, width]
        return torch.where(listed, self.scores[:, None, :], 0.0).amax(dim=-1) - self.refunds


class KeywordScorer:
    """Makes the scores of keywords on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._cached: dict[tuple[KeywordTree, int], tuple[Tensor, Tensor, Tensor]] = {}
        self._num_cached = 0

    def __call__(self, keywords: Spellings, rows: list[SequenceData]) -> KeywordScores:
        """Return the scores of some rows with the same keywords."""
        tree = tree_of(keywords)
        states = [tree.state(row.output_token_ids) for row in rows]
        parts = [self._cached.get((tree, state)) or self._row(tree, state) for state in states]
        return KeywordScores(*(torch.stack(each) for each in zip(*parts, strict=True)))

    def _row(self, tree: KeywordTree, state: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return a state's row of KeywordScores."""
        found = tree.scores(state)
        token_ids, scores, missing = [*found], [*found.values()], tree.width - len(found)
        row = (
            upload(token_ids + (token_ids[:1] or [0]) * missing, self.device),
            upload(scores + [float("-inf")] * missing, self.device, torch.float32),
            upload([tree.refund(state)], self.device, torch.float32),
        )
        if self._num_cached + tree.width > MOST_SCORES:
            self._cached.clear()
            self._num_cached = 0
        self._cached[tree, state] = row
        self._num_cached += tree.width
        return row
