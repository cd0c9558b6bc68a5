"""Where the tokens of a text lie in time: a median filter and dynamic time warping over attention weights.

Called by `transept.speech.words`; knows nothing of tokenizers or seconds.
"""

from __future__ import annotations

import numpy as np

from transept.core.kernels.launch import kernel

HALF = 3  # encoder positions to either side that the median filter looks at, as in openai-whisper
LEFT, CORNER, ABOVE = range(3)


def alignment_cost(weights: np.ndarray) -> np.ndarray:
    """The cost of saying a token at a position, from the weights of the heads that follow the speech.

    weights: [heads, tokens, positions], none negative. Only their proportions within a token count, so a stretch cut
    out of a longer softmax serves. Returns [tokens, positions] in float32, low where the heads look.
    The rule is openai-whisper's: standardise over the tokens, median over neighbouring positions, mean over the heads.
    """
    total = np.zeros(weights.shape[1:], dtype=np.float32)
    for head in weights:
        share = head / np.maximum(head.sum(axis=-1, keepdims=True), np.finfo(np.float32).tiny)
        mean = share.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = share.std(axis=0, dtype=np.float64).astype(np.float32)
        standard = np.divide(share - mean, deviation, out=np.zeros_like(share), where=deviation > 0)
        total += median_filter(standard)
    return -total / len(weights)


def median_filter(values: np.ndarray) -> np.ndarray:
    """The median of each value and its HALF neighbours to either side along the last axis, mirrored at both ends.

    values: float32 or float64. An axis too short to be mirrored is returned as it is.
    """
    length = values.shape[-1]
    if length <= HALF:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(HALF, HALF)], mode="reflect")
    medians = np.empty(values.shape, values.dtype)
    _filter_rows(padded.reshape(-1, length + 2 * HALF), medians.reshape(-1, length))
    return medians


@kernel(nogil=True)
def _filter_rows(padded: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(out)):
        _medians_of_seven(padded[row], out[row])


@kernel()
def _medians_of_seven(values: np.ndarray, out: np.ndarray) -> None:
    """The median of each seven neighbours, by Paeth's network of 13 exchanges (Graphics Gems, 1990)."""
    for i in range(len(out)):
        a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
        e, f, g = values[i + 4], values[i + 5], values[i + 6]
        a, f = _lower(a, f), _higher(a, f)
        a, d = _lower(a, d), _higher(a, d)
        b, g = _lower(b, g), _higher(b, g)
        c, e = _lower(c, e), _higher(c, e)
        a, b = _lower(a, b), _higher(a, b)
        d, f = _lower(d, f), _higher(d, f)
        c, g = _lower(c, g), _higher(c, g)
        c, d = _lower(c, d), _higher(c, d)
        d, g = _lower(d, g), _higher(d, g)
        e, f = _lower(e, f), _higher(e, f)
        b, e = _lower(b, e), _higher(b, e)
        b, d = _lower(b, d), _higher(b, d)
        out[i] = _lower(d, e)


@kernel()
def _lower(a: float, b: float) -> float:
    return a if a < b else b


@kernel()
def _higher(a: float, b: float) -> float:
    return b if a < b else a


def warping_path(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest path from the first to the last cell of a matrix by steps right, down or both (Sakoe & Chiba 1978).

    cost: [rows, columns], neither 0. Returns the rows and the columns of its cells, from first to last.
    Among equally cheap ways into a cell the one from the left is taken, as in openai-whisper.
    """
    path: np.ndarray = _cheapest_path(np.ascontiguousarray(cost, np.float64))
    return path[::-1, 0], path[::-1, 1]


@kernel(nogil=True)
def _cheapest_path(cost: np.ndarray) -> np.ndarray:
    """The cells of the path, from last to first: [length, row and column]."""
    rows, columns = cost.shape
    total = np.full((rows + 1, columns + 1), np.inf)  # with a border before the first row and column
    total[0, 0] = 0.0
    steps = np.full(total.shape, LEFT, np.int8)  # where the path comes from
    for row in range(1, rows + 1):
        for column in range(1, columns + 1):
            corner, above, left = total[row - 1, column - 1], total[row - 1, column], total[row, column - 1]
            best = left
            if corner < min(above, left):
                best, steps[row, column] = corner, CORNER
            elif above < min(corner, left):
                best, steps[row, column] = above, ABOVE
            total[row, column] = best + cost[row - 1, column - 1]
    path = np.empty((rows + columns, 2), np.int64)
    length, row, column = 0, rows, columns
    while row and column:
        path[length] = row - 1, column - 1
        length += 1
        step = steps[row, column]
        row -= int(step != LEFT)
        column -= int(step != ABOVE)
    return path[:length]
