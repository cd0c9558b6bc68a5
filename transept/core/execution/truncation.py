"""Cut-offs of sampling: the tokens that a draw may take. Used by the sampler.

The definitions and their order are transformers': top-h, top-k, top-p, min-p, typical, epsilon, eta.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transept.core.request.sampling_params import SamplingParams

MOST_OF_TOP_H = 100  # most likely tokens that top-h considers, as in transformers


def truncated(logits: Tensor, params: SamplingParams, least: int = 1) -> Tensor:
    """Return logits in which the tokens outside the cut-offs are minus infinity.

    logits: [rows, vocabulary], divided by the temperature. least: number of most likely tokens that each cut-off except
    top-h keeps in any case.
    """
    vocab_size = logits.shape[-1]
    least = min(least, vocab_size)
    if params.top_h is not None:
        logits = _hidden(logits, _beyond_entropy(logits, params.top_h))
    if params.top_k and params.top_k < vocab_size:
        weakest = logits.topk(max(params.top_k, least), dim=-1).values[:, -1:]
        logits = _hidden(logits, logits < weakest)
    if params.top_p is not None and params.top_p < 1.0:
        values, order = logits.sort(dim=-1, descending=True)
        probabilities = values.softmax(dim=-1)
        # keep a token if the cumulative probability before it is below top_p; so the most likely is always kept
        beyond = probabilities.cumsum(dim=-1) - probabilities >= params.top_p
        beyond[:, :least] = False
        logits = _hidden(logits, beyond.scatter(-1, order, beyond))
    if params.min_p:
        floor = logits.max(dim=-1, keepdim=True).values + math.log(params.min_p)
        logits = _hidden_below(logits, logits < floor, least)
    if params.typical_p is not None and params.typical_p < 1.0:
        logits = _hidden(logits, _untypical(logits, params.typical_p, least))
    if params.epsilon_cutoff:
        logits = _hidden_below(logits, logits.softmax(dim=-1) < params.epsilon_cutoff, least)
    if params.eta_cutoff:
        eta = params.eta_cutoff
        bound = (math.sqrt(eta) * torch.exp(-_entropy(logits.log_softmax(dim=-1)))).clamp_max(eta)
        logits = _hidden_below(logits, logits.softmax(dim=-1) < bound, least)
    return logits


def _hidden(logits: Tensor, hidden: Tensor) -> Tensor:
    return logits.masked_fill(hidden, float("-inf"))


def _hidden_below(logits: Tensor, hidden: Tensor, least: int) -> Tensor:
    """Hide tokens, except the `least` most likely ones and those that are equally likely."""
    return _hidden(logits, hidden & (logits < logits.topk(least, dim=-1).values[:, -1:]))


def _entropy(logprobs: Tensor) -> Tensor:
    """Return the entropy of each row of log probabilities [rows, vocabulary], [rows, 1]; hidden tokens add nothing."""
    return -(logprobs * logprobs.exp()).nansum(dim=-1, keepdim=True)


def _untypical(logits: Tensor, mass: float, least: int) -> Tensor:
    """Return a mask of the tokens outside the smallest set of most typical tokens with this probability (Meister 2022).

    A token is the more typical, the nearer its log probability is to the negative entropy.
    """
    logprobs = logits.log_softmax(dim=-1)
    distances, order = (-logprobs - _entropy(logprobs)).abs().sort(dim=-1)
    cumulative = logprobs.gather(-1, order).exp().cumsum(dim=-1)
    last = (cumulative < mass).sum(dim=-1, keepdim=True).clamp_max(logits.shape[-1] - 1)
    beyond = distances > distances.gather(-1, last)
    beyond[:, :least] = False
    return beyond.scatter(-1, order, beyond)


def _beyond_entropy(logits: Tensor, fraction: float) -> Tensor:
    """Return a mask of the tokens after those that together have this fraction of the entropy (top-h)."""
    values, order = logits.topk(min(MOST_OF_TOP_H, logits.shape[-1]), dim=-1)
    logprobs = values.log_softmax(dim=-1)
    terms = torch.nan_to_num(-logprobs * logprobs.exp())
    kept = terms.cumsum(dim=-1) <= fraction * terms.sum(dim=-1, keepdim=True)
    kept[:, 0] = True
    return torch.ones_like(logits, dtype=torch.bool).scatter_(-1, order, ~kept)
