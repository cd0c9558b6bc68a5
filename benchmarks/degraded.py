"""Degrade clean speech: rooms, noise, other voices, clipping, a low level, a telephone line.

`benchmarks.noise` calls it. Waveforms are float32 [num_samples] at 16 kHz; a generator of random numbers decides all
that is random, so that the same seed gives the same recording.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import soxr

from benchmarks.whisper import SAMPLE_RATE

SPEED_OF_SOUND = 343.0  # m/s
NEAREST, FARTHEST = 1.5, 4.0  # metres from the microphone to the speaker
SMALLEST, LARGEST = (4.0, 3.0, 2.4), (9.0, 7.0, 3.6)  # metres: rooms
LOWEST = 100.0  # Hz, of a room's response
JITTER = 0.08  # metres: images are moved by as much, else a perfect box has sweeping echoes (De Sena et al. 2015)
PEAK = 0.5  # of full scale, of the undegraded recording
VOICES = (0.84, 0.9, 0.95, 1.06, 1.12, 1.2)  # speeds of the voices of a babble, whose pitch follows
ACTIVE = 40.0  # decibels below the loudest frame: the quietest frame of speech
FRAME = SAMPLE_RATE // 100  # samples
TELEPHONE = (300.0, 3400.0)  # Hz
MU = 255.0  # of the telephone's mu-law

# (recording, other speech to make babble of, random numbers) -> the degraded recording
Degrade = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]


def room_response(rt60: float, draw: np.random.Generator) -> np.ndarray:
    """Impulse response of a random rectangular room, by the image method (Allen and Berkley 1979).

    rt60: seconds in which sound decays by 60 dB, as extrapolated from -5 to -25 dB (T20). Above LOWEST.
    """
    room = draw.uniform(SMALLEST, LARGEST)
    while True:
        speaker, microphone = (draw.uniform(0.4, room - 0.4) for _ in range(2))
        if NEAREST <= np.linalg.norm(speaker - microphone) <= FARTHEST:
            break
    seed = draw.integers(1 << 32)
    first = _response(room, speaker, microphone, rt60, np.random.default_rng(seed))
    # A room that is not diffuse decays more slowly than Eyring's formula says.
    nominal = rt60 * rt60 / _decay_time(first)
    return _response(room, speaker, microphone, nominal, np.random.default_rng(seed))


def _response(
    room: np.ndarray, speaker: np.ndarray, microphone: np.ndarray, rt60: float, draw: np.random.Generator
) -> np.ndarray:
    """Impulse response with the walls' absorption by Eyring's formula; the direct sound is at sample 0."""
    distance = np.linalg.norm(speaker - microphone)
    surface = 2 * (room[0] * room[1] + room[0] * room[2] + room[1] * room[2])
    reflection = np.exp(-0.5 * 24 * np.log(10) / SPEED_OF_SOUND * room.prod() / (surface * rt60))
    reach = SPEED_OF_SOUND * rt60 * 1.3
    axes = []  # of each axis: offsets to the images, and the number of reflections
    for length, source, heard in zip(room, speaker, microphone, strict=True):
        cell = np.arange(-int(reach / length) - 1, int(reach / length) + 2)
        offsets = np.concatenate([cell * 2 * length + source - heard, cell * 2 * length - source - heard])
        axes.append((offsets, np.concatenate([np.abs(2 * cell), np.abs(2 * cell - 1)])))
    response = np.zeros(int(rt60 * 1.3 * SAMPLE_RATE) + 1)
    (xs, x_hits), (ys, y_hits), (zs, z_hits) = axes
    for x, hits in zip(xs, x_hits, strict=True):
        squares = x * x + ys[:, None] ** 2 + zs[None] ** 2
        within = squares < reach * reach
        lengths, count = np.sqrt(squares[within]), (hits + y_hits[:, None] + z_hits[None])[within]
        moved = lengths + np.where(count, draw.uniform(-JITTER, JITTER, len(lengths)), 0)
        delays = np.round((moved - distance) / SPEED_OF_SOUND * SAMPLE_RATE).astype(int)
        inside = (delays >= 0) & (delays < len(response))
        gains = reflection ** count[inside] * distance / lengths[inside]
        response += np.bincount(delays[inside], gains, len(response))
    size = 2 * len(response)  # the images add up at 0 Hz, as no walls do
    gains = np.clip(np.fft.rfftfreq(size, 1 / SAMPLE_RATE) * 2 / LOWEST - 1, 0, 1)
    return np.fft.irfft(np.fft.rfft(response, size) * gains, size)[: len(response)]


def _decay_time(response: np.ndarray) -> float:
    """RT60 in seconds, from the backward integral of the power (Schroeder 1965)."""
    remaining = np.cumsum(np.square(response[::-1]))[::-1]
    begin, end = (np.argmax(remaining < remaining[0] * 10**level) for level in (-0.5, -2.5))
    return float(end - begin) / SAMPLE_RATE * 3


def convolved(waveform: np.ndarray, response: np.ndarray) -> np.ndarray:
    """Linear convolution, cut to the waveform's length and scaled to PEAK."""
    size = 1 << (len(waveform) + len(response)).bit_length()
    product = np.fft.rfft(waveform, size) * np.fft.rfft(response, size)
    return scaled(np.fft.irfft(product, size)[: len(waveform)])


def scaled(waveform: np.ndarray, peak: float = PEAK) -> np.ndarray:
    """Scale to a peak."""
    return (waveform * (peak / np.abs(waveform).max())).astype(np.float32)


