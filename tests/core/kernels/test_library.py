"""Kernels and PyTorch share their threads, which the first engine starts; levels; libraries of other sources."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

import transept.core.kernels.cpu as cpu
from transept.core.kernels.cpu.library import LEVEL_VARIABLE, level, levels

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
IMPORTS = """
import os, sys, threading, traceback
import torch
import transept.core.kernels.cpu.fused.decoder_layer, transept.core.kernels.cpu.speech.alignment, transept.core.engine
from transept import Engine, ForkedProcessError, SamplingParams

def run(engine=None):
    engine = engine or Engine({checkpoint!r}, device="cpu")
    outputs = engine.generate(["grapheme", "ox"], SamplingParams(temperature=0.0, max_tokens=9), progress=False)
    return [output.outputs[0].text for output in outputs]

def num_threads():
    return len(os.listdir("/proc/self/task"))

def in_child(function):
    child = os.fork()
    if not child:
        try:
            print(function(), flush=True)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status

def error_of(function):
    try:
        return function()
    except ForkedProcessError as error:
        return f"ForkedProcessError: {{error}}"
"""
NO_THREADS = """
print(num_threads())
"""
ONE_POOL = """
from transept.core.kernels.cpu.elementwise.rows import activate
from transept.core.kernels.cpu.library import share_num_threads
torch.set_num_threads(3)
torch.randn(1 << 22).exp_()
before = num_threads()
share_num_threads()
activate(torch.randn(1000, 4096), None, "gelu")
print(before, num_threads())
"""
BEFORE_ANYTHING = """
in_child(run)
print(run())
"""
AFTER_OPERATORS = """
torch.set_num_threads(2)
torch.randn(1 << 22).exp_()
torch.randn(900, 900) @ torch.randn(900, 900)
in_child(run)
assert torch.get_num_threads() == 2
torch.randn(1 << 22).exp_()
print(run())
"""
AFTER_A_STEP = """
engine = Engine({checkpoint!r}, device="cpu")
in_child(lambda: error_of(lambda: run(engine)))  # its threads are there, though it has not run
print(run(engine))
in_child(lambda: error_of(lambda: run(engine)))
in_child(lambda: error_of(run))
print(run(engine))
"""
TWO_ENGINES = """
from concurrent.futures import ThreadPoolExecutor
engines = [Engine({checkpoint!r}, device="cpu") for _ in range(2)]
with ThreadPoolExecutor(2) as pool:
    one, other = pool.map(lambda engine: [run(engine) for _ in range(20)], engines)
assert one == other
print(one[0])
"""
ANY_NUMBER_OF_THREADS = """
from transept.core.kernels.cpu.gemm.panels import pack_floats
from transept.core.kernels.cpu.gemm.product import product
from transept.core.kernels.cpu.library import share_num_threads
for outputs, rows in ((1, 1), (1000, 1), (9000, 3), (200, 1000)):
    x, weight = torch.randn(rows, 40), pack_floats(torch.randn(outputs, 40))
    expected = None
    for threads in (1, 2, 3, 7, 64, 65, 100):
        torch.set_num_threads(threads)
        share_num_threads()
        products = product(x, weight, None)
        expected = products if expected is None else expected
        assert torch.equal(products, expected), (outputs, rows, threads)
print("equal")
"""
OWN_POOL = """
import transept.core.kernels.cpu.library as library
library.openmp_library = lambda: None  # as where PyTorch has another OpenMP
"""


def printed(program: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", (IMPORTS + program).format(checkpoint=str(CHECKPOINT))],
        capture_output=True,
        text=True,
        timeout=PATIENCE,  # what waits for threads that are not there waits for ever
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def own_level() -> tuple[str, str]:
    """The level of this processor, and what the program writes at it."""
    name, text = printed("print(transept.core.kernels.cpu.library.level()); print(run())")
    return name, text


linux = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")


@linux
def test_importing_kernels_starts_no_threads() -> None:
    assert printed(NO_THREADS, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1") == ["1"]


@linux
def test_kernels_run_on_pytorch_s_own_threads() -> None:
    before, after = map(int, printed(ONE_POOL)[0].split())
    assert before == after >= 3


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pool", ["", OWN_POOL], ids=["OpenMP", "a pool of ours"])
def test_products_are_the_same_by_any_number_of_threads(pool: str) -> None:
    assert printed(pool + ANY_NUMBER_OF_THREADS) == ["equal"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pool", ["", OWN_POOL], ids=["OpenMP", "a pool of ours"])
def test_engines_in_two_threads_disturb_each_other_in_nothing(pool: str, own_level: tuple[str, str]) -> None:
    assert printed(pool + TWO_ENGINES) == [own_level[1]]


LOWER = levels()[: levels().index(level())]  # than this process's

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


@pytest.mark.sampled(2)
@forks
@pytest.mark.parametrize("program", [BEFORE_ANYTHING, AFTER_OPERATORS], ids=["before anything", "after PyTorch"])
def test_a_process_forked_before_the_first_engine_runs_one(program: str) -> None:
    child, parent = printed(program)
    assert child == parent
    assert child.startswith("['")


@forks
def test_a_process_forked_after_a_step_is_told_to_be_spawned() -> None:
    lines = printed(AFTER_A_STEP)
    assert lines[1] == lines[4]
    for line in (lines[0], lines[2], lines[3]):
        assert line.startswith("ForkedProcessError: ")
        assert 'get_context("spawn")' in line


@pytest.mark.sampled(8)
@pytest.mark.parametrize("lower", LOWER)
def test_a_lower_level_gives_the_same_text(lower: str, own_level: tuple[str, str]) -> None:
    program = "print(transept.core.kernels.cpu.library.level()); print(run())"
    assert own_level[0] == level()
    assert printed(program, **{LEVEL_VARIABLE: lower}) == [lower, own_level[1]]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("lower", LOWER)
def test_every_level_passes_the_kernels_tests(lower: str) -> None:
    modules = ("int8_gemm", "bfloat16_gemm", "encoder_attention")
    if lower in ("portable", "avx2", "avx_vnni"):  # from AVX-512 on only the products of pairs differ
        modules += ("float_gemm", "paged_attention", "rows", "argmax")
    tests = [str(Path(__file__).parent / f"test_{module}.py") for module in modules]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", *tests]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {LEVEL_VARIABLE: lower})
    assert done.returncode == 0, done.stdout


AVX2 = {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
AVX_VNNI = AVX2 | {"avx_vnni"}
VNNI = AVX512 | {"avx512_vnni"}
BF16 = VNNI | {"avx512_bf16"}
AMX = BF16 | {"amx_tile", "amx_int8"}
FLAGS = {"avx2": AVX2, "avx_vnni": AVX_VNNI, "avx512": AVX512, "avx512_vnni": VNNI, "avx512_bf16": BF16, "amx": AMX}


@pytest.mark.skipif(
    platform.machine() != "x86_64" or LEVEL_VARIABLE in os.environ, reason="not the processor's own level"
)
def test_the_levels_are_those_that_the_system_lists() -> None:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = set(next(line for line in lines if line.startswith("flags")).partition(":")[2].split())
    assert levels() == ["portable", *(name for name in FLAGS if flags >= FLAGS[name])]
    assert level() == levels()[-1]


@pytest.mark.skipif("avx512" not in levels() or "avx_vnni" in levels(), reason="a processor with AVX-512 alone")
def test_a_level_beside_the_processor_s_is_the_next_lower_one() -> None:
    assert printed("print(transept.core.kernels.cpu.library.level())", **{LEVEL_VARIABLE: "avx_vnni"}) == ["avx2"]


LOADED = """
from transept.core.kernels import dispatch
from transept.core.kernels.cpu.gemm import panels

