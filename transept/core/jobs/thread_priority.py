"""Lower the priority of threads, so that offloaded work yields the processor to the engine. Only on Linux."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from contextlib import suppress

SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # numbers of the system call, by machine
ATTRIBUTES = struct.Struct("<IIQiIQQQ")  # size, policy, flags, niceness, priority, runtime, deadline, period
LEAST_PRIORITY = 19  # niceness
SHORT_SLICE = 100_000  # nanoseconds, the least that Linux has


def raise_niceness(thread: int, by: int) -> None:
    """Raise a thread's niceness above the main thread's.

    thread: its native id. by: with 10, the thread gets a tenth of a normal thread's share of a contended core.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended, or the system forbids it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, os.getpid()) + by)


def set_lowest_priority(thread: int) -> None:
    """Set a thread's share of a contended core to a seventieth, and its time slice to the minimum.

    With short slices, a thread that wakes up on the same core hardly waits. Linux before 6.12 ignores the slice.
    Threads that this thread starts later inherit both settings. The change cannot be undone.
    """
    if sys.platform == "linux":
        number = SCHED_SETATTR.get(platform.machine())
        attributes = ATTRIBUTES.pack(ATTRIBUTES.size, os.SCHED_OTHER, 0, LEAST_PRIORITY, 0, SHORT_SLICE, 0, 0)
        if number is None or ctypes.CDLL(None).syscall(number, thread, attributes, 0):
            raise_niceness(thread, LEAST_PRIORITY)
