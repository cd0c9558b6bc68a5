"""The microphone as a source of live audio. Only the device is simulated, because test machines have none."""

import sys
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from transept.errors import MediaError, ParameterError
from transept.multimodal.live_sources import RATE, microphone


class PortAudioError(Exception):
    """PortAudio's error, such as of a device that is in use."""


class Device:
    """An input stream that has recorded two blocks when it is opened."""

    def __init__(self, *, blocksize: int, device: Any, callback: Any, **_: Any) -> None:
        if device == "none":
            raise ValueError("No input device matching 'none'")
        if device == 7:
            raise PortAudioError("Device unavailable")
        for sample in (0.25, 0.5):
            callback(np.full((blocksize, 1), sample, np.float32), blocksize, None, None)

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture(autouse=True)
def sounddevice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", SimpleNamespace(InputStream=Device, PortAudioError=PortAudioError))


def test_blocks_arrive_as_chunks() -> None:
    with microphone(None) as (rate, chunks):
        first, second = islice(chunks, 2)
    assert rate == RATE
    np.testing.assert_array_equal(first, np.full(RATE // 10, 0.25))
    np.testing.assert_array_equal(second, np.full(RATE // 10, 0.5))


def test_a_device_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(ParameterError, match="there is no microphone 'none'") as raised, microphone("none"):
        pass
    assert raised.value.param == "microphone"
    with pytest.raises(MediaError, match="no microphone can be opened: Device unavailable"), microphone("7"):
        pass


def test_errors_of_the_block_are_not_the_microphone_s() -> None:
    error = ParameterError("cannot write", param="output")
    with pytest.raises(ParameterError) as raised, microphone(None):
        raise error
    assert raised.value is error
