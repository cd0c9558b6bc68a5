"""Decode the audio that clients append: base64 of PCM or G.711 to PCM. Called by `session`."""

from __future__ import annotations

import binascii

import numpy as np
import numpy.typing as npt

from transept.errors import MediaError
from transept.serving.realtime.session_options import PCM, PCMU, AudioFormat


def decoded(text: str, given: AudioFormat) -> bytes:
    """Return the bytes of an appended text as 16-bit little-endian PCM. They may end within a sample.

    given: the client's encoding. Raises MediaError for a text that is not base64.
    """
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError(f"audio is not base64: {error}. Send the bytes of {given.type} in base64") from None
    if given.type == PCM:
        return data
    return (MU_LAW if given.type == PCMU else A_LAW)[np.frombuffer(data, np.uint8)].tobytes()


def _mu_law() -> npt.NDArray[np.int16]:
    """Return the sample of each byte (ITU-T G.711, tables 2a and 2b): [256]."""
    inverted = ~np.arange(256, dtype=np.uint8)
    exponent, mantissa = (inverted >> 4 & 7).astype(np.int16), (inverted & 15).astype("<i2")
    magnitude = ((mantissa << 3) + 132 << exponent) - 132
    return np.where(inverted & 128, -magnitude, magnitude).astype("<i2")


def _a_law() -> npt.NDArray[np.int16]:
    """Return the sample of each byte (ITU-T G.711, tables 1a and 1b): [256]."""
    toggled = np.arange(256, dtype=np.uint8) ^ 0x55
    exponent, mantissa = (toggled >> 4 & 7).astype(np.int16), (toggled & 15).astype("<i2")
    magnitude = np.where(exponent == 0, (mantissa << 4) + 8, (mantissa << 4) + 264 << np.maximum(exponent - 1, 0))
    return np.where(toggled & 128, magnitude, -magnitude).astype("<i2")


MU_LAW, A_LAW = _mu_law(), _a_law()
