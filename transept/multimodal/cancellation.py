"""Mix channels to mono, but use one of them where they cancel each other, as an inverted cable makes them do.

`transept.multimodal.channels` calls it for recordings that are mixed. Nothing here decodes or resamples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from transept.multimodal.sounds import SILENT_PEAK, Sound
from transept.multimodal.waveforms import Waveform, mono

# Power of the sum of all channels over the sum of their powers. Unrelated channels, or one channel alone: 1. Two alike:
# 2. Two of equal power and correlation r: 1 + r, so r is below -0.9 under this bound.
CANCELLED = 0.1
MIXED = 0.75  # the same, from which channels are mixed again
STEP = 0.025  # seconds between the windows in which channels are compared
WINDOW_STEPS = 10  # length of a window; unrelated channels of speech do not cancel for so long by chance
SHORTEST_STEPS = 4  # a shorter recording is mixed even if it cancels
QUIETEST = 0.01  # least power of a window that may cancel, relative to the loudest; low, so that hum in pauses counts
LOUD = 0.05  # the same, for a window that is mixed again: in quieter ones, coding may have ended the cancellation
ALIKE = 0.25  # relative to the loudest channel's power; the first channel that reaches it replaces the mix

MonoSound: TypeAlias = "tuple[Waveform, float]"  # [num_samples], and its rate in Hz


class CancellingMix:
    """Mixes one recording, and appends a warning if one channel replaced the mix.

    begin: seconds of the recording before its first sound. A window's last steps wait for the next sound, so the result
    does not depend on where one sound ends and the next begins.
    """

    def __init__(self, begin: float, warnings: list[str]) -> None:
        self._seconds, self._warnings = begin, warnings
        self._loudest = 0.0  # power of all channels in the loudest window so far
        self._is_cancelled: bool | None = None  # at the end of the previous sound; None before a window decides
        # steps of the next sound that belong to earlier windows, mixed or cancelled
        self._mixed_left = self._cancelled_left = 0
        self._channel, self._count = 0, 2  # the one that replaces the mix, and the number of all
        self._cancelled_from: float | None = None

    def mixed(self, sounds: Iterable[Sound]) -> Iterator[MonoSound]:
        """Yield the mix of all channels, or one channel where they cancel each other."""
        kept: Sound | None = None  # the end of the previous sound, less than a window
        for sound in sounds:
            form = (sound.rate, len(sound.samples), sound.samples.dtype)
            if kept is not None and (kept.rate, len(kept.samples), kept.samples.dtype) == form:
                sound = Sound(np.concatenate([kept.samples, sound.samples], axis=1), sound.rate)
            elif kept is not None:
                yield self._mix(kept, kept.samples.shape[1])
                self._mixed_left = self._cancelled_left = 0
            kept = None
            if len(sound.samples) > 1:
                step = _step(sound)
                done = max(0, sound.samples.shape[1] // step - WINDOW_STEPS) * step
                kept = Sound(sound.samples[:, done:].copy(), sound.rate)
                if done:
                    yield self._mix(sound, done)
            else:
                yield self._mix(sound, sound.samples.shape[1])
        if kept is not None:
            yield self._mix(kept, kept.samples.shape[1])
        if self._cancelled_from is not None:
            if self._count == 2:
                what = "read from its left channel where the two cancel each other in the mix"
            else:
                what = f"read from channel {self._channel + 1} where its channels cancel each other in the mix"
            self._warnings.append(f"{what}, from {self._cancelled_from:.1f} s on")

    def _mix(self, sound: Sound, size: int) -> MonoSound:
        """Mix the first `size` samples of a sound. Later samples only decide whether the last of these cancel."""
        samples, step = sound.samples, _step(sound)
        mix = mono(samples)
        if len(samples) > 1 and size >= step:
            places = self._cancelled_steps(sound, mix, size // step)
            if places.any():
                if self._cancelled_from is None:
                    self._cancelled_from = self._seconds + int(places.argmax()) * step / sound.rate
                channel = self._channel if self._channel < len(samples) else 0
                in_samples = np.repeat(places, step)
                rest = np.full(size - len(in_samples), places[-1])  # less than a step
                one = mono(samples[channel : channel + 1])[:size]
                mix = one if places.all() else np.where(np.concatenate([in_samples, rest]), one, mix[:size])
        self._seconds += size / sound.rate
        return mix[:size], sound.rate

    def _cancelled_steps(self, sound: Sound, mix: Waveform, num_done: int) -> npt.NDArray[np.bool_]:
        """True for each of the first steps of a sound that belongs to a loud window in which the channels cancel.

        A step that no window decides is treated like the step before it, or at the beginning like the step after it.
        """
        step, count = _step(sound), len(sound.samples)
        total = len(mix) // step
        length = min(WINDOW_STEPS, total)
        covered = np.full(num_done, -1)  # -1: unknown, 0: not cancelled, 1: cancelled
        covered[: self._mixed_left] = 0
        covered[: self._cancelled_left] = 1
        if total >= SHORTEST_STEPS:
            power = np.stack([_powers(mono(sound.samples[n : n + 1]), step, length) for n in range(count)])
            loudest = power.max(axis=0)
            self._loudest = max(self._loudest, float(loudest.max()))
            kept, whole = count**2 * _powers(mix, step, length), power.sum(axis=0)
            least = max(SILENT_PEAK**2, QUIETEST * self._loudest)
            is_cancelled = (loudest > least) & (kept < CANCELLED * whole)
            is_mixed = (loudest > max(SILENT_PEAK**2, LOUD * self._loudest)) & (kept >= MIXED * whole)
            if is_cancelled.any() and self._cancelled_from is None:
                own = power[:, int(is_cancelled.argmax())]
                self._channel, self._count = int((own >= ALIKE * own.max()).argmax()), count
            self._mixed_left = _cover(covered, is_mixed[:num_done], length, 0)
            self._cancelled_left = _cover(covered, is_cancelled[:num_done], length, 1)
        known = np.flatnonzero(covered >= 0)
        before = self._is_cancelled
        if before is None:
            before = bool(len(known)) and bool(covered[known[0]])
        if len(known):
            latest = np.searchsorted(known, np.arange(num_done), side="right") - 1
            places = np.where(latest >= 0, covered[known[latest]] == 1, before)
            self._is_cancelled = bool(places[-1])
            return places
        return np.full(num_done, before)


class ArrivingMix:
    """Mixes audio as it arrives, without waiting: the window that ends with a step decides about this step.

    is_cancelled: True while one channel replaces the mix.
    """

    def __init__(self) -> None:
        # of each step of the window: its samples, the energy of the sum of all channels, and the sum of their energies
        self._window: deque[tuple[int, float, float]] = deque()
        self._channel, self.is_cancelled = 0, False

    def mixed(self, samples: npt.NDArray[np.float32], rate: float) -> Waveform:
        """Return the mix of floats [channels, num_samples], or one channel where they cancel each other."""
        if len(samples) < 2 or not samples.size:
            return mono(samples)
        size = max(1, round(STEP * rate))
        steps = [self._step(samples[:, at : at + size], size) for at in range(0, samples.shape[1], size)]
        return np.concatenate(steps)

    def _step(self, samples: npt.NDArray[np.float32], size: int) -> Waveform:
        """Mix at most a step. size: samples of a whole one."""
        mix, count = mono(samples), len(samples)
        energy = np.square(samples, dtype=np.float64).sum(axis=1)
        self._window.append((mix.size, count**2 * float(np.square(mix, dtype=np.float64).sum()), float(energy.sum())))
        num_samples, kept, whole = map(sum, zip(*self._window, strict=True))
        while num_samples - self._window[0][0] >= WINDOW_STEPS * size:
            num_samples -= self._window.popleft()[0]
        if whole > SILENT_PEAK**2 * num_samples:
            if kept >= MIXED * whole:
                self.is_cancelled = False
            elif kept < CANCELLED * whole and not self.is_cancelled:
                self.is_cancelled = True
                self._channel = int((energy >= ALIKE * energy.max()).argmax())
        return mono(samples[[self._channel if self._channel < count else 0]]) if self.is_cancelled else mix


def _cover(covered: npt.NDArray[Any], windows: npt.NDArray[np.bool_], length: int, value: int) -> int:
    """Write a value to the steps of the windows; return how many steps of theirs follow after the last one written."""
    begins, left = np.flatnonzero(windows), 0
    for offset in range(length):
        places = begins + offset
        covered[places[places < len(covered)]] = value
    if len(begins):
        left = max(0, int(begins[-1]) + length - len(covered))
    return left


def _powers(samples: Waveform, step: int, length: int) -> npt.NDArray[np.float64]:
    """Return the mean power of each window of so many steps, one beginning with each step: [num_windows]."""
    total = len(samples) // step
    steps = samples[: total * step].reshape(total, step)
    with np.errstate(over="ignore", invalid="ignore"):  # samples that are not finite are refused later
        power = np.nan_to_num(np.einsum("ij,ij->i", steps, steps).astype(np.float64) / step)
    means: npt.NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(power, length).mean(axis=-1)
    return means


def _step(sound: Sound) -> int:
    return max(1, round(STEP * sound.rate))
