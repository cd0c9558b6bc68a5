"""Recorder: makes of a step a function that computes it again, on a GPU as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor


class Recorder:
    """Makes of a step a function that computes it again, from what its tensors hold by then.

    On a GPU it replays what was recorded. Elsewhere it calls the step, with which tests need no GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            # What one recording computes on the way is overwritten by the next: they are replayed one at a time.
            # All are made on one stream, since cuBLAS keeps memory for each.
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
            with torch.cuda.stream(ahead):  # kernels are compiled and workspaces made before anything is recorded
                step()
        finally:
            current.wait_stream(ahead)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, which make features of sound, may use the GPU meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, stream=ahead, capture_error_mode="thread_local"):
                logits = step()
        except BaseException:
            # A recording that breaks off may leave its stream, and its pool open for all that is allocated.
            torch.cuda.set_stream(current)
            with suppress(RuntimeError):
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), self._pool)
            raise

        def replay() -> Tensor:
            graph.replay()
            return logits

        return replay