def loaded():
    with open("/proc/self/maps") as mapped:
        return sorted({{line.split("/")[-1].strip() for line in mapped if "/kernels_" in line}})

print(loaded())
panels.pack_floats(torch.ones(3, 4))
print(loaded())
"""


@linux
def test_importing_kernels_loads_none_of_their_libraries() -> None:
    assert printed(LOADED) == ["[]", str(sorted({"kernels_portable.so", f"kernels_{level()}.so"}))]


PERMITTED = """
import ctypes
from transept.core.kernels import dispatch
from transept.core.kernels.cpu import library

def has_permission():
    asked, states = 0x1022, ctypes.c_uint64()  # ARCH_GET_XCOMP_PERM
    assert ctypes.CDLL(None).syscall(158, asked, ctypes.byref(states)) == 0
    return bool(states.value >> 18 & 1)

library.levels()
dispatch.PRODUCT.find(device="cuda", dtype=torch.bfloat16, weights=torch.int8)
print(has_permission())
dispatch.PRODUCT.find(weights=torch.float16, rows=300, inputs=64)
print(has_permission())
"""


@linux
@pytest.mark.skipif("amx" not in levels(), reason="a processor without AMX")
@pytest.mark.parametrize(("highest", "asked"), [("amx", "True"), ("avx512_bf16", "False")])
def test_tiles_are_asked_for_when_a_kernel_that_may_use_them_is_chosen(highest: str, asked: str) -> None:
    assert printed(PERMITTED, **{LEVEL_VARIABLE: highest}) == ["False", asked]


REFUSED = """
from transept.core.kernels.cpu import library
library.permits = lambda isa, portable: isa.permission is None  # as the system may
print(library.level())
"""


@pytest.mark.skipif(level() != "amx", reason="a processor without AMX")
def test_a_level_that_the_system_does_not_permit_is_passed_over() -> None:
    assert printed(REFUSED) == ["avx512_bf16"]


def test_no_level_is_the_processor_s() -> None:
    assert printed("print(transept.core.kernels.cpu.library.level())", **{LEVEL_VARIABLE: ""}) == [levels()[-1]]


def test_a_level_that_is_none_is_refused() -> None:
    program = "from transept.core.kernels.cpu.library import level; level()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {LEVEL_VARIABLE: "sse"}
    )
    assert "TRANSEPT_CPU_LEVEL is 'sse', and not one of portable, avx2" in done.stderr


CHANGED = """
from transept.core.kernels.cpu.library import library
library()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", ["a source", "a missing library"])
def test_libraries_that_are_not_of_the_sources_beside_them_are_refused(change: str, tmp_path: Path) -> None:
    package = Path(cpu.__file__).parents[3]
    if not list(Path(cpu.__file__).parent.glob("*.cpp")):
        pytest.skip("an installed package has no sources")
    copied = shutil.copytree(package, tmp_path / "transept", ignore=shutil.ignore_patterns("__pycache__"))
    kernels = copied / "core" / "kernels" / "cpu"
    if change == "a source":
        (kernels / "isa.h").write_text((kernels / "isa.h").read_text() + "// another line\n")
    else:
        shutil.rmtree(kernels / "lib")
    done = subprocess.run(
        [sys.executable, "-c", CHANGED],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert "KernelsNotBuiltError: the CPU kernels" in done.stderr
    assert "pip install --editable ." in done.stderr
