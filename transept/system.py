"""The differences between Linux, macOS and Windows that several modules need: memory, cores, open files and locks.

docs/notes/platforms.md lists every line of the package that depends on the system. mypy checks the package for all
three of them (`make check-platforms`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from contextlib import suppress
from typing import IO

OPEN_FILES = 1 << 16


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = [
        *[("length", ctypes.c_uint32), ("load", ctypes.c_uint32), ("physical", ctypes.c_uint64)],
        ("others", ctypes.c_uint64 * 6),
    ]


def memory_bytes() -> int:
    """Return the size of this machine's memory."""
    if sys.platform == "win32":
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.physical)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def usable_cores() -> int:
    """Return the number of cores that this process may use; on a Mac only the fast ones count."""
    if sys.platform != "linux":
        return performance_cores() or os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def performance_cores() -> int | None:
    """Return the number of fast cores of a Mac; None elsewhere, and where all cores are the same."""
    return sysctl("hw.perflevel0.physicalcpu") if sys.platform == "darwin" else None


def sysctl(name: str) -> int | None:
    """Return a number by its name in macOS's sysctl; None if it has no such value."""
    value, size = ctypes.c_int32(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int32))
    refused = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return None if refused else value.value


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as allowed, at most to OPEN_FILES. Windows limits no sockets."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with suppress(ValueError):  # macOS refuses more than OPEN_MAX in some versions
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def lock(file: int | IO[str], *, wait: bool) -> None:
    """Lock a file or folder against other processes until it is closed. Does nothing on Windows.

    Raises BlockingIOError if another process has the lock, unless this call waits for it.
    """
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def drop_pages(memory: mmap.mmap) -> None:
    """Release the pages of a mapped file that were read. Windows does so itself when memory is short."""
    if sys.platform != "win32":
        memory.madvise(mmap.MADV_DONTNEED)
