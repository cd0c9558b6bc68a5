"""A worker's process: ``python -m transept.core.execution.worker_main ORDERS PARENT [MEMORY]``.

Started by `transept.core.parallel.local_processes`. ORDERS: the descriptor of the socket that its orders come over.
PARENT: the process that started it, and with which this one ends. MEMORY: the descriptor of the memory through which
ranks exchange tensors; without it they use gloo or NCCL.

The first thread computes, the second reads orders, and the third reports this process's progress to the parent.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from transept.core.attention.attention import Attention
from transept.core.checkpoints.model_description import describe_model
from transept.core.checkpoints.source import locate
from transept.core.execution.executor import WorkerConfig
from transept.core.execution.model_runner import IssuedStep
from transept.core.execution.step_deltas import StepDecoder, pack_output
from transept.core.execution.worker import Worker
from transept.core.parallel.connection import Connection, portable
from transept.core.parallel.group import Exchange, ParallelGroup, TorchExchange
from transept.core.parallel.pipeline_stage import Link, Message, PipelineStage
from transept.core.parallel.shared_memory import SharedMemoryExchange
from transept.core.parallel.stage_links import SocketLink, TorchLink
from transept.errors import EngineDeadError, message_of

BEAT_SECONDS = 0.5
LOOPBACK = "127.0.0.1"
FOR_EVER = timedelta(days=1)  # who watches ends waiting ranks much earlier

logger = logging.getLogger(__name__)


class Progress:
    """Counts this rank's exchanges with others and the layers that it began, which the parent reads as progress.

    waiting: True while it may wait for other ranks.
    """

    def __init__(self) -> None:
        self.num_calls, self.waiting = 0, False

    def note(self) -> None:
        """Count one call."""
        self.num_calls += 1

    def begin(self) -> None:
        """Count the begin of an exchange."""
        self.note()
        self.waiting = True

    def end(self) -> None:
        """Note the end of an exchange."""
        self.waiting = False


class CountedExchange(Exchange):
    """An exchange whose calls count as progress."""

    def __init__(self, exchange: Exchange, progress: Progress) -> None:
        self._exchange, self._progress = exchange, progress
        self.piece_bytes = exchange.piece_bytes

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """See Exchange."""
        self._progress.begin()
        gathered = self._exchange.gather(x)
        self._progress.end()
        return gathered


class CountedLink(Link):
    """A link whose received messages count as progress."""

    def __init__(self, link: Link, progress: Progress) -> None:
        self._link, self._progress = link, progress

    def send(self, message: Message) -> None:
        """See Link."""
        self._link.send(message)

    def receive(self) -> Message:
        """See Link."""
        self._progress.begin()
        message = self._link.receive()
        self._progress.end()
        return message


class WorkerProcess:
    """Reads orders, runs steps, answers.

    parent: id of the process with which this one ends. memory: see the module. host: this machine's address, at which
    other ranks reach it. gpu: its number among those that this process sees; None: the rank's. leave: called before
    this process ends because the engine's process has ended.
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
        self._progress = Progress()
        self._stage = PipelineStage()
        self._num_done = 0  # orders
        self._clock = time.CLOCK_PROCESS_CPUTIME_ID  # of the thread that computes, where the system tells it
        self._busy = False

    def run(self) -> None:
        """Work until the parent says "close", or is gone."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        for target in (self._read, self._beat):
            threading.Thread(target=target, daemon=True, name=target.__name__).start()
        _, rank, links, config = self._next()
        try:
            worker = self._made(rank, links, config)
        except Exception as error:
            logger.debug("rank %d cannot start", rank, exc_info=True)
            self._send("refused", portable(error, "the model cannot be loaded"))
            return
        for module in worker.runner.model.modules():
            if isinstance(module, Attention):
                module.register_forward_pre_hook(lambda *_: self._progress.note())
        self._send("ready", worker.num_device_blocks, worker.num_host_blocks)
        try:
            self._work(worker, answers=self._stage.is_last and worker.runner.group.rank == 0)
        except EngineDeadError as error:
            self._send("dead", error)
            while self._next()[0] != "close":  # the engine's process kills this one, and knows why
                pass
        except Exception as error:
            self._send("failed", f"{type(error).__name__}: {message_of(error)}")

    def _made(self, rank: int, links: Mapping[int, int], config: WorkerConfig) -> Worker:
        """links: descriptors of sockets, by the stage at the other end; without them stages use torch.distributed."""
        on_gpu = config.config.device != "cpu"
        device = f"cuda:{rank if self._gpu is None else self._gpu}" if on_gpu else "cpu"
        if on_gpu:
            torch.cuda.set_device(device)
        own = dataclasses.replace(config, path=_here(config), config=dataclasses.replace(config.config, device=device))
        size, count = own.config.tensor_parallel_size, own.config.pipeline_parallel_size
        index, tensor_rank = divmod(rank, size)
        if self._memory is None:
            backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
            torch.distributed.init_process_group(
                backend, store=self._store(rank), rank=rank, world_size=size * count, timeout=FOR_EVER
            )
            ranks = [[*range(size * stage, size * (stage + 1))] for stage in range(count)]
            groups = [torch.distributed.new_group(each) for each in ranks]  # every rank must call for every group
            exchange: Exchange = TorchExchange(groups[index])
        else:
            exchange = SharedMemoryExchange(tensor_rank, size, self._memory)
        joined: dict[int, Link] = {stage: SocketLink(descriptor) for stage, descriptor in links.items()}
        for stage in range(count):
            if stage != index and not links:
                joined[stage] = TorchLink(size * stage + tensor_rank)
        counted = {stage: CountedLink(link, self._progress) for stage, link in joined.items()}
        self._stage = PipelineStage(index, count, counted)
        group = ParallelGroup(tensor_rank, size, CountedExchange(exchange, self._progress))
        described = describe_model(own.path, own.config.model, own.config.plugin)
        return Worker(own, described, group, self._stage)

    def _store(self, rank: int) -> Any:
        """Return the store through which ranks find each other. Rank 0 serves it, and the parent sends its address."""
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
        on_cpu, last, steps = worker.device.type == "cpu", None, StepDecoder()
        issued: deque[tuple[int, IssuedStep]] = deque()
        while True:
            if issued and (on_cpu or self._orders.empty()):
                number, step = issued.popleft()
                output = worker.collect(step) if answers else None
                self._num_done += 1
                self._busy = bool(issued)
                if output is not None:
                    self._send("output", number, *pack_output(output))
                continue
            order = self._next()
            if order[0] == "close":
                return
            self._busy = True
            _, number, delta = order
            self._stage.step = number
            last = worker.runner.issue(steps.decode(delta), last)
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
        """A thread: report this process's progress."""
        while os.getppid() == self._parent:
            works = self._busy and not self._progress.waiting
            seconds = time.process_time(), time.clock_gettime(self._clock)
            self._send("beat", works, seconds, (self._progress.num_calls, self._num_done))
            time.sleep(BEAT_SECONDS)
        os._exit(1)

    def _send(self, *message: Any) -> None:
        try:
            with self._sending, self._connection.pack(message) as parcel:
                self._connection.send(parcel)
        except OSError:
            self._end()

    def _end(self) -> None:
        """End this process after the engine's process has ended."""
        self._leave()
        os._exit(1)


def _here(config: WorkerConfig) -> Path:
    """Return the checkpoint on this machine. Raises CheckpointError if it has none."""
    options = config.config
    if config.path.exists():
        return config.path
    return locate(options.model, model_dir=options.model_dir, offline=options.offline)


def main() -> None:
    """Run the worker until it ends."""
    orders, parent, *memory = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted, and decides
    WorkerProcess(Connection(socket.socket(fileno=orders)), parent, memory[0] if memory else None).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # at once, whatever other threads do


if __name__ == "__main__":
    main()
