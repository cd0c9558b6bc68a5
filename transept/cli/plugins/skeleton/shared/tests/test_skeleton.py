"""Skeleton against transformers on small random weights. `parity` is made in conftest.py."""

import pytest

from transept.testing import CHECKS, Parity


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    parity.check(check)
