"""RequestOutput: a request's prompts and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from transept.core.request.prompt_probe import ProbeResult
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.errors import TranseptError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class CompletionOutput:
    """One decoded sequence.

    token_ids: new tokens only, including an end-of-sequence token.
    cumulative_logprob: sum of the drawn tokens' log probabilities (see SamplingParams.logprobs), without boosts.
    cumulative_boost: sum of the boosts of the keywords that the text contains.
    score: by which a beam search ranks a finished hypothesis (see SamplingParams.length_penalty); else None.
    logprobs: one ``{token id: log probability}`` for each token, if requested.
    finish_reason: ``"stop"`` (end of sequence, stop token or string, repetition), ``"length"`` (max_tokens, even if
        forced_eos_token_id makes the last token an end of sequence), ``"abort"``, ``"error"``; None before the end.
    stop_reason: the request's stop string or stop token id that ended it, if any.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float
    score: float | None
    logprobs: list[dict[int, float]] | None
    finish_reason: str | None
    stop_reason: str | int | None
    cumulative_boost: float = 0.0


@dataclass(frozen=True)
class RequestOutput:
    """One request: both prompts in the form that the model received, and its outputs so far.

    encoder_prompt, encoder_prompt_token_ids: text and ids of the encoder side; None and ``[]`` for data alone.
    prompt, prompt_token_ids: the decoder side, after the family's decoder prompt rule.
    prompt_probe: the result of the request's PromptProbe after its first step; else None.
    outputs: samples in their order; in a beam search the best hypotheses, best first (before its end: the beams).
    error: the error that ended the request early; the outputs are those up to then. Usually a RequestFailedError, whose
        ``__cause__`` is the original exception.
    embedding: float32 [hidden], or [tokens, hidden] without pooling, of a request that only encodes, which has no
        outputs; else None.
    """

    request_id: str
    encoder_prompt: str | None
    encoder_prompt_token_ids: list[int]
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_probe: ProbeResult | None
    outputs: list[CompletionOutput]
    finished: bool
    error: TranseptError | None = None
    embedding: npt.NDArray[np.float32] | None = None

    @classmethod
    def from_seq_group(cls, group: SequenceGroup) -> RequestOutput:
        """Return a snapshot of the group."""
        first = group.seqs[0]
        return cls(
            request_id=group.request_id,
            encoder_prompt=group.encoder_seq.prompt,
            encoder_prompt_token_ids=list(group.encoder_seq.prompt_token_ids),
            prompt=first.prompt,
            prompt_token_ids=list(first.prompt_token_ids),
            prompt_probe=group.probe_result,
            outputs=[]
            if group.pooling is not None
            else [_completion(index, seq, group) for index, seq in enumerate(group.seqs)],
            finished=group.finished,
            error=group.error,
            embedding=group.embedding,
        )


def _completion(index: int, seq: Sequence, group: SequenceGroup) -> CompletionOutput:
    return CompletionOutput(
        index=index,
        text=seq.output_text,
        token_ids=list(seq.output_token_ids),
        cumulative_logprob=seq.cumulative_logprob,
        score=seq.score,
        logprobs=list(seq.logprobs) if group.sampling_params.logprobs else None,
        finish_reason=seq.status.value if seq.finished else None,
        stop_reason=seq.stop_reason,
        cumulative_boost=seq.cumulative_boost,
    )