def speech_power(waveform: np.ndarray) -> float:
    """Mean power of the frames with speech."""
    frames = waveform[: len(waveform) // FRAME * FRAME].reshape(-1, FRAME)
    powers = np.square(frames, dtype=np.float64).mean(axis=1)
    return float(powers[powers > powers.max() * 10 ** (-ACTIVE / 10)].mean())


def mixed(waveform: np.ndarray, noise: np.ndarray, decibels: float) -> np.ndarray:
    """Add noise at a ratio of speech to noise."""
    gain = np.sqrt(speech_power(waveform) / np.square(noise).mean() * 10 ** (-decibels / 10))
    return scaled(waveform + gain * noise)


def white(waveform: np.ndarray, _: np.ndarray, draw: np.random.Generator, decibels: float) -> np.ndarray:
    """Add white noise."""
    return mixed(waveform, draw.normal(size=len(waveform)), decibels)


def pink(waveform: np.ndarray, _: np.ndarray, draw: np.random.Generator, decibels: float) -> np.ndarray:
    """Add noise whose power falls by 3 dB an octave, above 40 Hz."""
    spectrum = np.fft.rfft(draw.normal(size=len(waveform)))
    frequencies = np.fft.rfftfreq(len(waveform), 1 / SAMPLE_RATE)
    return mixed(waveform, np.fft.irfft(spectrum / np.sqrt(np.maximum(frequencies, 40)), len(waveform)), decibels)


def babble(waveform: np.ndarray, others: np.ndarray, draw: np.random.Generator, decibels: float) -> np.ndarray:
    """Add six other voices."""
    noise = np.zeros(len(waveform))
    for speed in VOICES:
        voice = np.roll(soxr.resample(others, SAMPLE_RATE * speed, SAMPLE_RATE), draw.integers(len(others)))
        noise += np.resize(voice, len(waveform))
    return mixed(waveform, noise, decibels)


def reverberant(waveform: np.ndarray, _: np.ndarray, draw: np.random.Generator, rt60: float) -> np.ndarray:
    """Play in a room."""
    return convolved(waveform, room_response(rt60, draw))


def clipped(waveform: np.ndarray, _: np.ndarray, __: np.random.Generator, share: float) -> np.ndarray:
    """Clip this share of the samples with speech, at full scale."""
    loud = np.abs(waveform)[np.abs(waveform) > PEAK * 10 ** (-ACTIVE / 20)]
    return np.clip(waveform / np.quantile(loud, 1 - share), -1, 1).astype(np.float32)


def quiet(waveform: np.ndarray, _: np.ndarray, __: np.random.Generator, decibels: float) -> np.ndarray:
    """Lower the level, and round to 16 bits."""
    return (np.round(waveform * 10 ** (-decibels / 20) * 32768) / 32768).astype(np.float32)


def uneven(waveform: np.ndarray, _: np.ndarray, draw: np.random.Generator, decibels: float) -> np.ndarray:
    """Lower the level of every other stretch of 6 to 10 s, as of a speaker far from the microphone."""
    levels, begin = np.ones(len(waveform)), 0
    while begin < len(waveform):
        loud, soft = draw.integers(6 * SAMPLE_RATE, 10 * SAMPLE_RATE, 2)
        levels[begin + loud : begin + loud + soft] = 10 ** (-decibels / 20)
        begin += loud + soft
    return quiet(waveform * levels, waveform, draw, 0)


def telephone(waveform: np.ndarray, _: np.ndarray, __: np.random.Generator) -> np.ndarray:
    """Cut to the telephone's band, and code as mu-law in 8 bits at 8 kHz."""
    narrow = soxr.resample(waveform, SAMPLE_RATE, SAMPLE_RATE // 2)
    spectrum, frequencies = np.fft.rfft(narrow), np.fft.rfftfreq(len(narrow), 2 / SAMPLE_RATE)
    spectrum[(frequencies < TELEPHONE[0]) | (frequencies > TELEPHONE[1])] = 0
    line = scaled(np.fft.irfft(spectrum, len(narrow)))
    coded = np.round(np.sign(line) * np.log1p(MU * np.abs(line)) / np.log1p(MU) * 127) / 127
    decoded = np.sign(coded) * np.expm1(np.abs(coded) * np.log1p(MU)) / MU
    return soxr.resample(decoded.astype(np.float32), SAMPLE_RATE // 2, SAMPLE_RATE)[: len(waveform)]


def _several(name: str, degrade: Callable[..., np.ndarray], unit: str, values: Sequence[float]) -> dict[str, Degrade]:
    def of(value: float) -> Degrade:
        return lambda waveform, others, draw: degrade(waveform, others, draw, value)

    return {f"{name} {value:g}{unit}": of(value) for value in values}


CONDITIONS: dict[str, Degrade] = {
    "clean": lambda waveform, _, __: waveform,
    **_several("reverb", reverberant, " s", (0.3, 0.6, 0.9, 1.3)),
    **_several("babble", babble, " dB", (20, 15, 10, 5)),
    **_several("white", white, " dB", (20, 15, 10, 5)),
    **_several("pink", pink, " dB", (20, 15, 10, 5)),
    **_several("clipped", clipped, "", (0.05, 0.2, 0.5, 0.8)),
    "-40 dB": partial(quiet, decibels=40),
    "every other stretch -30 dB": partial(uneven, decibels=30),
    "telephone": telephone,
}
RANDOM = ("reverb", "babble", "white", "pink", "every")  # beginnings of the names of those that draw numbers
