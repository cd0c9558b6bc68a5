"""Limits: what they accept, and that text and audio are held to them."""

from typing import Any

import numpy as np
import pytest

from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.errors import MediaError, ParameterError, PromptError

RATE = 16_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_audio_second": 1}, "there is no limit 'max_audio_second'. Did you mean 'max_audio_seconds'"),
        ({"max_audio_seconds": 0}, "max_audio_seconds must be a number above 0, or None for no limit, not 0"),
        ({"max_audio_seconds": float("nan")}, "max_audio_seconds must be a number above 0"),
        ({"max_audio_seconds": float("inf")}, "None for no limit"),
        ({"max_audio_seconds": "60"}, "max_audio_seconds must be a number"),
        ({"max_audio_bytes": 1.5}, "max_audio_bytes must be an integer above 0"),
        ({"max_stream_bytes": True}, "max_stream_bytes must be an integer"),
        ({"max_decoded_bytes": -1}, "max_decoded_bytes must be an integer"),
        ({"max_text_characters": 0}, "max_text_characters must be an integer"),
        ({"max_queue_length": "many"}, "max_queue_length must be an integer"),
    ],
)
def test_what_is_no_limit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Limits(**given)


def test_defaults_are_for_work() -> None:
    assert DEFAULT_LIMITS.max_audio_seconds == 24 * 3600
    assert DEFAULT_LIMITS.max_text_characters is not None
    assert DEFAULT_LIMITS.max_text_characters > 30_000_000
    assert DEFAULT_LIMITS.max_queue_length is None
    unlimited = Limits(**dict.fromkeys(vars(DEFAULT_LIMITS)))
    assert set(vars(unlimited).values()) == {None}
    assert len(unlimited.load_audio((np.zeros(100, np.float32), RATE), RATE)) == 100


def test_audio_is_held_to_them() -> None:
    limits = Limits(max_audio_seconds=2)
    assert len(limits.load_audio((np.zeros(2 * RATE, np.float32), RATE), RATE)) == 2 * RATE
    with pytest.raises(MediaError, match="longer than the 2 seconds of max_audio_seconds"):
        limits.load_audio((np.zeros(2 * RATE + 1, np.float32), RATE), RATE)


def test_text_is_held_to_them() -> None:
    limits = Limits(max_text_characters=10)
    limits.check_text("a" * 10)
    with pytest.raises(PromptError, match="the document has 11 characters, more than the 10 of max_text_characters"):
        limits.check_text("a" * 11, "the document")
