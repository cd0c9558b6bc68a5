"""Raise quiet speech to the level of loud speech, for `even_loudness`. Pure NumPy.

Jobs load a recording through `load_recording`, in another thread.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from transept.core.request.limits import Limits
    from transept.multimodal.audio import AudioInput, LoadedAudio
    from transept.multimodal.waveforms import Waveform
    from transept.speech.options import TranscriptionOptions

Decibels = npt.NDArray[np.float32]  # [frames]

PER_SECOND = 50  # frames
REACH = 40  # frames to either side, 0.8 s, of which the loudest one sets the gain
LOUD = -20.0  # dB of full scale: level to which the loudest frames of quiet speech are raised
MOST = 40.0  # dB of gain
SMOOTH = 20  # frames over which the gain changes
STANDS_OUT = 12.0  # dB by which levels differ within REACH if there is speech; steady noise varies less
FAINTEST = -87.0  # dB of full scale: fainter audio counts as silence, such as rounding errors of 16 bits
RANGE = 52.0  # dB below the recording's loud frames: fainter audio also counts as silence
PERCENTILE = 99  # of the recording's levels; it counts as the level of loud frames
BLOCK = 1 << 16  # frames that are processed at a time, so that temporary arrays stay small


def load_recording(limits: Limits, audio: AudioInput, rate: int, options: TranscriptionOptions) -> LoadedAudio:
    """Load the channels that the options select, with even loudness if they ask for it.

    rate: in Hz, of the result. Raises MediaError like `Limits.load_recording`.
    """
    loaded = limits.load_recording(audio, rate, options.channel, options.audio_track)
    if not options.even_loudness:
        return loaded
    return dataclasses.replace(loaded, waveforms=[levelled(each, rate) for each in loaded.waveforms])


def levelled(waveform: Waveform, rate: int) -> Waveform:
    """Raise each stretch of speech by the gain that brings its loudest frames to LOUD; never lower one.

    waveform: float32 [num_samples]; it is not changed. rate: in Hz. The gain of a pause is between the gains of the
    speech before and after it. Samples stay within full scale. Returns `waveform` itself if no speech in it is quiet.
    """
    frame = rate // PER_SECOND
    gains = _gains(_levels(waveform, frame))
    if not gains.any():
        return waveform
    result = np.empty_like(waveform)
    middles = (np.arange(len(gains)) + 0.5) * frame
    for begin in range(0, len(waveform), BLOCK * frame):
        block = waveform[begin : begin + BLOCK * frame]
        gain = np.interp(np.arange(begin, begin + len(block)), middles, gains)
        raised = block * np.power(10, gain / 20).astype(np.float32)
        beyond = np.maximum(np.abs(block), 1)  # leaves samples beyond full scale unchanged
        result[begin : begin + len(block)] = np.clip(raised, -beyond, beyond)
    return result


def _levels(waveform: Waveform, frame: int) -> Decibels:
    """Mean square of each frame, in dB of full scale. The last frame may be shorter."""
    levels = []
    for begin in range(0, len(waveform), BLOCK * frame):
        block = waveform[begin : begin + BLOCK * frame]
        frames = np.pad(block, (0, -len(block) % frame)).reshape(-1, frame)
        levels.append(10 * np.log10(np.square(frames).mean(axis=1) + 1e-12))
    return np.concatenate(levels).astype(np.float32) if levels else np.empty(0, np.float32)


def _gains(levels: Decibels) -> npt.NDArray[np.float64]:
    """Gain of each frame in dB, [frames]; levels: of the frames."""
    if not len(levels):
        return np.zeros(0)
    levels = np.maximum(levels, max(FAINTEST, float(np.percentile(levels, PERCENTILE)) - RANGE))
    loudest, quietest = _most_within(levels, REACH), -_most_within(-levels, REACH)
    # Leaves out frames in which a word fades.
    (spoken,) = np.nonzero((levels > loudest - STANDS_OUT) & (loudest - quietest > STANDS_OUT))
    if not len(spoken):
        return np.zeros(len(levels))
    gains = np.interp(np.arange(len(levels)), spoken, np.clip(LOUD - loudest[spoken], 0, MOST))
    kernel = np.hanning(SMOOTH + 2)[1:-1]
    padded = np.pad(gains, (SMOOTH // 2, SMOOTH - SMOOTH // 2 - 1), mode="edge")
    return np.convolve(padded, kernel / kernel.sum(), "valid")


def _most_within(values: Decibels, reach: int) -> Decibels:
    """Largest value within `reach` frames to either side of each frame."""
    width = 2 * reach + 1
    found = np.pad(values, (reach, reach), constant_values=-np.inf)
    covered = 1
    while covered < width:  # each value is the maximum of `covered` frames, its own first
        shift = min(covered, width - covered)
        found = np.maximum(found[: len(found) - shift], found[shift:])
        covered += shift
    return found
