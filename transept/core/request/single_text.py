"""Parameters of a request whose result is a text, for a document or an image.

Options that ask for more than the text are refused by name here, for every task and every interface to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError
from transept.options import refusal

INSTEAD = "Engine.generate, and over HTTP /v1/completions"
# Options of SamplingParams whose results a single text cannot hold, with the advice in their error.
WITHOUT_RESULT: Mapping[str, str] = {
    "logprobs": f"log probabilities of its tokens call {INSTEAD}",
    "prompt_probe": "the result of a prompt_probe call Engine.generate",
}
REFUSED = {*WITHOUT_RESULT, "detokenize"}  # the call accepts only their defaults
REFUSED_FOR_ONE = {*REFUSED, "n", "num_return_sequences"}  # the same for a call that returns one text


def params_of_text(what: str, sampling: Mapping[str, Any]) -> SamplingParams:
    """Make SamplingParams from options with known names, for one text or several of one input.

    what: the input that gets the text, such as ``"a document"``. Raises ParameterError for bad values and for options
    whose results a text cannot hold.
    """
    for name, asked in WITHOUT_RESULT.items():
        if sampling.get(name) is not None:
            message = f"{{{name}}} has no effect here, because {what} gets only a text; for {asked}"
            raise ParameterError(message, param=name, value=sampling[name])
    params = SamplingParams(**sampling)
    if not params.detokenize:
        message = f"{{detokenize=}} leaves {what} without a text; for token ids call Engine.generate"
        raise refusal(params, message)
    return params


def params_of_single_text(what: str, sampling: Mapping[str, Any]) -> SamplingParams:
    """Make SamplingParams as `params_of_text`, but refuse several texts."""
    params = params_of_text(what, sampling)
    for name, several in (("n", "samples"), ("num_return_sequences", "hypotheses")):
        if (getattr(params, name) or 1) > 1:
            raise refusal(params, f"{{{name}=}}, but {what} gets one text; for several {several} call {INSTEAD}")
    return params
