"""TextScore: how likely a text model finds a given text. Its job computes it in the prefill of one request."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from transept.core.engine import Engine
from transept.core.jobs.job import Job, Offload, Submit
from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.prompts import Request
from transept.errors import ParameterError, PromptError, TranseptError
from transept.text.encoding import own_special_tokens
from transept.text.job import TextJob, make_job
from transept.text.options import ScoringOptions

# One token is generated and ignored. The others override the settings of checkpoints, which may contradict it.
ONE_TOKEN = {"max_tokens": 1, "min_tokens": 0, "num_beams": 1, "temperature": 0.0}


@dataclass(frozen=True)
class TextScore:
    """How likely a model finds a target text for a document.

    target: the text. token_ids: its tokens after the decoder prompt, with those that end it.
    logprobs: natural logarithm of each token's probability after the document and the tokens before it, from the
    model's own logits: no penalty or other setting of decoding changes them.
    num_source_tokens: tokens that the encoder read. truncated: whether the document's end was cut off.
    error: the error of a pair that failed; its lists are then empty. Else None.
    """

    target: str
    token_ids: list[int]
    logprobs: list[float]
    num_source_tokens: int
    truncated: bool = False
    error: TranseptError | None = None

    @property
    def logprob(self) -> float:
        """Log probability of the whole text: the sum of logprobs."""
        return math.fsum(self.logprobs)

    @property
    def perplexity(self) -> float:
        """exp(-logprob / number of tokens): 1 if the model is certain of every token; nan for a pair that failed."""
        return math.exp(-self.logprob / len(self.logprobs)) if self.logprobs else math.nan

    @classmethod
    def failed(cls, target: str, error: TranseptError) -> TextScore:
        """Return the score of a pair that failed."""
        return cls(target, [], [], 0, error=error)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict, ready for JSON, with the error as a string, ``"PromptError: ..."``."""
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        perplexity = None if math.isnan(self.perplexity) else self.perplexity
        return {**vars(self), "logprob": self.logprob, "perplexity": perplexity, "error": error}


class Scorer:
    """Scores pairs of a document and a target text.

    options: of ScoringOptions. Raises ParameterError for a bad one.
    """

    def __init__(self, engine: Engine, options: Mapping[str, Any]) -> None:
        self.engine = engine
        given = {**vars(ScoringOptions(**options))}
        self.job: TextJob = make_job(engine, given.pop("task"), {**given, **ONE_TOKEN}, can_chunk=False)
        self.start = engine.preprocess.decoder_inputs(self.job.decoder_prompt).token_ids
        before, self.after = own_special_tokens(engine.tokenizer)
        self.before = before if len(self.start) == 1 else []  # otherwise the decoder prompt has them

    def score_for(self, document: str, target: str) -> Job:
        """A job whose result is a TextScore. Raises PromptError for a bad document or target, CapacityError."""
        tokens, truncated, request = yield Offload(partial(self._prepared, document, target))
        (output,) = yield Submit([request])
        logprobs = list(output.prompt_probe.logprobs)
        return TextScore(target, tokens, logprobs, len(output.encoder_prompt_token_ids), truncated)

    def _prepared(self, document: str, target: str) -> tuple[list[int], bool, PreparedRequest]:
        """Return the target's tokens, whether the document was truncated, and the request that scores them."""
        job, engine = self.job, self.engine
        encoded = job.encoder(document)
        if not isinstance(target, str):
            raise PromptError(f"a target is a string, not {type(target).__name__}", param="targets")
        engine.config.limits.check_text(target, "the target")
        content = engine.tokenizer(target, add_special_tokens=False, verbose=False).input_ids
        tokens = [*self.before, *content, *self.after]
        most = engine.shape.max_target_positions
        if most is not None and len(self.start) + len(tokens) > most:
            room = most - len(self.start) - len(self.before) - len(self.after)
            raise PromptError(
                f"the target has {len(content)} tokens; this model has room for {room}: shorten it", param="targets"
            )
        places = tuple(enumerate(tokens, start=len(self.start) - 1))
        params = dataclasses.replace(job.sampling_params, prompt_probe=PromptProbe(logprobs=places))
        request = Request(
            {
                "encoder_prompt": {"prompt_tokens": encoded.prompts[0], "encoder_inputs": job.encoder_inputs},
                "decoder_prompt": {"prompt_tokens": [*self.start, *tokens[:-1]]},
            },
            params,
            job.generation_config,
            lora=job.lora,
        )
        return tokens, encoded.truncated, engine.inputs(request)


def paired(documents: Any, targets: Any) -> list[tuple[str, str]]:
    """Return pairs of a document and a target; a single one goes with each of the others.

    Raises ParameterError for numbers of them that differ, PromptError for anything but strings and lists.
    """
    for name, given in (("documents", documents), ("targets", targets)):
        if isinstance(given, bytes) or not isinstance(given, Iterable):
            what = f"a string, or several in a list, not {type(given).__name__}"
            raise PromptError(f"{name} must be {what}", param=name, value=given)
    if isinstance(documents, str):
        return [(documents, target) for target in ([targets] if isinstance(targets, str) else targets)]
    if isinstance(targets, str):
        return [(document, targets) for document in documents]
    several, wanted = list(documents), list(targets)
    if len(several) != len(wanted):
        raise ParameterError(
            f"{len(wanted)} {{targets}} for {len(several)} documents; give one for each, or a single one for all",
            param="targets",
        )
    return list(zip(several, wanted, strict=True))
