"""Links between pipeline stages: sockets on one machine, or torch.distributed. Made by `worker_main`.

A message is sent as its number of bytes and a pickle. Two stages may send to each other at the same time, so a send
must not block: a thread sends the bytes that the socket does not accept at once. All messages go through host memory,
also from GPUs: an NCCL send would delay later kernels.
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

from transept.core.parallel.connection import dumps, picklable
from transept.core.parallel.group import ExchangeError
from transept.core.parallel.pipeline_stage import Link, Message
from transept.errors import message_of

FAILED_ELSEWHERE = "the request failed while another stage computed it"
LENGTH_BYTES = 8
GONE = "another stage has gone"


def _packed(message: Message) -> bytes:
    step, content = message
    return dumps((step, picklable(content, FAILED_ELSEWHERE) if isinstance(content, Exception) else content))


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
        packed = _packed(message)
        data = memoryview(len(packed).to_bytes(LENGTH_BYTES) + packed)
        with self._changing:
            if not self._num_unsent:
                try:
                    data = data[self._socket.send(data, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    pass
                except OSError as error:
                    raise ExchangeError(GONE) from error
            if data:
                self._unsent.put(data)
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
        length = int.from_bytes(self._read(LENGTH_BYTES))
        return Message(*pickle.loads(self._read(length)))

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view, 0, socket.MSG_WAITALL)
            except OSError as error:
                raise ExchangeError(GONE) from error
            if not count:
                raise ExchangeError(GONE)
            view = view[count:]
        return data


class TorchLink(Link):
    """A link over torch.distributed, whose default process group has all ranks. rank: the one at the other end."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._sent: deque[tuple[Any, Tensor]] = deque()  # unfinished sends, whose tensors must stay alive

    def send(self, message: Message) -> None:
        """See Link."""
        content = torch.frombuffer(bytearray(_packed(message)), dtype=torch.uint8)
        while self._sent and self._sent[0][0].is_completed():
            self._sent.popleft()
        for part in (torch.tensor([len(content)]), content):
            try:
                self._sent.append((torch.distributed.isend(part, self._rank), part))
            except RuntimeError as error:
                raise ExchangeError(f"{GONE}: {message_of(error)}") from error

    def receive(self) -> Message:
        """See Link."""
        length = torch.empty(1, dtype=torch.int64)
        try:
            torch.distributed.recv(length, self._rank)
            content = torch.empty(int(length), dtype=torch.uint8)
            torch.distributed.recv(content, self._rank)
        except RuntimeError as error:
            raise ExchangeError(f"{GONE}: {message_of(error)}") from error
        return Message(*pickle.loads(bytearray(content.numpy())))
