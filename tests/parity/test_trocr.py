"""TrOCR beside transformers: one row a configuration (random_trocr.py), the same checks for each."""

import pytest
from random_trocr import ROWS, Row

from transept.testing import Parity


@pytest.fixture(scope="module", params=ROWS.values(), ids=ROWS)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    row: Row = request.param
    return row.parity(tmp_path_factory.mktemp("checkpoint"))


def test_prefill(parity: Parity) -> None:
    parity.check_prefill()


def test_decode(parity: Parity) -> None:
    parity.check_decode()


def test_batch(parity: Parity) -> None:
    parity.check_batch()


def test_preemption(parity: Parity) -> None:
    parity.check_preemption()


def test_beam_search(parity: Parity) -> None:
    parity.check_beam_search()
