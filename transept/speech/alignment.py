"""Where the tokens of a text lie in time: a median filter and dynamic time warping over attention weights.

Pure numpy. Called by `transept.speech.words`; knows nothing of tokenizers or seconds.
"""

from __future__ import annotations

import numpy as np

FILTER_WIDTH = 7  # encoder positions, as in openai-whisper


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
        total += median_filter(standard, FILTER_WIDTH)
    return -total / len(weights)


def median_filter(values: np.ndarray, width: int) -> np.ndarray:
    """The median of the ``width`` (odd) neighbours of each value along the last axis, mirrored at both ends.

    An axis too short to be mirrored is returned as it is.
    """
    half = width // 2
    length = values.shape[-1]
    if length <= half:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(half, half)], mode="reflect")
    neighbours = [padded[..., shift : shift + length] for shift in range(width)]
    # A bubble sort of all windows at once, given up when the upper half is in place: far quicker than sorting each.
    for last in range(width - 1, half - 1, -1):
        for i in range(last):
            lower, upper = neighbours[i], neighbours[i + 1]
            neighbours[i], neighbours[i + 1] = np.minimum(lower, upper), np.maximum(lower, upper)
    return neighbours[half]


def warping_path(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest path from the first to the last cell of a matrix by steps right, down or both (Sakoe & Chiba 1978).

    cost: [rows, columns], neither 0. Returns the rows and the columns of its cells, from first to last.
    Among equally cheap ways into a cell the one from the left is taken, as in openai-whisper.
    """
    #  The cells of an anti-diagonal need only the two before it, so numpy computes each at once. Row r of diagonal d is
    #  the cell (r, d - r); row 0 and column 0 are a border before the matrix, infinite but for its corner.
    #
    #      diagonal d - 2    [r - 1] is up and left of the cell
    #      diagonal d - 1    [r - 1] is above it, [r] is left of it
    rows, columns = cost.shape
    flat, stride = cost.ravel(), max(columns - 1, 1)  # of neighbours on an anti-diagonal
    before_last, last, current = (np.full(rows + 1, np.inf) for _ in range(3))
    before_last[0] = 0.0
    from_corner, from_above = (np.zeros((rows + columns + 1, rows + 1), dtype=bool) for _ in range(2))
    for diagonal in range(2, rows + columns + 1):
        first, end = max(1, diagonal - columns), min(rows, diagonal - 1) + 1
        corner, above, left = before_last[first - 1 : end - 1], last[first - 1 : end - 1], last[first:end]
        corner_wins, above_wins = from_corner[diagonal, first:end], from_above[diagonal, first:end]
        np.less(corner, np.minimum(above, left), out=corner_wins)
        np.less(above, np.minimum(corner, left), out=above_wins)
        total = current[first:end]
        np.copyto(total, left)
        np.copyto(total, above, where=above_wins)
        np.copyto(total, corner, where=corner_wins)
        begin = (first - 1) * columns + diagonal - first - 1  # of cell (first, diagonal - first), without the border
        total += flat[begin : begin + stride * (end - first - 1) + 1 : stride]
        current[0] = np.inf
        before_last, last, current = last, current, before_last
    path = []
    row, column = rows, columns
    while row and column:
        path.append((row - 1, column - 1))
        corner_won, above_won = from_corner[row + column, row], from_above[row + column, row]
        row -= bool(corner_won or above_won)
        column -= not above_won
    on_rows, on_columns = np.array(path[::-1]).T
    return on_rows, on_columns
