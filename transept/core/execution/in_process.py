"""InProcessExecutor: one worker in this process. Made by the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from transept.core.checkpoints.model_description import ModelDescription
from transept.core.execution.executor import CLOSED, Capacity, Executor, WorkerConfig
from transept.core.execution.heap_trim import trim_heap
from transept.core.execution.model_runner import IssuedStep
from transept.core.execution.worker import Worker
from transept.core.kernels.dispatch import free_scratch
from transept.core.scheduling.step import StepInput, StepOutput
from transept.errors import EngineClosedError, EngineDeadError

_open: WeakSet[InProcessExecutor] = WeakSet()  # in this process; all share the kernels' scratch memory


class InProcessExecutor(Executor):
    """Runs steps in the thread that issues them, on one device.

    On a CPU, a step is complete when `issue` returns; on a GPU, it may still be running. Raises what Worker raises.
    After an EngineDeadError the worker is gone, and every method raises that error.
    """

    def __init__(self, config: WorkerConfig, described: ModelDescription) -> None:
        self._worker: Worker | None = Worker(config, described)
        self._ended_by: Exception = EngineClosedError(CLOSED)  # raised after `close`
        worker = self.worker
        self.capacity = Capacity(
            worker.num_device_blocks,
            worker.num_host_blocks,
            asynchronous=worker.device.type != "cpu",
            num_encoder_layers=worker.num_encoder_layers,
        )
        self._number = 0
        self._issued: dict[int, IssuedStep] = {}  # by number, in order
        _open.add(self)

    @property
    def worker(self) -> Worker:
        """The worker. Raises EngineClosedError once it is closed, EngineDeadError once its device has failed."""
        if self._worker is None:
            raise self._ended_by.with_traceback(None)
        return self._worker

    def check_open(self) -> None:
        """See Executor."""
        _ = self.worker

    def issue(self, step: StepInput) -> int:
        """See Executor."""
        with self._ending_with_the_device():
            issued = self.worker.runner.issue(step, self._issued.get(self._number))
        self._number += 1
        self._issued[self._number] = issued
        return self._number

    def collect(self, number: int) -> StepOutput:
        """See Executor."""
        with self._ending_with_the_device():
            output = self.worker.collect(self._issued[number])
        for earlier in [each for each in self._issued if each <= number]:
            del self._issued[earlier]
        return output

    @contextmanager
    def _ending_with_the_device(self) -> Iterator[None]:
        try:
            yield
        except EngineDeadError as error:
            if self._worker is not None:
                self._ended_by = error
                self.close()
            raise

    def leave_thread(self) -> None:
        """See Executor."""
        if self._worker is not None:
            self._worker.runner.sliced.drop()

    def close(self) -> None:
        """See Executor."""
        self._issued.clear()
        self._worker = None
        _open.discard(self)
        if not _open:
            free_scratch()
            trim_heap()
