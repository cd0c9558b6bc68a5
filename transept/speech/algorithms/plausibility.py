"""What can have been said in a window, by its length: a model that strays repeats itself, or says too much.

`decoding` asks it of windows of which the encoder read a part; `segmentation` uses the same bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from transept.registry.spec import SpeechSpec
from transept.speech.tokenizer import SpeechTokenizer

LATEST_END = 1.0  # seconds after the sound; models round times up, some to whole seconds
FASTEST_SPEECH = 40  # characters in a second; hurried speakers reach 25
SHORTEST_TEXT = 15  # characters, which any window may hold
SHORTEST_RUN = 4  # tokens; "no, no, no" is said


def is_plausible(
    tokenizer: SpeechTokenizer, spec: SpeechSpec, tokens: Sequence[int], text: str, seconds: float
) -> bool:
    """Whether a window's tokens may be what was said in so many seconds of sound.

    tokens: timestamps among them. text: of them. Not where text is missing, where a run of SHORTEST_RUN tokens or more
    comes twice in a row, where there is more of it than anybody says in the time, or where a timestamp lies more than
    LATEST_END after the sound.
    """
    if not text or len(text) > longest_text(seconds):
        return False
    first = tokenizer.control.first_timestamp
    if first is not None:
        times = [(token - first) * spec.seconds_per_timestamp for token in tokens if tokenizer.is_timestamp(token)]
        if max(times, default=0.0) > seconds + LATEST_END:
            return False
    return not repeats_itself([token for token in tokens if token in tokenizer.text_tokens])


def longest_text(seconds: float) -> float:
    """Characters that may be said in so many seconds."""
    return max(SHORTEST_TEXT, FASTEST_SPEECH * seconds)


def repeats_itself(tokens: Sequence[int]) -> bool:
    """Whether a run of SHORTEST_RUN tokens or more is followed by itself."""
    for size in range(SHORTEST_RUN, len(tokens) // 2 + 1):
        alike = 0  # neighbouring tokens that come again `size` later
        for one, other in zip(tokens, tokens[size:], strict=False):
            alike = alike + 1 if one == other else 0
            if alike == size:
                return True
    return False
