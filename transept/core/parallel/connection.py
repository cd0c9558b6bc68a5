"""Messages between an executor and its workers: pickles over a socket, and large tensors beside them.

A message for several workers is packed once. On one machine its tensors are in anonymous memory, and each worker gets a
descriptor of it: the memory has no name that could be left behind, and is freed with the last process that holds it.
Between machines the tensors follow the pickle.
"""

from __future__ import annotations

import io
import logging
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from transept.core.request.sampling_params import SamplingParams
from transept.errors import ParameterError, RequestFailedError, message_of

INLINE_BYTES = 1 << 16  # of tensors that travel through the socket
HEAD = struct.Struct("<QQQ")  # bytes of the pickle, number of tensors, bytes of anonymous memory
KEPT = 256  # parameters with processors whose pickles are kept

logger = logging.getLogger(__name__)


@dataclass
class Parcel:
    """A message, packed. memory: descriptor of the memory with the tensors; None: they follow the pickle."""

    body: bytes
    buffers: list[memoryview]
    memory: int | None

    def __enter__(self) -> Parcel:
        """Return the parcel, whose memory this process gives up at the end of the `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give up this process's hold of the memory."""
        if self.memory is not None:
            os.close(self.memory)
            self.memory = None


def pack(message: Any, passes_memory: bool) -> Parcel:
    """A message for connections that pass descriptors of memory on, or that do not.

    Tensors travel through the socket if the system refuses memory or a descriptor. Raises whatever pickling raises;
    logits processors that do not pickle fail when they are called.
    """
    stream, pickled = io.BytesIO(), []
    _Pickler(stream, 5, buffer_callback=lambda buffer: pickled.append(buffer)).dump(message)
    buffers = [buffer.raw() for buffer in pickled]
    total = sum(buffer.nbytes for buffer in buffers)
    memory = None
    if passes_memory and total > INLINE_BYTES:
        try:
            memory = _shared(buffers, total)
        except OSError as error:
            logger.warning("no shared memory for a message of %d bytes: %s", total, error)
    return Parcel(stream.getvalue(), buffers, memory)


class Connection:
    """One end of it. One thread may send while another receives.

    passes_memory: whether both ends are on one machine, where descriptors of memory can be passed on.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.passes_memory = connected.family == socket.AF_UNIX

    def send(self, parcel: Parcel) -> None:
        """Raises OSError where the other end is gone."""
        total = sum(buffer.nbytes for buffer in parcel.buffers)
        sizes = struct.pack(f"<{len(parcel.buffers)}Q", *(buffer.nbytes for buffer in parcel.buffers))
        in_memory = parcel.memory is not None
        head = HEAD.pack(len(parcel.body), len(parcel.buffers), total if in_memory else 0)
        if parcel.memory is not None:
            socket.send_fds(self._socket, [head], [parcel.memory])
        else:
            self._socket.sendall(head)
        self._socket.sendall(b"".join((sizes, parcel.body, *(() if in_memory else parcel.buffers))))

    def receive(self) -> Any:
        """The next message. Raises EOFError where the other end is gone."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, HEAD.size, 1)
            if not head:
                raise EOFError
            head += self._read(HEAD.size - len(head))
            body_size, num_buffers, memory_size = HEAD.unpack(head)
            sizes = struct.unpack(f"<{num_buffers}Q", self._read(8 * num_buffers))
            body = self._read(body_size)
            if descriptors:
                memory = memoryview(mmap.mmap(descriptors[0], memory_size, flags=mmap.MAP_PRIVATE))
                os.close(descriptors[0])
            else:
                memory = memoryview(self._read(sum(sizes)))
        except OSError as error:
            raise EOFError from error
        return pickle.loads(body, buffers=_split(memory, sizes))

    def shut(self) -> None:
        """End the connection; threads that wait at either end get an EOFError."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is gone already
            return

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


def _split(memory: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(memory[start : start + size])
        start += size
    return pieces


def anonymous_memory(size: int) -> int:
    """A descriptor of so many bytes of memory, all zeros, without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("transept", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:  # which has no name either
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def _shared(buffers: Sequence[memoryview], total: int) -> int:
    """Anonymous memory that holds the buffers, one after the other."""
    descriptor = anonymous_memory(total)
    try:
        with mmap.mmap(descriptor, total) as memory:
            for buffer in buffers:
                memory.write(buffer)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class _Pickler(pickle.Pickler):
    """Leaves the numbers of tensors beside the pickle, and what may fail to load for when it is called."""

    def reducer_override(self, obj: Any) -> Any:
        """Called by pickle for all objects except Python's built-in ones."""
        if isinstance(obj, Tensor):
            flat = obj.detach().cpu().contiguous().flatten()
            numbers: Any = flat.view(torch.uint8).numpy()
            return _tensor, (pickle.PickleBuffer(numbers), flat.dtype, obj.shape)
        if type(obj) is SamplingParams and obj.logits_processors:
            return _with_processors, _reduced(obj)
        if isinstance(obj, type | FunctionType) and obj.__module__ == "__main__":
            raise pickle.PicklingError(
                f"{obj.__qualname__} is defined in the script itself, which workers cannot import: move it to a module"
            )
        return NotImplemented


def _tensor(numbers: Any, dtype: torch.dtype, shape: torch.Size) -> Tensor:
    return torch.frombuffer(numbers, dtype=dtype).view(shape) if len(numbers) else torch.empty(shape, dtype=dtype)


class _Unavailable:
    """Stands for logits processors that did not reach the worker."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __call__(self, logits: Tensor, rows: Any) -> None:
        raise ParameterError(
            f"with several processes logits_processors must pickle, and these do not: {self._why}. Classes "
            "and functions of a module that workers can import do; lambdas and what a function defines do not"
        )


_kept: dict[int, tuple[SamplingParams, tuple[SamplingParams, bytes, str]]] = {}  # by id
_loaded: dict[bytes, Any] = {}  # processors by their pickle, so that equal ones are one object


def _reduced(params: SamplingParams) -> tuple[SamplingParams, bytes, str]:
    """Return parameters without their processors, the pickle of those, and the reason if they do not pickle."""
    kept = _kept.get(id(params))
    if kept is not None and kept[0] is params:
        return kept[1]
    pickled, why = io.BytesIO(), ""
    try:
        _Pickler(pickled, 5).dump(params.logits_processors)
    except Exception as error:  # of a user's object
        why = message_of(error)
    if len(_kept) >= KEPT:
        _kept.clear()
    reduced = replace(params, logits_processors=()), b"" if why else pickled.getvalue(), why
    _kept[id(params)] = params, reduced
    return reduced


def _with_processors(params: SamplingParams, pickled: bytes, why: str) -> SamplingParams:
    if why:
        return replace(params, logits_processors=(_Unavailable(why),))
    if pickled not in _loaded:
        if len(_loaded) >= KEPT:
            _loaded.clear()
        try:
            _loaded[pickled] = pickle.loads(pickled)
        except Exception as error:  # its module cannot be imported here, say
            _loaded[pickled] = (_Unavailable(f"{type(error).__name__}: {message_of(error)}"),)
    return replace(params, logits_processors=_loaded[pickled])


def portable(error: Exception, what: str) -> Exception:
    """Return the error if it survives pickling, else a RequestFailedError with its type and message."""
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    except Exception:  # of a plugin's class
        logger.debug("an error does not pickle", exc_info=True)
    return RequestFailedError(f"{what}: {type(error).__name__}: {message_of(error)}")
