"""How ranks that share memory wait for each other, see `core/parallel/shared_memory.py`."""

from __future__ import annotations

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_arrive = KernelFunction("transept_arrive", Pointer, Int, Int, Int, Int, Int)


def arrive(lines: int, rank: int, size: int, call: int, num_bytes: int, nanoseconds: int) -> int:
    """Announce a rank's tensor for a call, and wait up to some nanoseconds for those of the other ranks.

    lines: the address of a line of 64 bytes for each rank, in memory that all ranks map, zeros at first. num_bytes: of
    the tensor. Returns 1 if all are there, 0 if not yet, and -1 if one has another size. It may be called again. A rank
    that gets 1 sees what the others wrote before.
    """
    return _arrive(lines, rank, size, call, num_bytes, nanoseconds)
