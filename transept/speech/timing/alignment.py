"""Where the tokens of a text lie in time: a median filter and dynamic time warping over attention weights.

Called by `transept.speech.timing.words`; knows nothing of tokenizers or seconds.
"""

from __future__ import annotations

import numpy as np

from transept.core.kernels.dispatch import CHEAPEST_PATH, MEDIANS, NEIGHBOURS


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
    """The median of each value and its NEIGHBOURS to either side along the last axis, mirrored at both ends.

    values: float32. An axis too short to be mirrored is returned as it is. As many neighbours as openai-whisper's.
    """
    length = values.shape[-1]
    if length <= NEIGHBOURS:
        return values
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(NEIGHBOURS, NEIGHBOURS)], mode="reflect")
    return MEDIANS.only(padded.reshape(-1, length + 2 * NEIGHBOURS)).reshape(values.shape)


def warping_path(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest path from the first to the last cell of a matrix by steps right, down or both (Sakoe & Chiba 1978).

    cost: [rows, columns], neither 0. Returns the rows and the columns of its cells, from first to last.
    Among equally cheap ways into a cell the one from the left is taken, as in openai-whisper.
    """
    path = CHEAPEST_PATH.only(cost)
    return path[:, 0], path[:, 1]
