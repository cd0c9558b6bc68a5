"""LocalChannels: what ranks of one machine reach each other by. Made by `local_processes`, handed to the processes."""

from __future__ import annotations

import os
import socket

from transept.core.parallel import shared_memory
from transept.core.parallel.connection import anonymous_memory


class LocalChannels:
    """Memory that the ranks of a stage map, and pairs of sockets between stages; neither has a name.

    size: ranks of a stage. count: stages. on_cpu: whether ranks exchange tensors of the host. Where there is no memory,
    or are no sockets, ranks use torch.distributed.
    """

    def __init__(self, size: int, count: int, on_cpu: bool) -> None:
        self._size = size
        self._memory: list[int] = []  # of each stage
        self._sockets: dict[int, dict[int, socket.socket]] = {}  # of each rank, by the stage at the other end
        if on_cpu and shared_memory.serves():
            self._memory = [anonymous_memory(shared_memory.memory_bytes(size)) for _ in range(count)]
        if shared_memory.is_local():
            for rank in range(size):
                for stage in range(count - 1):
                    for other in {stage + 1, count - 1}:
                        ends = socket.socketpair()
                        self._sockets.setdefault(stage * size + rank, {})[other] = ends[0]
                        self._sockets.setdefault(other * size + rank, {})[stage] = ends[1]

    def of(self, rank: int) -> tuple[int | None, dict[int, int]]:
        """Descriptors of a rank's memory, and of its sockets by the stage at the other end."""
        links = {stage: end.fileno() for stage, end in self._sockets.get(rank, {}).items()}
        return (self._memory[rank // self._size] if self._memory else None), links

    def close(self) -> None:
        """Give up this process's hold of all, once the ranks' processes have theirs."""
        for memory in self._memory:
            os.close(memory)
        for ends in self._sockets.values():
            for end in ends.values():
                end.close()
