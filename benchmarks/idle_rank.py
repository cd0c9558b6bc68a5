"""A rank without a model, for `benchmarks.rank_steps`: every step draws the same token for every sequence at once.

Run as a program it is a rank of an engine, in place of `transept.core.execution.worker_main`.
"""

from __future__ import annotations

from typing import Any

TOKEN = 5


def make_idle() -> None:
    """Let every worker of this process draw tokens without running its model."""
    from transept.core.execution.model_runner import ModelRunner
    from transept.core.execution.worker import Worker

    owner: Any = Worker if hasattr(Worker, "issue") else ModelRunner  # which of them computes a step in a checkout
    owner.issue = lambda _, step, last=None: IdleStep(step)


class IdleStep:
    """A step that has drawn its tokens."""

    def __init__(self, step: Any) -> None:
        requests = step.metadata if hasattr(step, "metadata") else step.decodes
        self._seq_ids = [seq_id for request in requests for seq_id in request.seq_data]

    def collect(self) -> Any:
        """The step's output."""
        from transept.core.scheduling.sequence import SampledToken
        from transept.core.scheduling.step import StepOutput

        return StepOutput({seq_id: [SampledToken(TOKEN, -0.5, None)] for seq_id in self._seq_ids})


if __name__ == "__main__":
    from transept.core.execution.worker_main import main

    make_idle()
    main()
