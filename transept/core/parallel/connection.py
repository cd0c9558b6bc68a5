"""Connection: messages between the engine's process and its workers, as pickles over a socket.

`multi_process` and `worker_main` have the two ends. A message for several workers is packed once. On one machine, large
tensors are in anonymous memory, and each worker receives a file descriptor: the memory has no name, and is freed when
the last process closes it. Between machines, the tensors follow the pickle.
"""

from __future__ import annotations

import io
import itertools
import logging
import mmap
import os
import pickle
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transept.errors import RequestFailedError, message_of

INLINE_BYTES = 1 << 16  # of a message's tensors, up to which they travel through the socket
HEAD = struct.Struct("<QQQ")  # bytes of sizes and pickle, number of tensors, bytes of anonymous memory

logger = logging.getLogger(__name__)


class Parcel(NamedTuple):
    """A packed message. data: bytes for the socket. memory: descriptor of memory with the tensors; None: in `data`."""

    data: bytes
    memory: int | None


class Connection:
    """One end of a connection. One thread may send while another receives."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._passes_memory = connected.family == socket.AF_UNIX  # both ends are on one machine

    @contextmanager
    def pack(self, message: Any) -> Iterator[Parcel]:
        """Pack a message for this connection and others of the same kind. Raises what pickling raises.

        Tensors are sent through the socket if they are small, or if the system refuses memory or a descriptor. This
        process's descriptor is closed at the end of the context.
        """
        buffers: list[memoryview] = []
        pickled = dumps(message, lambda buffer: buffers.append(buffer.raw()))
        sizes = [buffer.nbytes for buffer in buffers]
        memory, total = None, sum(sizes)
        if self._passes_memory and total > INLINE_BYTES:
            try:
                memory = _shared(buffers, total)
            except OSError as error:
                logger.warning("no shared memory for a message of %d bytes: %s", total, error)
        head = HEAD.pack(8 * len(sizes) + len(pickled), len(sizes), total if memory is not None else 0)
        inline = buffers if memory is None else ()
        try:
            yield Parcel(b"".join((head, struct.pack(f"<{len(sizes)}Q", *sizes), pickled, *inline)), memory)
        finally:
            if memory is not None:
                os.close(memory)

    def send(self, parcel: Parcel) -> None:
        """Send a packed message. Raises OSError if the other end is gone."""
        sent = 0
        if parcel.memory is not None:
            sent = socket.send_fds(self._socket, [parcel.data], [parcel.memory])
        self._socket.sendall(memoryview(parcel.data)[sent:])

    def receive(self) -> Any:
        """Wait for the next message. Raises EOFError if the other end is gone."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, HEAD.size, 1)
            if not head:
                raise EOFError
            body_size, num_buffers, memory_size = HEAD.unpack(head + self._read(HEAD.size - len(head)))
            body = memoryview(self._read(body_size))
            sizes = struct.unpack_from(f"<{num_buffers}Q", body)
            if descriptors:
                tensors = memoryview(mmap.mmap(descriptors[0], memory_size, flags=mmap.MAP_PRIVATE))
                os.close(descriptors[0])
            else:
                tensors = memoryview(self._read(sum(sizes)))
        except OSError as error:
            raise EOFError from error
        ends = itertools.accumulate(sizes)
        buffers = [tensors[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        return pickle.loads(body[8 * num_buffers :], buffers=buffers)

    def shut(self) -> None:
        """End the connection; threads that wait at either end get an EOFError."""
        with suppress(OSError):  # it has gone
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. No thread may use it any more."""
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return data


def anonymous_memory(size: int) -> int:
    """Return a descriptor of `size` bytes of unnamed memory, all zeros."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("transept", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:  # which has no name either
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _shared(buffers: Sequence[memoryview], total: int) -> int:
    """Return a descriptor of anonymous memory that holds the buffers, one after the other."""
    descriptor = anonymous_memory(total)
    try:
        with mmap.mmap(descriptor, total) as memory:
            for buffer in buffers:
                memory.write(buffer)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def dumps(message: Any, take: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle a message. take: receives the buffers of its tensors; without it they are in the pickle."""
    stream = io.BytesIO()
    _Pickler(stream, 5, buffer_callback=take).dump(message)
    return stream.getvalue()


class _Pickler(pickle.Pickler):
    """Keeps tensors' buffers out of the pickle, and refuses classes that a worker cannot import."""

    def reducer_override(self, obj: Any) -> Any:
        """Called by pickle for all objects except Python's built-in ones."""
        if isinstance(obj, Tensor):
            flat = obj.detach().cpu().contiguous().flatten()
            numbers: Any = flat.view(torch.uint8).numpy()
            return _tensor, (pickle.PickleBuffer(numbers), flat.dtype, obj.shape)
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{obj.__qualname__} is defined in the script itself, which workers cannot import: move it to a module"
            )
        return NotImplemented


def _tensor(numbers: Any, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.frombuffer(numbers, dtype=dtype).view(shape) if len(numbers) else torch.empty(shape, dtype=dtype)


def picklable(error: Exception, what: str) -> Exception:
    """Return the error if it survives pickling, else a RequestFailedError with its type and message."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # of a plugin's class
        logger.debug("an error does not pickle", exc_info=True)
    return RequestFailedError(f"{what}: {type(error).__name__}: {message_of(error)}")
