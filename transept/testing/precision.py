"""Precision: the agreement of a model and its reference in bfloat16 or float16. Called by Parity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

WORSE_BY = 3.0  # ratio of our distance from float32 to the reference's, above which ours loses digits


class Precision:
    """The agreement over the steps of all requests in one dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self._steps = self._agreeing = 0
        self._ours_off = self._theirs_off = 0.0  # sums over steps of the distances from float32
        self._reference_runs = True  # in the dtype
        self._first = ""  # the first step with another most likely token
        self._not_finite: dict[str, str] = {}  # side whose logits are not finite -> its first step

    def add(self, where: str, ours: Sequence[Tensor], theirs: Tensor | None, exact: Tensor) -> None:
        """Add the steps of one request.

        ours: logits [vocabulary] of each. theirs, exact: the reference's logits [steps, vocabulary], in the dtype (None
        if it does not run in it) and in float32.
        """
        self._reference_runs = theirs is not None
        rows = exact if theirs is None else theirs.float()
        for step, (our, their, right) in enumerate(zip(ours, rows, exact, strict=True)):
            our, place = our.float(), f"{where}, step {step} of {len(ours)}"
            for whose, logits in (("our", our), ("the reference's", their)):
                if not bool(logits.isfinite().all()):
                    self._not_finite.setdefault(whose, place)
            self._steps += 1
            self._ours_off += float((our - right).abs().max())
            self._theirs_off += float((their - right).abs().max())
            chosen, best = int(our.argmax()), int(their.argmax())
            agrees = chosen in (best, int(right.argmax()))  # ours may lose less
            self._agreeing += agrees
            if not agrees and not self._first:
                margin = float(their[best] - their[chosen])
                self._first = (
                    f"First at {place}: ours chooses token {chosen}, the reference {best}, which it has {margin:.2g} "
                    "above ours"
                )

    @property
    def share(self) -> float:
        """Share of steps with the reference's most likely token, in the dtype or in float32.

        0 if one of Transept's logits is not finite.
        """
        return 0.0 if "our" in self._not_finite else self._agreeing / self._steps

    def problem(self, wanted: float) -> str:
        """Return the problem if the share is too small, and its likely cause."""
        ours, theirs = self._ours_off / self._steps, self._theirs_off / self._steps
        own = (
            f"the reference's own in {self.dtype} {theirs:.2g}" if self._reference_runs else "which runs in that alone"
        )
        return (
            f"in {self.dtype} {self._agreeing} of {self._steps} steps have the reference's most likely token in it or "
            f"in float32, {self._agreeing / self._steps:.0%} where {wanted:.0%} are asked for. {self._first}.\n"
            f"  The logits are {ours:.2g} away from the reference's in float32, {own}. {self._cause(ours, theirs)}"
        )

    def _cause(self, ours: float, theirs: float) -> str:
        for whose, place in self._not_finite.items():
            return (
                f"First at {place} {whose} logits are not finite: something overflows in {self.dtype}. Look at sums "
                "and at the feed-forward network's output, and compute those in float32, or leave this dtype out."
            )
        if not self._reference_runs:
            return (
                "Look for operations that the reference computes in float32 in any dtype; or draw the weights wider or "
                "narrower, or ask for a smaller share, if rounding decides between near ties."
            )
        if ours > WORSE_BY * theirs:
            return (
                "Ours loses more: look for operations that the reference computes in float32 in any dtype, such as "
                "norms, the softmax, rotary angles, position tables, routers."
            )
        return (
            "Both lose about as much, so rounding decides between near ties: draw the weights wider or narrower until "
            "the reference stays nearer to itself, or ask for a smaller share."
        )
