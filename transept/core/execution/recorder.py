"""Recorder: records a step, on a GPU as a CUDA graph, and returns a function that replays it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor


class Recorder:
    """Turns a step into a function that computes it again, from the current contents of its tensors.

    On a GPU, the function replays a CUDA graph. Elsewhere it calls the step, so that tests need no GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            # Graphs share a memory pool: one overwrites another's intermediate tensors, as they replay one at a time.
            # All are captured on one stream, because cuBLAS keeps a workspace for each stream.
            self._pool = torch.cuda.graph_pool_handle()
            self._stream = torch.cuda.Stream(device)

    def __call__(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """See Recorder."""
        if self.device.type != "cuda":
            step()
            return step
        current, ahead = torch.cuda.current_stream(self.device), self._stream
        ahead.wait_stream(current)
        try:
            with torch.cuda.stream(ahead):  # warm up: compile kernels and make workspaces before the capture
                step()
        finally:
            current.wait_stream(ahead)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, which extract audio features, may use the GPU meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=ahead, capture_error_mode="thread_local"):
                logits = step()
        except BaseException:
            # A failed capture may leave its stream current, and may leave all allocations going to its pool.
            torch.cuda.set_stream(current)
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
            raise

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay
