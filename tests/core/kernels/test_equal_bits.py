"""Levels with vectors of the same size give the same bits, products of bfloat16 apart: AVX2's, AVX-512's and NEON's."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transept.core.kernels.cpu.isas import ISAS
from transept.core.kernels.cpu.library import LEVEL_VARIABLE, level, levels

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
HEADERS = {isa.name: isa.header for isa in ISAS}
ALIKE = [name for name in levels()[: levels().index(level())] if HEADERS[name] == HEADERS[level()]]


def results(name: str) -> dict[str, Any]:
    program = [sys.executable, Path(__file__).with_name("kernel_results.py"), CHECKPOINT]
    done = subprocess.run(program, capture_output=True, text=True, env=os.environ | {LEVEL_VARIABLE: name})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not ALIKE, reason="one level of this vector size")
def test_results_have_the_bits_of_the_lowest_level_of_this_vector_size() -> None:
    own, lowest = results(level()), results(ALIKE[0])
    assert (own.pop("level"), lowest.pop("level")) == (level(), ALIKE[0])
    assert own == lowest
