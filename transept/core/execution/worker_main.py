"""A worker's process: ``python -m transept.core.execution.worker_main ORDERS PARENT [MEMORY]``.

Started by `transept.core.execution.local_processes`. ORDERS: the descriptor of the socket that its orders come over.
PARENT: the process that started it; where that has gone, so does this one, whatever it does. MEMORY: the descriptor of
what the ranks exchange tensors through; without it they do by gloo or NCCL.

The first thread computes; one reads orders, and one tells all the time that this process lives and how far it is.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from transept.core.checkpoints.source import locate
from transept.core.execution.connection import Connection, pack
from transept.core.execution.executor import WorkerConfig
from transept.core.execution.model_runner import IssuedStep
from transept.core.execution.shared_memory import SharedMemoryExchange
from transept.core.execution.worker import Worker
from transept.core.parallel_group import Exchange, ParallelGroup, TorchExchange
from transept.core.scheduling.step import StepOutput
from transept.errors import RequestFailedError, message_of

BEAT_SECONDS = 0.5
FAILED = "the request failed while it was computed"
LOOPBACK = "127.0.0.1"
FOR_EVER = timedelta(days=1)  # who watches ends waiting ranks much earlier

logger = logging.getLogger(__name__)


class CountedExchange(Exchange):
    """An exchange that counts its calls, by which the parent sees that this rank gets on.

    waiting: whether this rank is in one of them, for another rank maybe.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self.num_calls, self.waiting = exchange, 0, False
        self.piece_bytes = exchange.piece_bytes

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """See Exchange."""
        self.num_calls += 1
        self.waiting = True
        gathered = self._exchange.gather(x)
        self.waiting = False
        return gathered


class WorkerProcess:
    """Reads orders, runs steps, answers.

    parent: process with which this one ends, too. memory: see the module. host: this machine's address, by which other
    ranks reach it. gpu: its number among those that this process sees; None: the rank's. leave: called before this
    process ends since the engine's has gone.
    """

    def __init__(
        self,
        connection: Connection,
        parent: int,
        memory: int | None,
        *,
        host: str = LOOPBACK,
        gpu: int | None = None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection, self._parent, self._memory = connection, parent, memory
        self._host, self._gpu, self._leave = host, gpu, leave
        self._orders: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._exchange: CountedExchange | None = None
        self._num_done = 0  # orders
        self._busy = False

    def run(self) -> None:
        """Work until the parent says "close", or is gone."""
        for target in (self._read, self._beat):
            threading.Thread(target=target, daemon=True, name=target.__name__).start()
        _, rank, size, config = self._next()
        try:
            worker = self._made(rank, size, config)
        except Exception as error:
            logger.debug("rank %d cannot start", rank, exc_info=True)
            self._send("refused", portable(error, "the model cannot be loaded"))
            return
        self._send("ready", worker.num_device_blocks, worker.num_host_blocks)
        try:
            self._work(worker, answers=rank == 0)
        except Exception as error:
            self._send("failed", f"{type(error).__name__}: {message_of(error)}")

    def _made(self, rank: int, size: int, config: WorkerConfig) -> Worker:
        on_gpu = config.config.device != "cpu"
        device = f"cuda:{rank if self._gpu is None else self._gpu}" if on_gpu else "cpu"
        if on_gpu:
            torch.cuda.set_device(device)
        self._exchange = CountedExchange(self._connected(rank, size, "nccl" if on_gpu else "gloo"))
        own = dataclasses.replace(config, path=_here(config), config=dataclasses.replace(config.config, device=device))
        return Worker(own, ParallelGroup(rank, size, self._exchange))

    def _connected(self, rank: int, size: int, backend: str) -> Exchange:
        if self._memory is not None:
            return SharedMemoryExchange(rank, size, self._memory)
        store = self._store(rank)
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=FOR_EVER)
        return TorchExchange(torch.distributed.group.WORLD)

    def _store(self, rank: int) -> Any:
        """Where ranks find each other: rank 0 serves it at its host; the parent tells the others where that is."""
        if rank == 0:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            listening = socket.create_server((self._host, 0), family=family)
            port = listening.getsockname()[1]
            store = TCPStore(
                self._host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
            )
            self._send("port", self._host, port)
            return store
        _, host, port = self._next()
        return TCPStore(host, port, is_master=False, wait_for_workers=False)

    def _work(self, worker: Worker, answers: bool) -> None:
        """Run steps in their order. A GPU is given the next one, if it is there, before the last one is collected."""
        on_cpu, last = worker.device.type == "cpu", None
        issued: deque[tuple[int, IssuedStep]] = deque()
        while True:
            if issued and (on_cpu or self._orders.empty()):
                number, step = issued.popleft()
                output = step.collect() if answers else None
                self._num_done += 1
                self._busy = bool(issued)
                if output is not None:
                    self._send("output", number, with_portable_errors(output))
                continue
            order = self._next()
            if order[0] == "close":
                return
            self._busy = True
            _, number, step_input = order
            last = worker.issue(step_input, last)
            issued.append((number, last))

    def _next(self) -> tuple[Any, ...]:
        return self._orders.get()

    def _read(self) -> None:
        """A thread: put orders into the queue."""
        order: tuple[Any, ...] = ("",)
        try:
            while order[0] != "close":
                order = self._connection.receive()
                self._orders.put(order)
        except EOFError:
            self._end()
        except BaseException:
            logger.exception("an order cannot be read")
            os._exit(1)

    def _beat(self) -> None:
        """A thread: tell how far this process is."""
        while os.getppid() == self._parent:
            num_calls, waiting = 0, False
            if self._exchange is not None:
                num_calls, waiting = self._exchange.num_calls, self._exchange.waiting
            works = self._busy and not waiting
            self._send("beat", works, time.process_time(), (num_calls, self._num_done))
            time.sleep(BEAT_SECONDS)
        os._exit(1)

    def _send(self, *message: Any) -> None:
        try:
            with self._sending:
                self._connection.send(pack(message, self._connection.passes_memory))
        except OSError:
            self._end()

    def _end(self) -> None:
        """End this process: the engine's has gone."""
        self._leave()
        os._exit(1)


def _here(config: WorkerConfig) -> Path:
    """The checkpoint on this machine. Raises CheckpointError where there is none."""
    options = config.config
    if config.path.exists():
        return config.path
    return locate(options.model, model_dir=options.model_dir, offline=options.offline)


def with_portable_errors(output: StepOutput) -> StepOutput:
    """A step's output that pickles."""
    failures = {request_id: portable(error, FAILED) for request_id, error in output.failures.items()}
    return dataclasses.replace(output, failures=failures)


def portable(error: Exception, what: str) -> Exception:
    """The error, if the parent gets it as it is; else one that tells what happened and what the error was."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # of a plugin's class
        logger.debug("an error does not pickle", exc_info=True)
    return RequestFailedError(f"{what}: {type(error).__name__}: {message_of(error)}")


def main() -> None:
    """Run the process to its end."""
    orders, parent, *memory = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the parent, too, which decides
    WorkerProcess(Connection(socket.socket(fileno=orders)), parent, memory[0] if memory else None).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once, whatever other threads do


if __name__ == "__main__":
    main()
