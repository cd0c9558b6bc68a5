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
HEADERS = {isa.name: isa.header for isa in ISAS}  # level -> the primitives that it uses, of one vector size
UP_TO_OWN = levels()[: levels().index(level()) + 1]
RUN_HERE = {header: [name for name in UP_TO_OWN if HEADERS[name] == header] for header in HEADERS.values()}
SEVERAL = {header: (names[0], names[-1]) for header, names in RUN_HERE.items() if len(names) > 1}


def results(name: str) -> dict[str, Any]:
    program = [sys.executable, Path(__file__).with_name("kernel_results.py"), CHECKPOINT]
    done = subprocess.run(program, capture_output=True, text=True, env=os.environ | {LEVEL_VARIABLE: name})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not SEVERAL, reason="this processor has one level of each vector size")
@pytest.mark.parametrize("names", SEVERAL.values(), ids=SEVERAL)
def test_the_highest_level_has_the_bits_of_the_lowest_one_of_its_vector_size(names: tuple[str, str]) -> None:
    lowest, highest = map(results, names)
    assert (lowest.pop("level"), highest.pop("level")) == names
    assert highest == lowest
