"""Skeleton against transformers on small random weights. `parity` is made in conftest.py."""

from transept.testing import Parity


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


def test_low_precision(parity: Parity) -> None:
    parity.check_low_precision()
