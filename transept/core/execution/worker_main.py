"""A rank's process: ``python -m transept.core.execution.worker_main SOCKET PARENT [MEMORY]``.

Started by `transept.core.parallel.local_processes`; `transept.cluster` runs the same WorkerProcess in a Ray actor.
SOCKET: the descriptor of the connection to the engine's process (`multi_process`). PARENT: the id of the parent
process; this one ends with it. MEMORY: the descriptor of the memory through which ranks exchange tensors; without it
they use torch.distributed. The first thread computes, the second receives messages, the third sends heartbeats.

    engine to rank   start      rank, links to other stages, WorkerConfig
                     store      host, port: where rank 0 serves torch.distributed's store
                     step       number, StepDelta
                     close
    rank to engine   heartbeat  works, processor seconds, progress: see RemoteWorker
                     store      host, port: of rank 0
                     ready      blocks on the device, blocks on the host, encoder layers between which encodes may stop
                     refused    error: the model cannot be loaded
                     output     number, and what `pack_output` returns: from the last stage's first rank
                     failed     message: this rank can compute no more steps, possibly because another rank has ended
                     dead       EngineDeadError: the device has failed
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
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from transept.core.attention.attention import Attention
from transept.core.checkpoints.model_description import describe_model
from transept.core.checkpoints.source import locate
from transept.core.execution.executor import WorkerConfig
from transept.core.execution.model_runner import IssuedStep
from transept.core.execution.step_deltas import StepDecoder, pack_output
from transept.core.execution.worker import Worker
from transept.core.parallel.connection import Connection, picklable
from transept.core.parallel.group import Exchange, ParallelGroup, TorchExchange
from transept.core.parallel.pipeline_stage import Link, Message, PipelineStage
from transept.core.parallel.shared_memory import SharedMemoryExchange
from transept.core.parallel.stage_links import SocketLink, TorchLink
from transept.errors import EngineDeadError, message_of

HEARTBEAT_SECONDS = 0.5
LOOPBACK = "127.0.0.1"
FOR_EVER = timedelta(days=1)  # the engine ends waiting ranks much earlier

logger = logging.getLogger(__name__)

ReturnedT = TypeVar("ReturnedT")


class Progress:
    """Counts the exchanges and the attention layers that this rank has begun.

    waiting: True while it may wait for other ranks.
    """

    def __init__(self) -> None:
        self.num_calls, self.waiting = 0, False

    def count_layer(self, layer: nn.Module, given: Any) -> None:
        """Count a layer. A forward pre-hook."""
        self.num_calls += 1

    def count_exchange(self, exchange: Callable[..., ReturnedT], *given: Any) -> ReturnedT:
        """Call a function that may wait for other ranks."""
        self.num_calls += 1
        self.waiting = True
        result = exchange(*given)
        self.waiting = False
        return result


class CountedExchange(Exchange):
    """An exchange whose calls count as progress."""

    def __init__(self, exchange: Exchange, progress: Progress) -> None:
        self._exchange, self._progress = exchange, progress
        self.piece_bytes = exchange.piece_bytes

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """See Exchange."""
        return self._progress.count_exchange(self._exchange.gather, x)


class CountedLink(Link):
    """A link whose received messages count as progress."""

    def __init__(self, link: Link, progress: Progress) -> None:
        self._link, self._progress = link, progress

    def send(self, message: Message) -> None:
        """See Link."""
        self._link.send(message)

    def receive(self) -> Message:
        """See Link."""
        return self._progress.count_exchange(self._link.receive)


class WorkerProcess:
    """Receives messages, runs steps, sends their outputs.

    parent, memory: see the module. host: this machine's address for other ranks. gpu: index of the GPU among those
    visible to this process; None: the rank's number. leave: called before this process exits because the engine's
    process has ended.
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
        self._received: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._sending = threading.Lock()
        self._progress = Progress()
        self._num_steps = 0  # steps computed
        self._clock = time.CLOCK_PROCESS_CPUTIME_ID  # of the thread that computes, if the system has one
        self._busy = False

    def run(self) -> None:
        """Work until the engine's process sends "close", or has ended."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        for target in (self._receive, self._send_heartbeats):
            threading.Thread(target=target, daemon=True, name=target.__name__).start()
        _, rank, links, config = self._received.get()
        try:
            worker = self._load(rank, links, config)
        except Exception as error:
            logger.debug("rank %d cannot start", rank, exc_info=True)
            self._send("refused", picklable(error, "the model cannot be loaded"))
            return
        for module in worker.runner.model.modules():
            if isinstance(module, Attention):
                module.register_forward_pre_hook(self._progress.count_layer)
        self._send("ready", worker.num_device_blocks, worker.num_host_blocks, worker.num_encoder_layers)
        try:
            self._run_steps(worker)
        except EngineDeadError as error:
            self._send("dead", error)
            while self._received.get()[0] != "close":  # the engine's process kills this one, and knows why
                pass
        except Exception as error:
            self._send("failed", f"{type(error).__name__}: {message_of(error)}")

    def _load(self, rank: int, links: Mapping[int, int], config: WorkerConfig) -> Worker:
        """Load a rank's part of the model.

        links: descriptors of sockets, by the stage at the other end; without them stages use torch.distributed.
        """
        on_gpu = config.config.device != "cpu"
        device = f"cuda:{rank if self._gpu is None else self._gpu}" if on_gpu else "cpu"
        if on_gpu:
            torch.cuda.set_device(device)
        options = dataclasses.replace(config.config, device=device)
        path = config.path  # another machine may have it elsewhere
        if not path.exists():
            path = locate(options.model, model_dir=options.model_dir, offline=options.offline)
        own = dataclasses.replace(config, path=path, config=options)
        size, count = options.tensor_parallel_size, options.pipeline_parallel_size
        stage, rank_in_stage = divmod(rank, size)
        if self._memory is None:
            backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
            torch.distributed.init_process_group(
                backend, store=self._store(rank), rank=rank, world_size=size * count, timeout=FOR_EVER
            )
            all_ranks = [[*range(size * each, size * (each + 1))] for each in range(count)]
            groups = [torch.distributed.new_group(each) for each in all_ranks]  # each rank must create all groups
            exchange: Exchange = TorchExchange(groups[stage])
        else:
            exchange = SharedMemoryExchange(rank_in_stage, size, self._memory)
        joined: dict[int, Link] = {other: SocketLink(descriptor) for other, descriptor in links.items()}
        if not links:
            joined = {other: TorchLink(size * other + rank_in_stage) for other in range(count) if other != stage}
        counted = {other: CountedLink(link, self._progress) for other, link in joined.items()}
        ranks = ParallelGroup(rank_in_stage, size, CountedExchange(exchange, self._progress))
        described = describe_model(path, options.model, options.plugin)
        return Worker(own, described, ranks, PipelineStage(stage, count, counted))

    def _store(self, rank: int) -> Any:
        """Return the store through which ranks find each other. Rank 0 serves it; the others receive its address."""
        if rank == 0:
            family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
            listening = socket.create_server((self._host, 0), family=family)
            port = listening.getsockname()[1]
            store = TCPStore(
                self._host, port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
            )
            self._send("store", self._host, port)
            return store
        _, host, port = self._received.get()
        return TCPStore(host, port, is_master=False, wait_for_workers=False)

    def _run_steps(self, worker: Worker) -> None:
        """Run steps in order. On a GPU, issue the next step, if it has arrived, before collecting the previous one."""
        runner, decoder, on_cpu = worker.runner, StepDecoder(), worker.device.type == "cpu"
        returns_outputs = runner.stage.is_last and runner.ranks.rank == 0
        last: IssuedStep | None = None
        issued: deque[tuple[int, IssuedStep]] = deque()
        while True:
            if issued and (on_cpu or self._received.empty()):
                number, step = issued.popleft()
                output = worker.collect(step) if returns_outputs else None
                self._num_steps += 1
                self._busy = bool(issued)
                if output is not None:
                    self._send("output", number, *pack_output(output))
                continue
            kind, *content = self._received.get()
            if kind == "close":
                return
            self._busy = True
            runner.stage.step, delta = content
            last = runner.issue(decoder.decode(delta), last)
            issued.append((runner.stage.step, last))
            del content, delta  # they hold the step's features

    def _receive(self) -> None:
        """A thread: put messages into the queue."""
        message: tuple[Any, ...] = ("",)
        try:
            while message[0] != "close":
                message = self._connection.receive()
                self._received.put(message)
        except EOFError:
            self._end()
        except BaseException:
            logger.exception("cannot read a message from the engine's process")
            os._exit(1)

    def _send_heartbeats(self) -> None:
        """A thread: report this process's progress."""
        while os.getppid() == self._parent:
            works = self._busy and not self._progress.waiting
            seconds = time.process_time(), time.clock_gettime(self._clock)
            self._send("heartbeat", works, seconds, (self._progress.num_calls, self._num_steps))
            time.sleep(HEARTBEAT_SECONDS)
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


def main() -> None:
    """Run the worker until it ends."""
    connected, parent, *memory = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine's process handles Ctrl-C
    WorkerProcess(Connection(socket.socket(fileno=connected)), parent, memory[0] if memory else None).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting for other threads


if __name__ == "__main__":
    main()
