"""Rules of transformers' generate that change the scores of single tokens, for the sampler.

`EARLY_RULES` come before all other rules, `LATE_RULES` after them, as in transformers' `_get_logits_processor`. A rule
is applied to rows with equal parameters, if its parameter has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from typing import TypeAlias

import torch
from torch import Tensor

from transept.core.execution.drawn import SamplingRow
from transept.core.kernels.transfer import upload
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.score_options import NO_RULE

Rule: TypeAlias = Callable[[Tensor, SamplingParams, Seq[SamplingRow]], None]


def apply(rules: Mapping[str, Rule], logits: Tensor, params: SamplingParams, rows: Seq[SamplingRow]) -> None:
    """Apply rules in place to logits [rows, vocabulary]. params: of one of the rows. rules: by their parameters."""
    for name, rule in rules.items():
        if getattr(params, name) not in (None, NO_RULE[name]):
            rule(logits, params, rows)


def normalized(scores: Tensor) -> Tensor:
    """Return log probabilities of scores [rows, vocabulary]. Rows without a possible token remain minus infinity."""
    total = scores.logsumexp(dim=-1, keepdim=True)
    return torch.where(torch.isneginf(total), scores, scores - total)


def _bias_sequences(logits: Tensor, params: SamplingParams, rows: Seq[SamplingRow]) -> None:
    bias: dict[tuple[int, int], float] = {}
    for i, row in enumerate(rows):
        tokens = row.data.token_ids
        for (*begin, last), value in params.sequence_bias or ():
            if tokens[len(tokens) - len(begin) :] == begin:
                bias[i, last] = bias.get((i, last), 0.0) + value
    if bias:
        places = upload([*zip(*bias, strict=True)], logits.device).unbind()
        logits[places] += upload([*bias.values()], logits.device, torch.float32)


def _favour_encoder_tokens(logits: Tensor, params: SamplingParams, rows: Seq[SamplingRow]) -> None:
    penalty = params.encoder_repetition_penalty or 1.0
    size = logits.shape[1]  # the encoder's vocabulary may be larger
    seen = [(i, token) for i, row in enumerate(rows) for token in {*row.data.encoder_token_ids} if token < size]
    if seen:
        places = upload([*zip(*seen, strict=True)], logits.device).unbind()
        values = logits[places]
        logits[places] = torch.where(values < 0, values / penalty, values * penalty)


def _remove_invalid(logits: Tensor, params: SamplingParams, rows: Seq[SamplingRow]) -> None:
    limits = torch.finfo(torch.float32)
    logits.nan_to_num_(nan=0.0, posinf=limits.max, neginf=limits.min)


def _favour_ends(logits: Tensor, params: SamplingParams, rows: Seq[SamplingRow]) -> None:
    start, factor = params.exponential_decay_length_penalty or (0, 1.0)
    over = {i: excess for i, row in enumerate(rows) if (excess := len(row.data.output_token_ids) - start) > 0}
    if not over or not params.eos_token_ids:
        return
    largest = torch.finfo(torch.float32).max
    powers = torch.tensor(factor, dtype=torch.float64) ** torch.tensor([*over.values()])
    growth = upload((powers - 1).clamp_max(largest).tolist(), logits.device, torch.float32)[:, None]
    places = upload([*over], logits.device)[:, None], upload([*dict.fromkeys(params.eos_token_ids)], logits.device)
    scores = logits[places]
    raised = (scores + scores.abs() * growth).clamp_max(largest)
    logits[places] = torch.where(torch.isfinite(scores), raised, scores)


EARLY_RULES: Mapping[str, Rule] = {
    "sequence_bias": _bias_sequences,
    "encoder_repetition_penalty": _favour_encoder_tokens,
}
LATE_RULES: Mapping[str, Rule] = {
    "remove_invalid_values": _remove_invalid,
    "exponential_decay_length_penalty": _favour_ends,
}
