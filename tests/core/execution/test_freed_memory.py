"""Freed memory goes back to the system, though what was allocated after it is still there."""

import ctypes
import subprocess
import sys

import pytest

SETUP = """
import ctypes, os
from transept.core.execution.freed_memory import give_back_freed_memory, large_blocks_given_back

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
give_back_freed_memory()
print(before - resident())
"""
LARGE = """
freed([filled(30 << 20)])  # from then on glibc keeps blocks as large as this one
blocks = [filled(4 << 20) for _ in range(10)]
before = resident()
freed(blocks)
kept = before - resident()
with large_blocks_given_back():
    blocks = [filled(4 << 20) for _ in range(20)]  # ten of them in the memory of those before
    before = resident()
    freed(blocks)
    print(before - resident() - kept)
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
def test_large_blocks_are_given_back_as_they_are_freed() -> None:
    assert printed(LARGE) > 30 << 20
