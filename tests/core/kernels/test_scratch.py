"""Kernels' scratch memory: what happens when the system refuses it, and when it is freed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
linux = pytest.mark.skipif(sys.platform != "linux", reason="no process's address space is limited here")

# Sizes: a refused buffer is larger than 64 MB, which the C library may have reserved for another thread.
LIMITED = """
import resource
from contextlib import contextmanager
import torch
import transept.core.kernels.cpu.library as library
from transept import CapacityError
from transept.core.kernels.cpu.attention.paged_attention import NO_BIAS, PagedWork, attend
from transept.core.kernels.cpu.gemm.panels import pack_bfloat16
from transept.core.kernels.cpu.gemm.product import product
{pool}
torch.manual_seed(0)
torch.set_num_threads(2)
library.share_num_threads()

@contextmanager
def limited(more):
    with open("/proc/self/statm") as numbers:
        used = int(numbers.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)

# The calling thread rounds all rows to bfloat16: 40,000 x 1024 x 2 bytes.
x, weight = torch.randn(40000, 1024), pack_bfloat16(torch.randn(1, 1024))
def multiply():
    return product(x, weight, None)
products = torch.cat([product(rows, weight, None) for rows in x.split(400)])

# Each thread keeps the weights of its piece of 128 keys: 160,000 heads x 128 x 4 bytes.
query, cache = torch.randn(1, 160000, 1), torch.randn(2, 256, 1, 1)
work = PagedWork(256, [[0]], [256], [(0, 1)])
def attention(query=query):
    out = torch.empty(query.shape)
    attend(query.contiguous(), cache, work, 1.0, NO_BIAS, out)
    return out
attended = torch.cat([attention(heads) for heads in query.split(1000, dim=1)], dim=1)

for kernel, expected in ((multiply, products), (attention, attended)):
    with limited(32 << 20):
        try:
            kernel()
        except CapacityError as error:
            print(error)
    print(torch.equal(kernel(), expected))
"""
OWN_POOL = "library.openmp_library = lambda: None  # as where PyTorch has another OpenMP"


def printed(program: str) -> list[str]:
    environment = os.environ | {"TRANSEPT_TEST_CHECKPOINT": str(CHECKPOINT)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.sampled(2)
@linux
@pytest.mark.parametrize("pool", ["", OWN_POOL], ids=["OpenMP", "a pool of ours"])
def test_a_kernel_without_memory_raises_and_runs_once_there_is_some(pool: str) -> None:
    caller, equal, thread, equal_again = printed(LIMITED.format(pool=pool))
    assert caller.startswith("the system refused a CPU kernel 8")
    assert thread.startswith("the system refused a CPU kernel 81.9 MB of scratch memory. Give the process more memory")
    assert (equal, equal_again) == ("True", "True")


CLOSED = """
import os
from transept import Engine, SamplingParams
from transept.core.kernels.cpu.library import scratch_bytes

def opened():
    return Engine(os.environ["TRANSEPT_TEST_CHECKPOINT"], device="cpu")

def run(engine):
    (output,) = engine.generate(["grapheme"], SamplingParams(temperature=0.0, max_tokens=9), progress=False)
    return output.outputs[0].text

one, other = opened(), opened()
text = run(one)
kept = scratch_bytes()
one.close()
print(kept > 0, scratch_bytes() == kept)  # the other engine will need it
assert run(other) == text
other.close()
print(scratch_bytes())
assert run(opened()) == text
print(scratch_bytes() == kept)
"""


def test_the_last_engine_that_is_closed_frees_the_kernels_scratch_memory() -> None:
    assert printed(CLOSED) == ["True True", "0", "True"]


FREED_MEANWHILE = """
from concurrent.futures import ThreadPoolExecutor
import torch
from transept.core.kernels.cpu.gemm.panels import pack_int8
from transept.core.kernels.cpu.gemm.product import product
from transept.core.kernels.cpu.library import free_scratch, scratch_bytes

x, weight = torch.randn(300, 256), pack_int8(torch.randn(64, 256))
expected = product(x, weight, None)
with ThreadPoolExecutor(1) as pool:
    running = pool.submit(lambda: [torch.equal(product(x, weight, None), expected) for _ in range(200)])
    while not running.done():
        free_scratch()
print(all(running.result()))
free_scratch()
print(scratch_bytes())
"""


def test_scratch_memory_that_is_in_use_is_not_freed() -> None:
    assert printed(FREED_MEANWHILE) == ["True", "0"]
