"""Treatments of degraded speech before it is transcribed, for `benchmarks.noise`.

Each takes and returns a waveform, float32 [num_samples] at 16 kHz, of at most a few minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.degraded import scaled
from benchmarks.whisper import SAMPLE_RATE
from transept.speech.levelling import levelled

Treatment = Callable[[np.ndarray], np.ndarray]


def spectrum(waveform: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Short-time Fourier transform with a sine window: complex64 [frames, size / 2 + 1]."""
    return np.fft.rfft(framed(waveform, size, hop) * sine_window(size)).astype(np.complex64)


def waveform_of(frames: np.ndarray, size: int, hop: int, length: int) -> np.ndarray:
    """Invert `spectrum`."""
    return overlapped(np.fft.irfft(frames, size).astype(np.float32), hop, length)


def sine_window(size: int) -> np.ndarray:
    """The window of analysis and of synthesis: float32 [size]."""
    return np.sin(np.pi * (np.arange(size) + 0.5) / size).astype(np.float32)


def framed(values: np.ndarray, size: int, hop: int) -> np.ndarray:
    """Overlapping frames of padded values: [frames, size]."""
    padded = np.pad(values, (size, size + -len(values) % hop))
    return np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]


def overlapped(frames: np.ndarray, hop: int, length: int) -> np.ndarray:
    """Invert `framed` with a window: overlap and add windowed frames, [frames, size], to `length` samples."""
    size = frames.shape[1]
    pieces = frames * sine_window(size)
    result = np.zeros((len(frames) + size // hop, hop), np.float32)
    for part in range(size // hop):
        result[part : part + len(frames)] += pieces[:, part * hop : (part + 1) * hop]
    return result.ravel()[size : size + length] * (2 * hop / size)


def dereverberated(
    waveform: np.ndarray,
    taps: int = 10,
    delay: int = 3,
    iterations: int = 3,
    size: int = 512,
    hop: int = 128,
    block: float = 30.0,
) -> np.ndarray:
    """Weighted prediction error (Nakatani et al. 2010) of one channel: subtract what earlier frames predict."""
    frames = spectrum(waveform, size, hop).T  # [bins, frames]
    step = int(block * SAMPLE_RATE / hop)
    done = [
        _predicted_off(frames[:, at : at + step], taps, delay, iterations) for at in range(0, frames.shape[1], step)
    ]
    return waveform_of(np.concatenate(done, 1).T, size, hop, len(waveform))


def _predicted_off(frames: np.ndarray, taps: int, delay: int, iterations: int) -> np.ndarray:
    past = np.stack([np.pad(frames, ((0, 0), (lag, 0)))[:, : frames.shape[1]] for lag in range(delay, delay + taps)], 1)
    dry = frames
    for _ in range(iterations):
        power = np.square(np.abs(dry))
        power = np.maximum(power, 1e-6 * power.max(axis=1, keepdims=True) + 1e-12)
        weighted = past / power[:, None]  # [bins, taps, frames]
        covariance = weighted @ past.conj().swapaxes(1, 2)
        covariance += (
            1e-6 * np.trace(covariance, axis1=1, axis2=2).real[:, None, None] * np.eye(taps, dtype=np.complex64)
        )
        correlation = weighted @ frames.conj()[..., None]
        filters = np.linalg.solve(covariance, correlation)
        dry = frames - (filters.conj().swapaxes(1, 2) @ past)[:, 0]
    return dry


def late_suppressed(waveform: np.ndarray, rt60: float = 0.6, floor: float = 0.2, delay: int = 6) -> np.ndarray:
    """Subtract an estimate of late reverberation's power: the earlier power, decayed (Lebart et al. 2001)."""
    size, hop = 512, 128
    frames = spectrum(waveform, size, hop)
    power, smooth = np.square(np.abs(frames)), np.empty(frames.shape, np.float32)
    state = power[0]
    for number, each in enumerate(power):
        state = 0.8 * state + 0.2 * each
        smooth[number] = state
    decay = 10 ** (-6 * delay * hop / SAMPLE_RATE / rt60)
    late = decay * np.pad(smooth, ((delay, 0), (0, 0)))[: len(smooth)]
    gain = np.maximum(1 - np.sqrt(late / (power + 1e-12)), floor)
    return waveform_of(frames * gain, size, hop, len(waveform))


def is_clipped(waveform: np.ndarray, shortest: int = 3) -> np.ndarray:
    """True for each sample at the waveform's highest or lowest value, in a run of at least `shortest`."""
    peak = np.abs(waveform).max(initial=0)
    flat = np.zeros(len(waveform), bool)
    for sign in (1, -1):
        at = sign * waveform >= 0.999 * peak
        inside = at.copy()
        for shift in range(1, shortest):
            inside[:-shift] &= at[shift:]
            inside[-shift:] = False
        for shift in range(shortest):
            flat[shift:] |= inside[: len(inside) - shift] if shift else inside
    return flat


def declipped(waveform: np.ndarray, iterations: int = 60, size: int = 1024) -> np.ndarray:
    """Sparse declipping: alternate a growing number of Fourier coefficients and the clipping's bounds.

    Consistent iterative hard thresholding (Kitic et al. 2013), whose reliable samples stay as they are.
    """
    flat = is_clipped(waveform)
    if not flat.any():
        return waveform
    hop = size // 4
    pieces, masks = framed(waveform, size, hop) * sine_window(size), framed(flat, size, hop)
    rows = np.flatnonzero(masks.any(1))
    known, masked = pieces[rows], masks[rows]
    signs = np.sign(known)
    estimate = known.copy()
    for number in range(1, iterations + 1):
        coefficients = np.fft.rfft(estimate)
        sizes = np.abs(coefficients)
        keep = max(1, number * size // 8 // iterations)
        threshold = np.partition(sizes, -keep, axis=1)[:, -keep, None]
        sparse = np.fft.irfft(np.where(sizes >= threshold, coefficients, 0), size)
        beyond = np.where(signs * sparse > np.abs(known), sparse, known)
        estimate = np.where(masked, beyond, known).astype(np.float32)
    result = pieces.copy()
    result[rows] = estimate
    return overlapped(result, hop, len(waveform))


def smoothly_declipped(waveform: np.ndarray) -> np.ndarray:
    """Replace each clipped run by the cubic through its neighbours."""
    flat = is_clipped(waveform)
    result = waveform.copy()
    edges = np.flatnonzero(np.diff(np.pad(flat, 1).astype(np.int8)))
    for begin, end in edges.reshape(-1, 2):
        if begin < 2 or end > len(waveform) - 2:
            continue
        n = end - begin + 1
        left, right = waveform[begin - 1], waveform[end]
        d0, d1 = (left - waveform[begin - 2]) * n, (waveform[end + 1] - right) * n
        t = np.arange(1, n) / n
        curve = (
            (2 * t**3 - 3 * t**2 + 1) * left
            + (t**3 - 2 * t**2 + t) * d0
            + (3 * t**2 - 2 * t**3) * right
            + (t**3 - t**2) * d1
        )
        sign, level = np.sign(waveform[begin]), np.abs(waveform[begin:end])
        bounded = np.clip(sign * curve, level, 2 * level)  # between steep slopes the curve rises far too high
        result[begin:end] = sign * bounded
    return result


def denoised(waveform: np.ndarray, floor: float = 0.3, over: float = 1.0, seconds: float = 1.5) -> np.ndarray:
    """Subtract stationary noise: the minimum of the smoothed power nearby, as Martin (2001), with a floor."""
    size, hop = 512, 128
    frames = spectrum(waveform, size, hop)
    power = np.square(np.abs(frames))
    kernel = np.hanning(22)[1:-1] / np.hanning(22).sum()
    smooth = np.apply_along_axis(lambda each: np.convolve(each, kernel, "same"), 0, power)
    width = int(seconds * SAMPLE_RATE / hop / 2)
    padded = np.pad(smooth, ((width, width), (0, 0)), mode="reflect")
    noise = 1.5 * np.lib.stride_tricks.sliding_window_view(padded, 2 * width + 1, axis=0).min(-1)
    gain = np.maximum(np.sqrt(np.maximum(1 - over * noise / (power + 1e-12), 0)), floor)
    return waveform_of(frames * gain, size, hop, len(waveform))


TREATMENTS: dict[str, Treatment] = {
    "none": lambda waveform: waveform,
    "even loudness": partial(levelled, rate=SAMPLE_RATE),  # the option even_loudness
    "peak": partial(scaled, peak=0.7),
    "WPE": dereverberated,
    "late suppression": partial(late_suppressed, floor=0.3),
    "WPE and late suppression": lambda waveform: late_suppressed(dereverberated(waveform), floor=0.3),
    "sparse declipping": declipped,
    "cubic declipping": smoothly_declipped,
    "spectral subtraction": denoised,
}
