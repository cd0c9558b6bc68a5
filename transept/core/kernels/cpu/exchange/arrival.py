"""How ranks that share memory wait for each other, see `core/parallel/shared_memory.py`."""

from __future__ import annotations

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_arrive = KernelFunction("transept_arrive", Pointer, Int, Int, Int, Int, Int)


def arrive(lines: int, rank: int, size: int, call: int, num_bytes: int, nanoseconds: int) -> int:
    """Announce a rank's tensor for a call, and wait for the other ranks' tensors, at most `nanoseconds`.

    lines: address of 64 bytes for each rank, in memory that all ranks map, zeros at first. call: number of the call,
    from 1. num_bytes: size of the tensor.
    Returns 1 if all tensors are there, 0 if one is missing, and -1 if one has another size. After 0 the rank calls it
    again. After 1 the rank sees all tensors of this call.
    """
    return _arrive(lines, rank, size, call, num_bytes, nanoseconds)
