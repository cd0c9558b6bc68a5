"""Differences between a model and its reference in words, with the likely place of the fault. Called by Parity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, zip_longest
from typing import TYPE_CHECKING

from transept.testing.reference import Hypothesis

if TYPE_CHECKING:
    from torch import Tensor

INDIFFERENT = (
    "check_decode: the reference decodes the same tokens after every prompt, so ids prove nothing about the "
    "encoder. Draw its weights wider (init_std=0.3 in its config), or give it more layers."
)
DECODE = (
    "The decoder prompt gave the right logits, so the weights are right. Look at what changes from step to step: the "
    "positions, which are given and need no counting, and anything that the model keeps between steps."
)
BATCH = (
    "If check_decode passes, the prompt alone gives the right ids: something depends on what else is in the batch. "
    "Look for sums or norms over tokens, and for the first token of the step taken as the first one of its sequence."
)
DRAFTS = (
    "If check_batch passes, the same requests are right without drafts. A draft's tokens are several tokens of a "
    "sequence in one step, after tokens in the cache: look for code that takes one token for each sequence in a step "
    "that is not a prefill, and for positions that are counted instead of given."
)
OWN_DRAFTS = (
    "as its own draft model, the model accepts {share:.0%} of its tokens.\n  As a draft model it computes them in "
    "other batches, several tokens of a sequence in a step: look for state that is kept between steps."
)
PREEMPTION = (
    "If check_decode passes, the same decode with room enough is right. A recomputed request runs its decoder prompt "
    "and all its tokens in one step: look for code that is valid for short decoder prompts only, or that "
    "keeps state between steps."
)
NOT_CAUSAL = (
    "The reference's own logits after these tokens change when it sees later ones. Experts with a capacity do so: they "
    "drop tokens beyond it. Raise the capacity in its config until nothing is dropped, or give Parity "
    "run_reference=transept.testing.step_by_step, which runs it token by token."
)
BEAMS = (
    "If check_decode passes, the logits are right: compare the start of both sides (the decoder prompt, "
    "forced_bos_token_id) and the generation settings that each reads."
)

AFTER_THE_ENCODER = (
    "the decoder's embedding, positions, attention and norms, at the head (tied? a bias? a scale?), and at their names "
    "in the weight map."
)


def of_logits(ours: Tensor, theirs: Tensor, before: Sequence[int], chosen: int, tolerance: float) -> str | None:
    """Return how two rows of logits [vocabulary] differ, or that the reference chooses another token; else None.

    before: the decoder's tokens so far.
    """
    if ours.shape != theirs.shape:
        return f"compute_logits gives {len(ours)} logits, the reference {len(theirs)}. Look at the head's size."
    difference = (ours - theirs).abs().nan_to_num(nan=float("inf"))
    worst = int(difference.argmax())
    if float(difference[worst]) <= tolerance:
        return _other_choice(theirs, before, chosen)
    return (
        f"logits differ by {float(difference[worst]):.2g} (tolerance {tolerance:g}), most at token {worst}: ours "
        f"{float(ours[worst]):.5f}, reference {float(theirs[worst]):.5f}.\n"
        f"  {_other_choice(theirs, before, chosen) or f'Both choose token {chosen}.'}"
    )


def of_ids(ours: Sequence[int], theirs: Tensor, decoder_prompt: Sequence[int]) -> str | None:
    """Return the first greedy id that the reference would not choose by its logits [ids, vocabulary]; or None."""
    for step, (token, row) in enumerate(zip(ours, theirs, strict=True)):
        choice = _other_choice(row, [*decoder_prompt, *ours[:step]], token)
        if choice:
            return f"ids differ first at step {step} of {len(ours)}.\n  {choice}"
    return None


def of_hypotheses(ours: Sequence[Hypothesis], theirs: Sequence[Hypothesis], tolerance: float) -> str | None:
    """Return the first hypothesis, best first, whose ids or score differ; or None."""
    for rank, (our, their) in enumerate(zip_longest(ours, theirs)):
        if our is None or their is None:
            return f"{len(ours)} hypotheses, the reference returns {len(theirs)}."
        if our.token_ids != their.token_ids:
            step = next(i for i, (a, b) in enumerate(zip_longest(our.token_ids, their.token_ids)) if a != b)
            return (
                f"hypothesis {rank} differs from its token {step} on: ours {_excerpt(our.token_ids, step)} of "
                f"{len(our.token_ids)} tokens, score {our.score:.6f}; reference {_excerpt(their.token_ids, step)} of "
                f"{len(their.token_ids)}, score {their.score:.6f}.\n  {_tie(abs(our.score - their.score), 'scores')}"
            )
        if not abs(our.score - their.score) <= tolerance:
            return (
                f"hypothesis {rank} has the right ids but score {our.score:.6f}, reference {their.score:.6f} "
                f"(tolerance {tolerance:g})."
            )
    return None


def unseen(keywords: Mapping[str, object]) -> str:
    """Return the problem of a reference whose logits do not depend on the encoder's input, with these keywords."""
    return (
        f"the reference gives the same logits for every input, so it did not see them: it was given "
        f"{', '.join(keywords)}, and may have another name for the encoder's input, or run its encoder elsewhere "
        "than in get_encoder().\n  Look at inputs=, or give Parity run_reference=function(model, keywords, "
        "decoder_input_ids)."
    )


