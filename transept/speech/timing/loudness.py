"""Loudness of a stretch of a recording every 5 ms, and the pauses in it. Pure NumPy, for `timing.boundaries`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transept.multimodal.waveforms import Waveform
from transept.speech.vad.spans import SAMPLE_RATE

FRAME = 80  # samples
PER_SECOND = SAMPLE_RATE // FRAME  # frames
EMPHASIS = 0.5  # of the previous sample is subtracted: hum counts less, and the hiss of an s counts more
SILENCE = 1e-10  # mean square that counts as no sound: -100 dB
BELOW_LOUD = 36.0  # dB below the loud frames: quiet
QUIETEST = 3  # per cent of the means over 55 ms, which are noise
ABOVE_NOISE = 4.0  # dB above the noise: still quiet, because noise varies
LEAST_RANGE = 6.0  # dB below the loud frames at which a frame is never quiet
DIGITAL = 45.0  # dB below the loud frames: fainter than a room
ROOM = 28.0  # dB below the loud frames: no room is louder, unless the noise never stops
CLEAR = 5.0  # dB from the threshold at which a frame is surely quiet, or surely not
SHORTEST_PAUSE = 5  # frames
AROUND = 30  # frames to either side, whose mean a dip is compared with
DEEP = 10.0  # dB of a dip that counts as 1
DEEPEST = 1.5  # the most that a dip, or a peak, counts


@dataclass(frozen=True)
class Loudness:
    """Loudness of a stretch, by frames of 5 ms.

    quiet_before: [frames + 1], sum over the frames before: up to 1 for each quiet frame, down to -1 for a loud one.
    relief: [frames], negative in a dip, positive in a peak. pause_begins, pause_ends: frames of each pause.
    """

    quiet_before: np.ndarray
    relief: np.ndarray
    pause_begins: np.ndarray
    pause_ends: np.ndarray

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return len(self.relief)

    @classmethod
    def of(cls, waveform: Waveform) -> Loudness:
        """Measure a stretch. waveform: float32 [samples] at SAMPLE_RATE, more than a frame."""
        rough = waveform[1:] - EMPHASIS * waveform[:-1]
        squares = np.square(rough[: len(rough) // FRAME * FRAME], dtype=np.float64).reshape(-1, FRAME).mean(axis=1)
        decibels = 10 * np.log10(_smooth(squares, 1) + SILENCE)
        threshold = _quiet_threshold(decibels)
        quietness = np.clip((threshold - decibels) / CLEAR, -1.0, 1.0)
        steps = np.diff((decibels < threshold).astype(np.int8), prepend=0, append=0)
        begins, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
        long = ends - begins >= SHORTEST_PAUSE
        relief = (_smooth(decibels, 2) - _smooth(decibels, AROUND)) / DEEP
        return cls(
            np.concatenate([[0.0], np.cumsum(quietness)]), relief.clip(-DEEPEST, DEEPEST), begins[long], ends[long]
        )


def _quiet_threshold(decibels: np.ndarray) -> float:
    """Return the loudness below which a frame is quiet, computed from the loud frames and the noise.

    Parts of a recording may be digital silence, and others have noise, which is then the noise of the room.
    """
    loud, smooth = np.percentile(decibels, 95), _smooth(decibels, 5)
    room = smooth[smooth >= loud - DIGITAL]
    noise = np.percentile(smooth, QUIETEST)
    if len(room):
        noise = max(noise, min(np.percentile(room, QUIETEST), loud - ROOM))
    return float(min(max(loud - BELOW_LOUD, noise + ABOVE_NOISE), loud - LEAST_RANGE))


def _smooth(values: np.ndarray, around: int) -> np.ndarray:
    """Return the mean of each value and its neighbours; the first and the last value are repeated beyond the ends."""
    sums = np.cumsum(np.pad(values, (around + 1, around), mode="edge"))
    means: np.ndarray = (sums[2 * around + 1 :] - sums[: -2 * around - 1]) / (2 * around + 1)
    return means
