"""MultiProcessExecutor: a worker in each of several processes, which share the model's layers. Made by the engine.

Every rank, rank 0 included, is a process of its own. So if a worker dies or hangs, this process can end it and all
others; it only ever waits on a condition with a time limit. A launcher (`transept.core.parallel.launcher`) starts the
processes, here or on other machines.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import Any

import torch

from transept.core.execution.executor import CLOSED, Capacity, Executor, WorkerConfig
from transept.core.execution.step_deltas import StepEncoder, unpack_output
from transept.core.parallel.local_processes import LocalProcesses
from transept.core.parallel.remote_worker import RemoteWorker
from transept.core.scheduling.step import StepInput, StepOutput
from transept.errors import EngineClosedError, EngineDeadError, ForkedProcessError, is_interruption

SILENCE_SECONDS = 6.0  # of a worker that tells every half a second that it lives
GPU_SILENCE_SECONDS = 60.0  # where the first steps compile kernels, in which no other thread may run
WORKER_SECONDS = 8.0  # worker_timeout on CPUs where it is not chosen, of processor time
CLOCK_SECONDS = 60.0  # the same on GPUs, and the longest on CPUs, by the clock
STILL_SECONDS = 7.0  # of a worker that has work, without processor time; a GPU's may wait for it
STARTUP_SILENCE_SECONDS = 120.0  # while it imports and reads weights
CLOSING_SECONDS = 3.0  # that a worker has to end by itself
WATCH_SECONDS = 0.25
AGAIN = ", and the engine has stopped; make another one"


class MultiProcessExecutor(Executor):
    """Runs steps in config.num_ranks processes, rank t of stage s having number s * tensor_parallel_size + t.

    All ranks are given each step. All of the last stage draw its tokens, from the same logits by the same function, so
    that none waits for another's; those of its first rank are the ones that count.

    Raises what Worker raises, and EngineDeadError where a worker dies or hangs as it starts.
    """

    def __init__(self, config: WorkerConfig) -> None:
        self._workers = workers = _Workers(config)
        self._finalizer = weakref.finalize(self, workers.stop, EngineClosedError(CLOSED))
        self._number, self._encoder = 0, StepEncoder()
        try:
            self.capacity = workers.start(config)
        except BaseException:
            self.close()
            raise

    def check_open(self) -> None:
        """See Executor."""
        self._workers.check()

    def issue(self, step: StepInput) -> int:
        """See Executor."""
        self._workers.check()
        self._number += 1
        try:
            self._workers.tell_all("step", self._number, self._encoder.encode(step))
        except BaseException:
            self._encoder = StepEncoder()  # the workers may not have been told
            raise
        return self._number

    def collect(self, number: int) -> StepOutput:
        """See Executor. Raises EngineDeadError once a worker has died or hung."""
        output = unpack_output(*self._workers.output(number))
        if output.interruption is not None and not is_interruption(output.interruption):
            return dataclasses.replace(output, interruption=None)  # not this thread's to raise
        return output

    def close(self) -> None:
        """See Executor."""
        self._finalizer()


class _Workers:
    """The processes, a thread for each that reads what it says, and one that watches. Knows no executor."""

    def __init__(self, config: WorkerConfig) -> None:
        self._on_cpu = config.config.device == "cpu"
        default = WORKER_SECONDS if self._on_cpu else CLOCK_SECONDS
        self._timeout = default if config.config.worker_timeout is None else config.config.worker_timeout
        self._silence = SILENCE_SECONDS if self._on_cpu else GPU_SILENCE_SECONDS
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._outputs: dict[int, list[Any]] = {}  # packed, by the number of the step
        self._failure: Exception | None = None  # why nothing goes on
        self._stopped, self._ended = False, threading.Event()
        self._stopper: threading.Thread | None = None
        size, num_stages = config.config.tensor_parallel_size, config.config.pipeline_parallel_size
        threads = config.config.num_threads or torch.get_num_threads()
        self.num_threads = max(1, threads // config.config.num_ranks)
        launcher = config.config.launcher or LocalProcesses()
        self._launched = launcher.launch(size, num_stages, self.num_threads, "cpu" if self._on_cpu else "cuda")
        self._workers = [RemoteWorker(rank, process) for rank, process in enumerate(self._launched.processes)]
        self._threads = [
            threading.Thread(target=self._listen, args=(worker,), daemon=True, name=f"transept-rank-{worker.rank}")
            for worker in self._workers
        ]
        self._threads.append(threading.Thread(target=self._watch, daemon=True, name="transept-watch"))

    def start(self, config: WorkerConfig) -> Capacity:
        """Have all workers load the model. Raises what they raise."""
        own = dataclasses.replace(config.config, num_threads=self.num_threads, launcher=None)
        for thread in self._threads:
            thread.start()
        for worker in self._workers:
            self._tell(worker, "start", worker.rank, worker.process.links, dataclasses.replace(config, config=own))
        with self._changed:
            while any(worker.ready is None for worker in self._workers):
                self._check()
                self._changed.wait(1.0)
            self._check()
        blocks = zip(*(worker.ready or () for worker in self._workers), strict=True)
        num_device_blocks, num_host_blocks = map(min, blocks)
        return Capacity(num_device_blocks, num_host_blocks, True, config.config.pipeline_parallel_size)

    def check(self) -> None:
        """Raise why nothing goes on, if so, and ForkedProcessError in a copy of the process that started them."""
        if os.getpid() != self._process:
            raise ForkedProcessError("the engine's workers belong to the process from which this one was forked")
        with self._changed:
            self._check()

    def tell_all(self, *message: Any) -> None:
        """Send a message, packed once, to every worker."""
        with self._workers[0].connection.pack(message) as parcel:
            try:
                for worker in self._workers:
                    worker.connection.send(parcel)
            except OSError:
                self._fail(self._cause("a worker does not listen any more"))
                self.check()
            except BaseException:  # some were told, others were not
                self._fail(EngineDeadError("the workers were interrupted while they were told what to do" + AGAIN))
                raise

    def output(self, number: int) -> list[Any]:
        """Wait for a step's output. Returns it packed."""
        with self._changed:
            while number not in self._outputs:
                self._check()
                self._changed.wait(1.0)
            output = self._outputs[number]
            for earlier in [each for each in self._outputs if each <= number]:
                del self._outputs[earlier]
            return output

    def stop(self, reason: Exception) -> None:
        """End all processes, and wait for it. Harmless when it is done again."""
        if os.getpid() != self._process:  # a copy of the process that started them, which ends
            return
        with self._changed:
            first = not self._stopped
            self._stopped = True
            if first:
                self._stopper = threading.current_thread()
            asked = self._failure is None
            self._failure = self._failure or reason
            self._changed.notify_all()
        if not first:
            if self._stopper is not threading.current_thread():
                self._ended.wait(2 * CLOSING_SECONDS)
            return
        if asked:
            for worker in self._workers:
                if worker.ready is not None:
                    self._tell(worker, "close")
        end = time.monotonic() + (CLOSING_SECONDS if asked else 0)
        for worker in self._workers:
            if not worker.process.wait(max(0.0, end - time.monotonic()) if worker.ready is not None else 0):
                worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.connection.shut()
        self._launched.release()
        self._ended.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _tell(self, worker: RemoteWorker, *message: Any) -> None:
        """Send a message to one worker; that it is gone others notice."""
        with worker.connection.pack(message) as parcel, suppress(OSError):
            worker.connection.send(parcel)

    def _listen(self, worker: RemoteWorker) -> None:
        """A thread: take what a worker says until it is gone."""
        try:
            while True:
                kind, *content = worker.connection.receive()
                self._take(worker, kind, content)
        except EOFError:
            worker_end = self._cause(f"{self._name(worker)} has gone")
            self._fail(worker_end)
        except BaseException as error:  # what it said cannot be read
            self._fail(EngineDeadError(f"what rank {worker.rank} says cannot be read: {error!r}"))
        finally:
            worker.process.wait()
            worker.connection.close()

    def _take(self, worker: RemoteWorker, kind: str, content: list[Any]) -> None:
        if kind == "beat":
            worker.beat(*content)
        elif kind == "port":
            for other in self._workers:
                if other is not worker:
                    self._tell(other, "port", *content)
        elif kind in ("refused", "dead"):
            self._fail(content[0])
        elif kind == "failed":
            worker.has_complained = True
            self._fail(self._cause(f"rank {worker.rank} has stopped: {content[0]}"))
        else:
            with self._changed:
                if kind == "ready":
                    worker.ready = tuple(content)
                else:
                    self._outputs[content[0]] = content[1:]
                self._changed.notify_all()

    def _watch(self) -> None:
        """A thread: end everything where a worker is silent, or has work and does not get on."""
        last = time.monotonic()
        while not self._stopped:
            time.sleep(WATCH_SECONDS)
            now = time.monotonic()
            if now - last > 4 * WATCH_SECONDS:  # this process itself stood still: what workers said is not read yet
                for worker in self._workers:
                    worker.heard = worker.progressed = worker.computed = now
            last = now
            for worker in self._workers:
                if (complaint := self._complaint(worker, now)) is not None:
                    self._fail(EngineDeadError(f"{self._name(worker)} {complaint}{AGAIN}"))

    def _complaint(self, worker: RemoteWorker, now: float) -> str | None:
        """Why a worker is taken to hang."""
        silence = self._silence if worker.ready is not None else STARTUP_SILENCE_SECONDS
        if now - worker.heard > silence:
            return f"has not been heard of for {silence:g} s"
        if worker.ready is None or not worker.works:
            return None
        if self._on_cpu and now - worker.computed > STILL_SECONDS:
            return f"has a step to compute, and has not computed for {STILL_SECONDS:g} s"
        spent = worker.spent if self._on_cpu else now - worker.progressed
        if spent > self._timeout or now - worker.progressed > max(self._timeout, CLOCK_SECONDS):
            return f"has computed for {self._timeout:g} s (worker_timeout) without getting on"
        return None

    def _name(self, worker: RemoteWorker) -> str:
        return f"rank {worker.rank} of {len(self._workers)} ({worker.process.name})"

    def _cause(self, otherwise: str) -> Exception:
        """The error that tells which process has died first, as far as can be known, or something else."""
        end = time.monotonic() + 0.3  # a process's end shows a moment after its socket's
        while time.monotonic() < end:
            ends = [(worker, worker.process.end()) for worker in self._workers]
            for worker, how in sorted(ends, key=lambda each: (each[0].has_complained, each[0].exit_code)):
                if how is not None and not self._stopped:
                    return EngineDeadError(f"{self._name(worker)} {how}{AGAIN}")
            time.sleep(0.02)
        return EngineDeadError(otherwise + AGAIN)

    def _fail(self, reason: Exception) -> None:
        with self._changed:
            if self._failure is not None:
                return
            self._failure = reason
            self._changed.notify_all()
        self.stop(reason)
