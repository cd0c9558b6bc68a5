"""The steps of a softmax down columns against numpy in float64."""

import numpy as np
import numpy.typing as npt
from numba import njit

from transept.core.kernels.column_softmax import highest, weigh
from transept.core.kernels.tiles import COLUMNS

Floats = npt.NDArray[np.float32]


@njit  # type: ignore[untyped-decorator]
def tops_of(values: Floats, start: int, depth: int) -> Floats:
    tops = np.empty(COLUMNS, np.float32)
    highest(values, start, depth, tops)
    return tops


def raised(x: Floats, tops: Floats) -> Floats:
    """2 to the x - tops, in rows."""
    values = x.flatten()
    weigh(values, 0, len(x), tops, np.zeros(COLUMNS, np.float32))
    return values.reshape(x.shape)


def test_the_highest_of_each_column() -> None:
    x = np.random.default_rng(0).standard_normal((50, COLUMNS)).astype(np.float32)
    assert (tops_of(x.ravel(), 3 * COLUMNS, 40) == x[3:43].max(0)).all()


def test_powers_of_2_are_within_two_units_in_the_last_place() -> None:
    x = np.linspace(-125, 127, 40_000 * COLUMNS, dtype=np.float32).reshape(-1, COLUMNS)
    powers = raised(x, np.zeros(COLUMNS, np.float32))
    assert np.abs(powers / np.exp2(x.astype(np.float64)) - 1).max() < 2.4e-7


def test_what_a_softmax_hides_is_nothing() -> None:
    x = np.resize(np.array([-200, -1e30, -np.inf], np.float32), (3, COLUMNS))
    powers = raised(x, np.zeros(COLUMNS, np.float32))
    assert (powers < 1e-37).all()
    assert (powers[x == -np.inf] == 0).all()


def test_a_column_of_minus_infinity_weighs_nothing() -> None:
    x = np.random.default_rng(0).standard_normal((9, COLUMNS)).astype(np.float32)
    x[:, 2], x[:8, 3] = -np.inf, -np.inf
    totals, values = np.zeros(COLUMNS, np.float32), x.flatten()
    weigh(values, 0, 9, tops_of(values, 0, 9), totals)
    assert totals[2] == 0
    assert totals[3] == 1
    np.testing.assert_allclose(totals[4:], np.exp2(x[:, 4:] - x[:, 4:].max(0)).sum(0), rtol=1e-6)


def test_a_column_with_a_nan_becomes_nan() -> None:
    x = np.zeros((9, COLUMNS), np.float32)
    x[4, 2] = np.nan
    totals, values = np.zeros(COLUMNS, np.float32), x.flatten()
    weigh(values, 0, 9, tops_of(values, 0, 9), totals)
    assert np.isnan(totals[2])
    assert (np.delete(totals, 2) == 9).all()


def test_totals_are_added_to() -> None:
    rng = np.random.default_rng(0)
    x, totals = rng.standard_normal((20, COLUMNS)).astype(np.float32), np.full(COLUMNS, 3, np.float32)
    values, tops = x.flatten(), x.max(0)
    weigh(values, 5 * COLUMNS, 10, tops, totals)
    np.testing.assert_allclose(totals, 3 + np.exp2(x[5:15].astype(np.float64) - tops).sum(0), rtol=1e-6)
    untouched = np.r_[0:5, 15:20]
    assert (values.reshape(x.shape)[untouched] == x[untouched]).all()
