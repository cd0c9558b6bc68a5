"""MultiProcessExecutor: one worker in each of several processes, which share the model's layers. Made by the engine.

Every rank, rank 0 included, is a separate process. So the engine's process can end all of them if one dies or hangs,
and it waits only on a condition with a time limit. A launcher (`transept.core.parallel.launcher`) starts the processes,
here or on other machines. They run `worker_main`, which lists the messages.
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
from transept.core.parallel.remote_worker import CLOCK_SECONDS, RemoteWorker
from transept.core.scheduling.step import StepInput, StepOutput
from transept.errors import EngineClosedError, EngineDeadError, ForkedProcessError, is_interruption

WORKER_SECONDS = 8.0  # processor time; default worker_timeout on CPUs
CLOSING_SECONDS = 3.0  # for a worker to exit before it is killed
END_SECONDS = 0.3  # the exit of a process may become visible this much later than its closed socket
WATCH_SECONDS = 0.25
AGAIN = ", and the engine has stopped; make another one"


class MultiProcessExecutor(Executor):
    """Runs steps in config.num_ranks processes. Rank t of stage s has number s * tensor_parallel_size + t.

    All ranks receive each step. All ranks of the last stage draw its tokens from the same logits by the same function,
    so none waits for another; the first of these ranks returns the tokens.

    Raises what Worker raises, and EngineDeadError if a worker dies or hangs as it starts.
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
            self._workers.send_to_all("step", self._number, self._encoder.encode(step))
        except BaseException:
            self._encoder = StepEncoder()  # the workers may not have received the step
            raise
        return self._number

    def collect(self, number: int) -> StepOutput:
        """See Executor. Raises EngineDeadError once a worker has died or hung."""
        output = unpack_output(*self._workers.output(number))
        if output.interruption is not None and not is_interruption(output.interruption):
            return dataclasses.replace(output, interruption=None)  # only the main thread raises it
        return output

    def close(self) -> None:
        """See Executor."""
        self._finalizer()


