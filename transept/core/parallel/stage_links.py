"""Links between pipeline stages: sockets on one machine, or torch.distributed. Made by `worker_main`.

Two stages may send to each other at the same time, so a send must not block: a thread sends the bytes that the socket
does not accept at once. All messages go through host memory, also from GPUs: an NCCL send would delay later kernels.
"""

from __future__ import annotations

import pickle
import queue
import socket
import threading
from collections import deque
from typing import Any

import torch
from torch import Tensor

from transept.core.parallel.connection import picklable
from transept.core.parallel.group import ExchangeError
from transept.core.parallel.pipeline_stage import Link, Message
from transept.errors import message_of

FAILED_ELSEWHERE = "the request failed while another stage computed it"
MOST_DIMS = 4
HEAD_NUMBERS = 3 + MOST_DIMS  # int64 numbers: step, dtype, dimensions, and the size of each
ERROR = 0  # in place of a dtype: the bytes are a pickled exception
SENT_DTYPES = (None, torch.uint8, torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64)
GONE = "another stage has gone"


def _packed(message: Message) -> tuple[Tensor, Tensor]:
    """Return a message's head, int64 [HEAD_NUMBERS], and its content, both on the host."""
    content, kind = message.content, ERROR
    if isinstance(content, Exception):
        content = torch.frombuffer(bytearray(pickle.dumps(picklable(content, FAILED_ELSEWHERE))), dtype=torch.uint8)
    else:
        kind = SENT_DTYPES.index(content.dtype)
    sizes = [*content.shape, *[1] * (MOST_DIMS - content.dim())]
    return torch.tensor([message.step, kind, content.dim(), *sizes]), content.cpu().contiguous()


def _place(head: Tensor) -> Tensor:
    """Return an empty tensor for the content of a message with this head."""
    _, kind, num_dims, *sizes = head.tolist()
    return torch.empty(sizes[:num_dims], dtype=SENT_DTYPES[kind] or torch.uint8)


def _unpacked(head: Tensor, content: Tensor) -> Message:
    step, kind, *_ = head.tolist()
    return Message(step, pickle.loads(content.numpy().tobytes()) if kind == ERROR else content)


def _bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor on the host."""
    numbers: Any = tensor.flatten().view(torch.uint8).numpy()
    return memoryview(numbers)


class SocketLink(Link):
    """A link over a socket. descriptor: one end of a socket pair; this class closes it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._unsent: queue.SimpleQueue[memoryview] = queue.SimpleQueue()
        self._num_unsent = 0
        self._changing = threading.Lock()
        threading.Thread(target=self._send_rest, daemon=True, name="send to a stage").start()

    def send(self, message: Message) -> None:
        """See Link."""
        head, content = _packed(message)
        for part in (_bytes_of(head), _bytes_of(content)):
            self._send(part)

    def _send(self, data: memoryview) -> None:
        with self._changing:
            if not self._num_unsent:
                try:
                    data = data[self._socket.send(data, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    pass
                except OSError as error:
                    raise ExchangeError(GONE) from error
            if data:
                # A copy: the stage continues, and may overwrite the tensor.
                self._unsent.put(memoryview(bytes(data)))
                self._num_unsent += 1

    def _send_rest(self) -> None:
        """A thread: send the bytes that the socket did not accept at once."""
        while True:
            data = self._unsent.get()
            try:
                self._socket.sendall(data)
            except OSError:
                return  # the receiving stage, or the engine's process, reports it
            with self._changing:
                self._num_unsent -= 1

    def receive(self) -> Message:
        """See Link."""
        head = torch.empty(HEAD_NUMBERS, dtype=torch.int64)
        self._read(head)
        content = _place(head)
        self._read(content)
        return _unpacked(head, content)

    def _read(self, tensor: Tensor) -> None:
        view = _bytes_of(tensor)
        while view:
            try:
                count = self._socket.recv_into(view, 0, socket.MSG_WAITALL)
            except OSError as error:
                raise ExchangeError(GONE) from error
            if not count:
                raise ExchangeError(GONE)
            view = view[count:]


class TorchLink(Link):
    """A link over torch.distributed, whose default process group has all ranks. rank: the one at the other end."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._sent: deque[tuple[Any, Tensor]] = deque()  # unfinished sends, whose tensors must stay alive

    def send(self, message: Message) -> None:
        """See Link."""
        head, content = _packed(message)
        while self._sent and self._sent[0][0].is_completed():
            self._sent.popleft()
        for part in (head, content):
            try:
                self._sent.append((torch.distributed.isend(part, self._rank), part))
            except RuntimeError as error:
                raise ExchangeError(f"{GONE}: {message_of(error)}") from error

    def receive(self) -> Message:
        """See Link."""
        head = torch.empty(HEAD_NUMBERS, dtype=torch.int64)
        try:
            torch.distributed.recv(head, self._rank)
            content = _place(head)
            torch.distributed.recv(content, self._rank)
        except RuntimeError as error:
            raise ExchangeError(f"{GONE}: {message_of(error)}") from error
        return _unpacked(head, content)
