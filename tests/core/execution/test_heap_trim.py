"""Freed memory goes back to the system, though what was allocated after it is still there."""

import ctypes
import subprocess
import sys

import pytest

SETUP = """
import ctypes, os
from transept.core.execution.heap_trim import trimmed_heap, trim_heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def filled(size):
    block = libc.malloc(size)
    ctypes.memset(block, 1, size)
    return block

def freed(blocks):
    last = libc.malloc(100_000)  # keeps the heap's end where it is
    for block in blocks:
        libc.free(block)
"""
MANY = """
freed([filled(100_000) for _ in range(400)])  # under the size that glibc maps by itself
before = resident()
trim_heap()
print(before - resident())
"""
AFTER_A_LOAD = """
with trimmed_heap():
    pass
block = filled(20 << 20)  # which glibc maps by itself, as long as nobody has set its threshold
heap = [line.split()[0].split("-") for line in open("/proc/self/maps") if line.rstrip().endswith("[heap]")]
print(int(any(int(begin, 16) <= block < int(end, 16) for begin, end in heap)))
"""
needs_glibc = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc"
)


def printed(script: str) -> int:
    done = subprocess.run([sys.executable, "-c", SETUP + script], check=True, capture_output=True, text=True)
    return int(done.stdout)


@needs_glibc
def test_what_lies_between_other_memory_is_given_back() -> None:
    assert printed(MANY) > 30 << 20  # of 40 MB


@needs_glibc
def test_the_processs_own_malloc_options_stay() -> None:
    assert printed(AFTER_A_LOAD) == 0
