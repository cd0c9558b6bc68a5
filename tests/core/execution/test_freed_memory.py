"""Freed memory goes back to the system, though what was allocated after it is still there."""

import ctypes
import subprocess
import sys

import pytest

MANY = """
import ctypes, os
from transept.core.execution.freed_memory import give_back_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

pieces = [libc.malloc(100_000) for _ in range(400)]  # under the size that glibc maps by itself
for piece in pieces:
    ctypes.memset(piece, 1, 100_000)
last = libc.malloc(100_000)  # keeps the heap's end where it is
for piece in pieces:
    libc.free(piece)
before = resident()
give_back_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc"
)
def test_what_lies_between_other_memory_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", MANY], check=True, capture_output=True, text=True)
    assert int(done.stdout) > 30 << 20  # of 40 MB