class _Workers:
    """All workers, one receiving thread for each, and one thread that watches them all.

    Holds no reference to the executor, so that the executor can be garbage-collected while the threads run.
    """

    def __init__(self, worker_config: WorkerConfig) -> None:
        config = worker_config.config
        self._on_cpu = config.device == "cpu"
        default = WORKER_SECONDS if self._on_cpu else CLOCK_SECONDS
        self._timeout = default if config.worker_timeout is None else config.worker_timeout
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._outputs: dict[int, list[Any]] = {}  # packed, by the number of the step
        self._failure: Exception | None = None  # why no step can be computed any more
        self._stopped, self._ended = False, threading.Event()
        self._stopper: threading.Thread | None = None
        self.num_threads = max(1, (config.threads or torch.get_num_threads()) // config.num_ranks)
        device, sizes = "cpu" if self._on_cpu else "cuda", (config.tensor_parallel_size, config.pipeline_parallel_size)
        self._launched = (config.launcher or LocalProcesses()).launch(*sizes, self.num_threads, device)
        self._workers = [RemoteWorker(rank, process) for rank, process in enumerate(self._launched.processes)]

    def start(self, config: WorkerConfig) -> Capacity:
        """Let all workers load the model. Raises their errors."""
        own = dataclasses.replace(config.config, threads=self.num_threads, launcher=None)
        for worker in self._workers:
            name = f"transept-rank-{worker.rank}"
            threading.Thread(target=self._receive, args=(worker,), daemon=True, name=name).start()
        threading.Thread(target=self._watch, daemon=True, name="transept-watch").start()
        for worker in self._workers:
            self._send(worker, "start", worker.rank, worker.process.links, dataclasses.replace(config, config=own))
        with self._changed:
            while any(worker.ready is None for worker in self._workers):
                self._wait()
            self._check()
        numbers = zip(*(worker.ready or () for worker in self._workers), strict=True)
        num_device_blocks, num_host_blocks, num_layers = map(min, numbers)
        return Capacity(num_device_blocks, num_host_blocks, True, config.config.pipeline_parallel_size, num_layers)

    def check(self) -> None:
        """Raise the reason if the workers have stopped, and ForkedProcessError in a fork of the engine's process."""
        if os.getpid() != self._process:
            raise ForkedProcessError("the engine's workers belong to the process from which this one was forked")
        with self._changed:
            self._check()

    def send_to_all(self, *message: Any) -> None:
        """Send a message, packed once, to every worker."""
        with self._workers[0].connection.pack(message) as parcel:
            try:
                for worker in self._workers:
                    worker.connection.send(parcel)
            except OSError:
                self._fail(self._first_end("a worker has closed its connection"))
                self.check()
            except BaseException:  # some workers have received it, others have not
                self._fail(EngineDeadError("sending a message to the workers was interrupted" + AGAIN))
                raise

    def output(self, number: int) -> list[Any]:
        """Wait for a step's output. Returns it packed."""
        with self._changed:
            while number not in self._outputs:
                self._wait()
            output = self._outputs[number]
            for earlier in [each for each in self._outputs if each <= number]:
                del self._outputs[earlier]
            return output

    def stop(self, reason: Exception) -> None:
        """End all processes and wait until they have ended. Does nothing the second time, and in a fork."""
        if os.getpid() != self._process:
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
        ready = [worker for worker in self._workers if asked and worker.ready is not None]
        for worker in ready:
            self._send(worker, "close")
        end = time.monotonic() + CLOSING_SECONDS
        for worker in self._workers:
            if not worker.process.wait(max(0.0, end - time.monotonic()) if worker in ready else 0):
                worker.process.kill()
        for worker in self._workers:
            worker.process.wait()
            worker.connection.shut()
        self._launched.release()
        self._ended.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def _wait(self) -> None:
        """Wait until something changes, for a second at most. Raises the reason if the workers have stopped."""
        self._check()
        self._changed.wait(1.0)

    def _send(self, worker: RemoteWorker, *message: Any) -> None:
        """Send a message to one worker. If the worker has gone, its receiving thread reports that."""
        with worker.connection.pack(message) as parcel, suppress(OSError):
            worker.connection.send(parcel)

    def _receive(self, worker: RemoteWorker) -> None:
        """A thread: handle a worker's messages until it has gone."""
        try:
            while True:
                kind, *content = worker.connection.receive()
                self._handle(worker, kind, content)
        except EOFError:
            self._fail(self._first_end(f"{self._name(worker)} has gone"))
        except BaseException as error:
            self._fail(EngineDeadError(f"a message of rank {worker.rank} cannot be read: {error!r}"))
        finally:
            worker.process.wait()
            worker.connection.close()

    def _handle(self, worker: RemoteWorker, kind: str, content: list[Any]) -> None:
        if kind == "heartbeat":
            worker.note_heartbeat(*content)
        elif kind == "store":
            for other in self._workers:
                if other is not worker:
                    self._send(other, kind, *content)
        elif kind in ("refused", "dead"):
            self._fail(content[0])
        elif kind == "failed":
            worker.has_complained = True
            self._fail(self._first_end(f"rank {worker.rank} has stopped: {content[0]}"))
        else:
            with self._changed:
                if kind == "ready":
                    worker.ready = content
                else:
                    self._outputs[content[0]] = content[1:]
                self._changed.notify_all()

    def _watch(self) -> None:
        """A thread: stop all workers if one of them hangs."""
        last = time.monotonic()
        while not self._stopped:
            time.sleep(WATCH_SECONDS)
            now = time.monotonic()
            # If this process itself was suspended, it has not read the workers' heartbeats yet.
            stood_still, last = now - last > 4 * WATCH_SECONDS, now
            for worker in self._workers:
                if stood_still:
                    worker.excuse(now)
                if (complaint := worker.complaint(now, self._on_cpu, self._timeout)) is not None:
                    self._fail(EngineDeadError(f"{self._name(worker)} {complaint}{AGAIN}"))

    def _name(self, worker: RemoteWorker) -> str:
        return f"rank {worker.rank} of {len(self._workers)} ({worker.process.name})"

    def _first_end(self, otherwise: str) -> Exception:
        """Return an error that names the process which probably ended first, or else says `otherwise`."""
        end = time.monotonic() + END_SECONDS
        while time.monotonic() < end:
            ends = [(worker, worker.process.end()) for worker in self._workers]
            for worker, how in sorted(ends, key=lambda each: (each[0].has_complained, each[0].exit_code)):
                if how is not None and not self._stopped:
                    return EngineDeadError(f"{self._name(worker)} {how}{AGAIN}")
            time.sleep(0.02)
        return EngineDeadError(otherwise + AGAIN)

    def _fail(self, reason: Exception) -> None:
        """Stop all workers because of an error. Does nothing if they have already failed."""
        with self._changed:
            if self._failure is not None:
                return
            self._failure = reason
            self._changed.notify_all()
        self.stop(reason)
