"""Onsets: when the decoder begins to attend to each token.

The path of dynamic time warping (`timing.words`) orders the tokens, but gives each pause to one of them. The
beginning of a token's own cross-attention follows the true start by a delay that hardly varies, and no pause moves it.
`algorithms.window_words` calls `token_onsets`; `timing.boundaries` finds the words' boundaries near the onsets.
"""

from __future__ import annotations

import numpy as np

SHARE = 0.15  # of a token's attention, after which it has begun; 0.12 and 0.2 were as good, 0.1 and 0.25 worse
BEFORE, AFTER = 0.8, 0.6  # seconds around a token's path within which its attention counts
# The path may put a token without length after a pause that it precedes. So its attention also counts from LEAD before
# the last token that begins at least APART before it.
APART, LEAD = 0.5, 0.2  # seconds
NEAR_PEAK = 0.5  # seconds to either side of the strongest attention
SMOOTHING = 5  # positions; the peak of a sum over so many is less random


def token_onsets(
    weights: np.ndarray, times: np.ndarray, *, num_positions: int, positions_per_second: float
) -> np.ndarray:
    """Return the seconds at which the attention of each token of a window's text begins: [num_text_tokens].

    weights: [heads, tokens of the decoder prompt, encoder positions], as for `words.token_times`. times: its result for
    them. num_positions: encoder positions of the window without padding.
    """
    if not len(times):
        return np.empty(0)
    starts, ends = times[:-1], times[1:]
    attention = weights[:, -len(starts) - 2 : -2, :num_positions].mean(axis=0, dtype=np.float64)  # [tokens, positions]
    middles = (np.arange(attention.shape[1]) + 0.5) / positions_per_second
    before = np.searchsorted(starts, starts - APART, side="right") - 1
    earlier = np.where(before >= 0, starts[before], 0.0) - LEAD
    begins = starts - BEFORE
    begins = np.where(starts == ends, np.minimum(begins, earlier), begins)
    attention[(middles < begins[:, None]) | (middles > ends[:, None] + AFTER)] = 0.0
    reached = np.pad(attention.cumsum(axis=1), ((0, 0), (SMOOTHING // 2 + 1, SMOOTHING // 2)), mode="edge")
    reached[:, : SMOOTHING // 2 + 1] = 0.0
    peaks = middles[(reached[:, SMOOTHING:] - reached[:, :-SMOOTHING]).argmax(axis=1)]
    attention[np.abs(middles - peaks[:, None]) > NEAR_PEAK] = 0.0
    reached = attention.cumsum(axis=1)
    wanted = SHARE * reached[:, -1]
    index = (reached < wanted[:, None]).sum(axis=1).clip(max=attention.shape[1] - 1)
    rows = np.arange(len(starts))
    inside = attention[rows, index]
    part = np.divide(wanted - reached[rows, index] + inside, inside, out=np.zeros_like(inside), where=inside > 0)
    onsets: np.ndarray = (index + part) / positions_per_second
    return np.where(wanted > 0, onsets, starts)
