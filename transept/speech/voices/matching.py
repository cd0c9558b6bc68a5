"""match_voices: match the voices of a recording to known voices, one to one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def match_voices(heard: Sequence[npt.ArrayLike], known: Sequence[npt.ArrayLike], threshold: float) -> list[int | None]:
    """Return for each heard voice the index of the known voice with which it matches, or None.

    heard, known: embeddings of length 1. threshold: lowest cosine similarity of a match. The most similar pair is
    matched first. A known voice matches at most one heard voice.
    """
    found: list[int | None] = [None] * len(heard)
    if not heard or not known:
        return found
    similarities = np.asarray(heard, np.float64) @ np.asarray(known, np.float64).T  # [heard, known]
    for _ in range(min(similarities.shape)):
        one, other = np.unravel_index(similarities.argmax(), similarities.shape)
        if not similarities[one, other] >= threshold:
            break
        found[int(one)] = int(other)
        similarities[one, :] = similarities[:, other] = -np.inf
    return found
