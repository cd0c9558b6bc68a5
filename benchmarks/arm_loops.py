"""Estimates of the kernels' hot loops on 64-bit Arm, from the compiled code: no Arm processor is needed.

    CXX=aarch64-linux-gnu-g++ python -m benchmarks.arm_loops
    CXX="python -m ziglang c++ -target aarch64-linux-gnu" python -m benchmarks.arm_loops

It compiles the microkernels for each instruction set and prints, for each loop, the part of the processor's peak that
llvm-mca predicts with all numbers in the first cache, and how many instructions of the loop use the stack. $LLVM_MCA
names the program, of LLVM 17 or later. LLVM's model of Apple's M1 has three pipes for vectors; the processor has four.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import transept.core.kernels.cpu as cpu
from transept.core.kernels.cpu.isas import Isa, compiled_on

SOURCES = Path(cpu.__file__).parent
PIPES = {"neoverse-n1": 2, "neoverse-v1": 4, "neoverse-v2": 4, "apple-m1": 3}  # that multiply vectors
ITERATIONS = 200
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-w"]
MULTIPLIES = re.compile(r"\s(?:fmla|smull2?|smlal2?|sdot|bfdot|smmla|bfmmla)\s")

LOOPS = """
#include "gemm/float_tile.h"
#include "gemm/weight_tile.h"
using namespace transept;
#define LOOP(NAME, ROW, NUMBER) \\
  extern "C" void NAME(const ROW* a, int64_t stride, const NUMBER* b, int64_t depth, float* out, int64_t to)
#define STORE \\
  [&](int row, int vector, Ints sums) INLINE_LAMBDA { store(out + row * to + vector * LANES, to_floats(sums)); }
LOOP(float32, float, float) { float_tile<TILE_ROWS, 1, false>(a, stride, b, 0, depth, out, to, true); }
LOOP(float32_few_rows, float, float) { float_tile<TILE_ROWS_OF_TWO, 2, false>(a, stride, b, to, depth, out, to, true); }
LOOP(float32_values, float, float) { float_tile<TILE_ROWS, 1, true>(a, stride, b, 0, depth, out, to, true); }
LOOP(float16_weights, float, Half) { float_tile<TILE_ROWS, 1, false>(a, stride, b, 0, depth, out, to, true); }
LOOP(int16_by_int8, int16_t, int8_t) { integer_tile<TILE_ROWS, 1>(a, stride, depth, b, out, out, out, to); }
LOOP(bfloat16, BFloat16, BFloat16) { bfloat16_tile<TILE_ROWS, 1>(a, stride, depth, b, out, to, true); }
#if defined(HAS_DOT_QUADS)
LOOP(int8, int8_t, uint8_t) { quad_tile<TILE_ROWS, 1>(a, stride, depth, b, STORE); }
LOOP(int8_values, int8_t, uint8_t) { quad_tile<TILE_ROWS, 1, true>(a, stride, depth, b, STORE); }
#endif
#if defined(HAS_MATRIX_PRODUCTS)
LOOP(int8_weights, int8_t, uint8_t) {
  byte_tile<TILE_ROWS, 1>(TileRows<int8_t>{const_cast<int8_t*>(a), stride, depth}, 0, b, STORE);
}
LOOP(bfloat16_weights, BFloat16, BFloat16) {
  bfloat16_weight_tile<TILE_ROWS, 1>(TileRows<BFloat16>{const_cast<BFloat16*>(a), stride, depth}, 0, b, out, to);
}
#endif
"""


def assembly(isa: Isa, folder: Path) -> str:
    """Compile the loops for an instruction set."""
    source, made = folder / "loops.cpp", folder / "loops.s"
    source.write_text(LOOPS)
    compiler, flags = shlex.split(os.environ.get("CXX", "aarch64-linux-gnu-g++")), list(isa.flags)
    if "ziglang" in compiler:
        flags = [flag.replace("-march=armv8.2-a", "-mcpu=generic+v8_2a") for flag in flags]
    command = [*compiler, *FLAGS, *flags, f"-I{SOURCES}", f'-DISA_HEADER="isa/{isa.header}"', "-S", str(source)]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made.read_text()


def hot_loops(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the instructions of each function's loop that multiplies most."""
    for name, body in re.findall(r"^(\w+):.*?\n(.*?)\.size\t\1", text, re.DOTALL | re.MULTILINE):
        lines = [line.split("//")[0].rstrip() for line in body.splitlines()]
        labels = {line.partition(":")[0]: i for i, line in enumerate(lines) if line.startswith(".L")}
        loops = []
        for i, line in enumerate(lines):
            branch = re.match(r"\s+(?:b\.?\w*|cbn?z\s+\w+,|tbn?z.*,)\s+(\.L\w+)", line)
            if branch and labels.get(branch[1], i) < i:
                loops.append([each for each in lines[labels[branch[1]] : i + 1] if re.match(r"\s+[a-z]", each)])
        loop = max(loops, key=multiplications, default=[])
        if multiplications(loop):
            yield name, loop


def multiplications(loop: list[str]) -> int:
    """Return how many instructions multiply."""
    return sum(bool(MULTIPLIES.search(line)) for line in loop)


def cycles(loop: list[str], processor: str) -> float:
    """Return the cycles of an iteration that llvm-mca predicts."""
    command = [os.environ.get("LLVM_MCA", "llvm-mca"), "-mtriple=aarch64-linux-gnu", f"-mcpu={processor}"]
    command += [
        "-mattr=+dotprod,+i8mm,+bf16",
        f"-iterations={ITERATIONS}",
        "-instruction-info=0",
        "-resource-pressure=0",
    ]
    report = subprocess.run(command, input="\n".join(loop), capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"Total Cycles:\s+(\d+)", report)[0]) / ITERATIONS


def main() -> None:
    print("| level | loop | on the stack |", " | ".join(PIPES), "|")
    print("| --- | --- | --- |", " --- |" * len(PIPES))
    with tempfile.TemporaryDirectory() as folder:
        for isa in compiled_on("aarch64"):
            if isa.header == "generic.h":
                continue
            for name, loop in hot_loops(assembly(isa, Path(folder))):
                count, stack = multiplications(loop), sum("[sp" in line for line in loop)
                parts = (f"{count / pipes / cycles(loop, each):.2f}" for each, pipes in PIPES.items())
                print(f"| {isa.name} | {name} | {stack} |", " | ".join(parts), "|")


if __name__ == "__main__":
    main()
