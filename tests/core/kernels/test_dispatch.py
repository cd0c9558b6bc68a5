"""The table of kernels: whatever is compiled is reached from it, and what it chooses."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import transept.core.kernels as kernels
from transept.core.kernels.cpu.gemm.product import product, product_by_amx
from transept.core.kernels.cpu.isas import ISAS, TESTED_AS
from transept.core.kernels.cpu.library import capabilities, level, levels, library
from transept.core.kernels.dispatch import HUNDREDS, OPERATIONS, PACK, PRODUCT, Kernel, Operation, WeightPanels

FOLDER = Path(kernels.__file__).parent
SOURCES = Path(__file__).parents[3] / "transept/core/kernels/cpu"  # an installed package has none
LOADER = ("library.cpp", "cpu.cpp")  # what they export is of the library itself
IN_TABLE = {name for operation in OPERATIONS for kernel in operation.kernels for name in kernel.runs}


def exported() -> set[str]:
    """Functions that the C++ exports, by its text."""
    sources = [source for source in SOURCES.rglob("*.cpp") if source.name not in LOADER]
    return {name for each in sources for name in re.findall(r"^EXPORT \S+ (\w+)\(", each.read_text(), re.MULTILINE)}


def launched() -> set[str]:
    """Functions that Triton compiles, by their text; in `scores`, and with an underscore, they are parts of others."""
    found = set()
    for source in {*(FOLDER / "gpu").glob("*.py")} - {FOLDER / "gpu" / "scores.py"}:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(d) for d in node.decorator_list):
                found.add(node.name)
    return {name for name in found if not name.startswith("_")}


def test_whatever_is_compiled_is_in_the_table() -> None:
    assert len(exported()) > 10
    assert len(launched()) > 4
    assert exported() | launched() == IN_TABLE


def test_whatever_is_in_the_table_is_there() -> None:
    for name in IN_TABLE & exported():
        assert library()[name]
    for operation in OPERATIONS:
        assert operation.kernels
        for kernel in operation.kernels:
            assert callable(kernel.function)
            assert any(kernel.needs <= isa.capabilities for isa in ISAS)


def test_each_instruction_set_is_a_row_of_the_table() -> None:
    assert len({isa.name for isa in ISAS}) == len(ISAS)
    assert level() in levels()
    assert capabilities() == next(isa.capabilities for isa in ISAS if isa.name == level())
    assert {path.stem for path in (FOLDER / "cpu" / "lib").glob("kernels_*")} >= {
        f"kernels_{name}" for name in levels()
    }
    assert TESTED_AS.keys() <= {flag for isa in ISAS for flag in isa.flags}


@pytest.mark.parametrize("quantization", [None, "int8"])
def test_what_is_packed_can_be_multiplied(quantization: str | None) -> None:
    panels = PACK.find(quantization=quantization)(torch.randn(40, 64))
    assert isinstance(panels, WeightPanels)
    assert PRODUCT.find(weights=panels.dtype, inputs=64) is product


def test_products_of_many_rows_go_to_amx_where_it_is_and_serves() -> None:
    many = {"weights": torch.float16, "rows": HUNDREDS}
    assert PRODUCT.find(**many, inputs=64) is (product_by_amx if level() == "amx" else product)
    assert PRODUCT.find(**many, inputs=60) is product
    assert PRODUCT.find(weights=torch.float32, rows=HUNDREDS, inputs=64) is product


def test_the_first_kernel_whose_conditions_hold_is_chosen() -> None:
    operation = Operation(
        "an example",
        Kernel("rounded", quantization="int8", rows=range(10, 20)),
        Kernel("plain", rows=range(5, 100)),
        Kernel("device", device="cuda", dtypes=(torch.float16,)),
    )
    assert operation.find(rows=10, quantization="int8") == "rounded"
    assert operation.find(rows=10) == operation.find(rows=20, quantization="int8") == "plain"
    assert operation.find(rows=4) is operation.find(rows=10, dtype=torch.float16) is None
    assert operation.find(device="cuda", dtype=torch.float16) == "device"
    assert operation.serving(torch.zeros(1), rows=10) == "plain"
    assert operation.serving(torch.zeros(1, requires_grad=True), rows=10) is None


def test_importing_the_table_imports_no_triton_and_starts_no_thread() -> None:
    program = """
import os, sys
import torch
threads = len(os.listdir("/proc/self/task"))
import transept.core.kernels.dispatch
assert len(os.listdir("/proc/self/task")) == threads
assert "triton" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