UNSTEADY = (
    "The reference does not give the same logits twice for the same input: it draws random numbers, or keeps state "
    "between calls. Put it into evaluation mode, or give Parity a run_reference that starts anew."
)


def rounding_cause(rounding: float) -> str:
    """Return the cause for a reference whose logits are that far from its logits in float64."""
    return (
        f"The reference is itself {rounding:.2g} away from its logits in float64: its weights magnify rounding. Draw "
        "them narrower before you look for a fault."
    )


def prefill_cause(encoder_hidden: Tensor, encoded: Tensor | None, ours: Tensor, theirs: Tensor) -> str:
    """Return the likely cause of a difference before the first new token.

    encoder_hidden, encoded: our encoder's output and transformers', [encoder tokens, hidden]; encoded: None if it is
        unknown. ours, theirs: logits.
    """
    if encoded is None:
        cause = (
            "The reference is run by run_reference, so the encoders' outputs were not compared: look at the encoder "
            "first, then at the decoder and the head, and at their names in the weight map."
        )
    elif encoder_hidden.shape[:-1] == encoded.shape[:-1] and encoder_hidden.shape != encoded.shape:
        cause = (  # one projects to the decoder's width, in the other the decoder does: both are right
            f"Look at {AFTER_THE_ENCODER} Outputs of encoders of two widths, as those before and after a projection to "
            "the decoder's are, are not compared."
        )
    elif encoder_hidden.shape != encoded.shape:
        shapes = f"{list(encoder_hidden.shape)}, the reference's {list(encoded.shape)}"
        cause = f"The encoder's output is {shapes}: look at its layers."
    elif _differ(encoder_hidden, encoded):
        cause = (
            f"The encoder's output differs already, by {float((encoder_hidden - encoded).abs().max()):.2g}: look at "
            "its embedding, positions, attention (scale, bias) and norms, and at their names in the weight map."
        )
    else:
        cause = f"The encoder's output is right: look at {AFTER_THE_ENCODER}"
    if ours.shape == theirs.shape:
        factor = float((ours @ theirs) / (theirs @ theirs))
        if not _differ(ours, factor * theirs):
            cause += f" Our logits are the reference's times {factor:.4g}: a scale before the head."
    return cause


def _differ(ours: Tensor, theirs: Tensor) -> bool:
    """True if they differ by more than rounding."""
    return not float((ours - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max())


def _other_choice(theirs: Tensor, before: Sequence[int], chosen: int) -> str | None:
    """Return the reference's choice by its logits [vocabulary], or None if it is the chosen token.

    Both sides exclude tokens that would repeat a pair of tokens (see subject.Request).
    """
    repeats = {second for first, second in pairwise(before) if first == before[-1]}
    ranked = [int(token) for token in theirs.topk(len(repeats) + 2).indices if int(token) not in repeats]
    best, second = ranked[:2]
    if chosen == best:
        return None
    margin = float(theirs[best] - theirs[second])
    return f"Ours chooses token {chosen}, the reference {best}. {_tie(margin, 'two best logits of the reference')}"


def _tie(margin: float, between: str) -> str:
    near = ": nearly a tie, that rounding may decide. Draw the weights wider" if margin < 1e-3 else ""
    return f"The {between} are {margin:.2g} apart{near}."


def _excerpt(token_ids: Sequence[int], step: int) -> str:
    """Return the tokens around a step."""
    return f"[... {', '.join(map(str, token_ids[max(0, step - 2) : step + 3]))} ...]"
