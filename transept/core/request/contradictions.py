"""Contradictions between a request's sampling parameters. SamplingParams checks them when it is made. No torch here."""

from __future__ import annotations

from typing import Any

from transept.core.request.cutoffs import NEUTRAL
from transept.options import refusal


def check_contradictions(params: Any) -> None:
    """Raise ParameterError for parameters that contradict each other. params: a SamplingParams."""
    if params.max_tokens is not None and (params.min_tokens or 0) > params.max_tokens:
        raise refusal(params, "{min_tokens=} is over {max_tokens=}")
    if params.stop and not params.detokenize:
        raise refusal(params, "{stop} strings need the text: leave {detokenize} True, or use {stop_token_ids}")
    if params.guided is not None and (params.min_tokens or params.ignore_eos):
        name = "min_tokens" if params.min_tokens else "ignore_eos"
        message = f"{{{name}=}} contradicts {{guided}}, which decides where the output ends; leave one of them out"
        raise refusal(params, message, name)
    if params.guided is not None and params.remove_invalid_values:
        message = "{remove_invalid_values} makes tokens possible that {guided} forbids; leave one of them out"
        raise refusal(params, message, "guided")
    if params.stop_at_repetition and (params.beam_search or params.keywords):
        other = "num_beams" if params.beam_search else "keywords"
        raise refusal(params, f"{{stop_at_repetition}} does not work with {{{other}}}; leave one of them out", other)
    if params.beam_search:
        _check_beam_search(params)
    elif params.num_beams is not None and (params.num_return_sequences or 1) > 1:
        advice = f"set {{num_beams}}, or draw samples with {{n={params.num_return_sequences}}}"
        raise refusal(params, "{num_return_sequences=} needs a beam search of at least that width; " + advice)
    _check_beam_groups(params)
    if params.temperature == 0.0:
        for name, neutral in {"n": 1, **NEUTRAL}.items():
            if getattr(params, name) not in (None, neutral):
                advice = "set {temperature} above 0 to sample"
                raise refusal(params, f"{{temperature=}} is greedy, so {{{name}=}} has no meaning; {advice}", name)
    _check_allowed(params)


def _check_beam_search(params: Any) -> None:
    if params.temperature and params.keywords:
        advice = "set {num_beams=1}, or {temperature=0}"
        raise refusal(params, "{keywords} do not work with beams that {temperature=} draws; " + advice)
    if params.n > 1:
        advice = f"for {params.n} hypotheses of {{num_beams=}} set {{num_return_sequences}}"
        raise refusal(params, "{n} counts samples; " + advice)
    if (params.num_return_sequences or 1) > (params.num_beams or 1):
        raise refusal(params, "{num_return_sequences=} is over {num_beams=}")
    if (params.num_return_sequences or 1) > params.num_hypotheses:
        found = f"{{patience=}} ends a search of {{num_beams=}} with {params.num_hypotheses} hypotheses"
        raise refusal(params, found + ", fewer than {num_return_sequences=}; set {patience=1}, or request fewer")
    drafts = {"draft": params.draft, "draft_tokens": params.draft_tokens, "draft_length": params.draft_length}
    for name in (name for name, given in drafts.items() if given):
        raise refusal(params, f"a beam search uses no {{{name}}}; leave it out, or set {{num_beams=1}}", name)


def _check_beam_groups(params: Any) -> None:
    groups = params.num_beam_groups or 1
    if groups == 1:
        if params.diversity_penalty and params.num_beam_groups == 1:
            raise refusal(params, "{diversity_penalty=} needs several groups of beams; set {num_beam_groups}")
        return
    if params.num_beams is not None and (not params.beam_search or params.num_beams % groups):
        advice = f"set {{num_beams}} to a multiple of {groups}"
        raise refusal(params, "{num_beam_groups=} must divide {num_beams=}; " + advice)
    if params.diversity_penalty == 0.0:
        advice = "set it above 0"
        raise refusal(params, "{num_beam_groups=} would all find the same texts with {diversity_penalty=}; " + advice)
    if params.temperature:
        advice = "leave one of them out"
        raise refusal(params, "{num_beam_groups=} do not work with beams that {temperature=} draws; " + advice)
    if params.keywords:
        raise refusal(params, "{keywords} do not work with {num_beam_groups=}; leave one of them out")


def _check_allowed(params: Any) -> None:
    """Raise ParameterError unless a token may be drawn at every position."""
    if params.allowed_token_ids is None:
        return
    allowed = {*params.allowed_token_ids}.difference(params.suppress_tokens or (), params.begin_suppress_tokens or ())
    if not allowed:
        raise refusal(params, "{allowed_token_ids} leaves no token: it is empty, or all its tokens are suppressed")
    if params.min_tokens and not allowed.difference(params.stop_token_ids, params.eos_token_ids or ()):
        message = "{allowed_token_ids} leaves only tokens that end the output, and {min_tokens} forbids them"
        raise refusal(params, message)
