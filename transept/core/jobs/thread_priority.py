"""How much of a processor a thread gets beside others that want it. Linux alone has priorities of threads."""

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
    """Raise a thread's niceness above that of the process's first one.

    thread: its native id. by: 10 leaves it a tenth of what another thread gets of a core that both want.
    """
    if sys.platform == "linux":
        with suppress(OSError):  # it has ended, or the system forbids it
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, os.getpid()) + by)


def set_lowest_priority(thread: int) -> None:
    """Leave a thread a seventieth, and slices so short that whoever wakes up beside it hardly waits.

    Linux before 6.12 knows slices of one length only. Threads that it starts from now on inherit both; there is no way
    back.
    """
    number = SCHED_SETATTR.get(platform.machine()) if sys.platform == "linux" else None
    if number is not None:
        attributes = ATTRIBUTES.pack(ATTRIBUTES.size, os.SCHED_OTHER, 0, LEAST_PRIORITY, 0, SHORT_SLICE, 0, 0)
        with suppress(OSError, AttributeError):
            if ctypes.CDLL(None).syscall(number, thread, attributes, 0) == 0:
                return
    raise_niceness(thread, LEAST_PRIORITY)
