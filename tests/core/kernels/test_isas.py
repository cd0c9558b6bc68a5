"""What depends on the processor is in `kernels/cpu/isa/`, and each instruction set there is complete."""

import ctypes
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from transept.core.kernels.cpu.isas import ISAS
from transept.core.kernels.cpu.library import Int, Pointer

CPU = Path(__file__).parents[3] / "transept/core/kernels/cpu"  # an installed package has no sources
SOURCES = sorted([*CPU.rglob("*.h"), *CPU.rglob("*.cpp")])
# Intrinsics, and macros by which a source would ask for the processor that it is compiled for.
INTRINSIC = re.compile(
    r"\b_mm\d*_|\b__m(?:64|128|256|512)|\b_tile_|\b_cvtsh_|__builtin_(?:ia32|neon)|intrin\.h|arm_neon\.h|arm_sve\.h"
    r"|\bv[a-z]\w*_[fsu](?:8|16|32|64)\b|__(?:AVX|SSE|FMA|F16C|BMI|ARM|aarch64|NEON)"
)


def may_hold_intrinsics(source: Path) -> bool:
    """True for the headers of instruction sets and the files of AMX."""
    return source.parent.name == "isa" or source.name.startswith("amx")


def test_intrinsics_are_in_isa_and_in_the_files_of_amx() -> None:
    found = {
        f"{source.relative_to(CPU)}: {match}"
        for source in SOURCES
        if not may_hold_intrinsics(source)
        for match in INTRINSIC.findall(source.read_text(encoding="utf-8"))
    }
    assert found == set()
    assert all(INTRINSIC.search((CPU / "isa" / name).read_text(encoding="utf-8")) for name in ("avx2.h", "avx512.h"))
    assert INTRINSIC.search("vst1q_f32(to, vcvt_f32_f16(half))")


def primitives(header: str) -> set[str]:
    """Functions and constants that a header of an instruction set defines, with the types of their arguments."""
    text = (CPU / "isa" / header).read_text(encoding="utf-8")
    functions = re.findall(r"^INLINE \w+ (\w+)\(([^)]*)\)", text, re.MULTILINE)
    types = {f"{name}({', '.join(each.split()[0] for each in types.split(', '))})" for name, types in functions}
    return types | set(re.findall(r"(\w+) = [^;,]+[;,]", "".join(re.findall(r"^constexpr .*;", text, re.MULTILINE))))


def test_each_instruction_set_has_all_primitives() -> None:
    headers = {isa.header for isa in ISAS}
    assert headers == {file.name for file in (CPU / "isa").glob("*.h")} - {"vectors.h"}
    needed = primitives("generic.h") - {"floor_of(Floats)"}
    assert len(needed) > 20
    assert {(header, name) for header in headers for name in needed - primitives(header)} == set()


def test_a_further_header_needs_no_edit_elsewhere(tmp_path: Path) -> None:
    """Vectors of four numbers, as 64-bit Arm has them: each folder's kernels compile, and one that runs is right."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if shutil.which(compiler[0]) is None:
        pytest.skip("there is no compiler")
    sources = shutil.copytree(CPU, tmp_path / "cpu", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    generic = (sources / "isa" / "generic.h").read_text(encoding="utf-8")
    assert "LANES = 8;" in generic
    (sources / "isa" / "four.h").write_text(generic.replace("LANES = 8;", "LANES = 4;"), encoding="utf-8")
    command = [*compiler, "-std=c++17", "-w", '-DISA_HEADER="isa/four.h"']
    checked = ("attention/int8_encoder_attention.cpp", "fused/decoder_layer.cpp", "gemm/float_gemm.cpp")
    subprocess.run([*command, "-fsyntax-only", *(str(sources / name) for name in checked)], check=True)
    made = tmp_path / "four.so"
    built = ("library.cpp", "elementwise/argmax.cpp")
    subprocess.run(
        [*command, "-O1", "-fPIC", "-shared", *(str(sources / name) for name in built), "-o", str(made)], check=True
    )
    logits, tokens, logprobs = torch.randn(3, 4100), torch.empty(3, 1, dtype=torch.int64), torch.empty(3, 1)
    argmax = ctypes.CDLL(str(made)).transept_argmax
    argmax.argtypes = [Pointer, Int, Int, Pointer, Pointer]
    argmax(logits.data_ptr(), *logits.shape, tokens.data_ptr(), logprobs.data_ptr())
    best = logits.log_softmax(-1).max(-1, keepdim=True)
    assert torch.equal(tokens, best.indices)
    torch.testing.assert_close(logprobs, best.values)
