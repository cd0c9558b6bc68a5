"""Feed: the queue of a stream's audio, from the threads that push it to the stream's job. Resamples it to 16 kHz."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from os import PathLike
from types import UnionType
from typing import Any, TypeAlias

import numpy as np

from transept.core.jobs.job import Signal
from transept.errors import MediaError, ParameterError, TranseptError, shown
from transept.multimodal.cancellation import ArrivingMix
from transept.multimodal.channels import HIGHEST_PEAK, HIGHEST_RATE, LOWEST_RATE
from transept.multimodal.waveforms import NO_SAMPLES, SupportsArray, Waveform, channels_of, is_array, mono
from transept.speech.vad.spans import SAMPLE_RATE

logger = logging.getLogger(__name__)

WAKING = 0.1  # seconds of unread audio that wake the job, so that not every tiny packet costs a step
MOST_UNREAD = 30.0  # seconds of unread audio from which on `wait_for_room` waits

Chunk: TypeAlias = bytes | bytearray | memoryview | SupportsArray  # PCM in 16 bits, or an array of floats or integers


@dataclass(frozen=True)
class Arrived:
    """Samples at the chunk's own rate, float32, and the time of their arrival in seconds of the feed's clock."""

    samples: Waveform
    time: float


class Feed:
    """A queue of chunks. Its only reader is the job, which sleeps on `signal`; any thread may call the other methods.

    rate: of the chunks, in Hz. clock: returns monotonic time in seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = _checked_rate(rate)
        self.clock = clock
        self.signal = Signal()
        self.is_closed = False
        self._chunks: deque[Arrived] = deque()
        self._num_unread = 0  # samples
        self._odd = b""  # half a sample at the end of the last bytes
        self._room = threading.Condition()  # guards the three fields above
        self._mixer, self._has_warned = ArrivingMix(), False  # only for the thread that pushes
        self._resampler: Any = None  # soxr's, used by the reader alone; set by `resampled`

    @property
    def unread(self) -> float:
        """Seconds of audio that the job has not read."""
        return self._num_unread / self.rate

    def push(self, chunk: Chunk) -> None:
        """Add audio. Never waits. Raises MediaError for anything but audio, TranseptError if the feed is closed."""
        if not self._add(chunk):
            raise TranseptError("this live stream is closed; open another one for more audio")

    def _add(self, chunk: Chunk) -> bool:
        """Add audio. Returns False, and adds none, if the feed is closed."""
        samples = self._samples(chunk)
        with self._room:
            if self.is_closed:
                return False
            if not len(samples):
                return True
            self._chunks.append(Arrived(samples, self.clock()))
            self._num_unread += len(samples)
            wakes = self.unread >= WAKING
        if wakes:
            self.signal.set()
        return True

    def close(self) -> None:
        """End the stream after the audio so far. Further calls have no effect."""
        with self._room:
            self.is_closed = True
            self._room.notify_all()
        self.signal.set()

    def push_all(self, chunks: Iterable[Chunk]) -> None:
        """Push chunks until they end or the feed is closed, then close it. Waits for chunks and for room."""
        try:
            for chunk in chunks:
                self.wait_for_room()
                if self.is_closed or not self._add(chunk):
                    return
        finally:
            self.close()

    def wait_for_room(self) -> None:
        """Wait while MOST_UNREAD seconds of audio are unread, so that a file does not fill the memory."""
        with self._room:
            self._room.wait_for(lambda: self.is_closed or self.has_room)

    @property
    def has_room(self) -> bool:
        """True if less than MOST_UNREAD seconds of audio are unread."""
        return self.unread < MOST_UNREAD

    def has_news(self) -> bool:
        """True if WAKING seconds of audio are unread, or the stream is closed."""
        return self.is_closed or self.unread >= WAKING

    def take(self, most: float) -> list[Arrived]:
        """Remove and return the oldest audio, at most `most` seconds, rounded up to a sample. Only for the job."""
        taken: list[Arrived] = []
        room = math.ceil(most * self.rate)  # samples
        with self._room:
            while self._chunks and room > 0:
                first = self._chunks.popleft()
                if len(first.samples) > room:
                    self._chunks.appendleft(Arrived(first.samples[room:], first.time))
                    first = Arrived(first.samples[:room], first.time)
                taken.append(first)
                room -= len(first.samples)
                self._num_unread -= len(first.samples)
            self._room.notify_all()
        return taken

    def resampled(self, samples: Waveform, *, last: bool = False) -> Waveform:
        """Return the next samples at SAMPLE_RATE. last: flush the resampler. Only for the job."""
        if self.rate == SAMPLE_RATE:
            return samples
        if self._resampler is None:
            import soxr

            self._resampler = soxr.ResampleStream(self.rate, SAMPLE_RATE, num_channels=1, dtype="float32", quality="HQ")
        found: Waveform = self._resampler.resample_chunk(np.ascontiguousarray(samples), last=last)
        return found

    def _samples(self, chunk: Any) -> Waveform:
        if isinstance(chunk, bytes | bytearray | memoryview):
            with self._room:
                data = self._odd + bytes(chunk)
                whole = len(data) // 2 * 2
                self._odd = data[whole:]
            pcm = np.frombuffer(data[:whole], "<i2")
            return mono(pcm.astype(np.int16, copy=False)[None])
        if not (is_array(chunk) or isinstance(chunk, list)) or getattr(chunk, "ndim", 1) not in (1, 2):
            message = "a chunk is PCM in 16 bits as bytes, or an array [num_samples] or [channels, num_samples]"
            raise MediaError(f"{message}, not {shown(chunk)}")
        samples = channels_of(chunk)
        waveform = self._mix(samples) if samples.size else NO_SAMPLES
        if not np.isfinite(waveform).all():
            raise MediaError("the chunk has samples that are not finite numbers; pass floats in [-1, 1]")
        if (peak := float(np.abs(waveform).max(initial=0.0))) > HIGHEST_PEAK:
            message = f"the chunk has float samples up to {peak:g}, but full scale is 1.0: divide, or pass integers"
            raise MediaError(message)
        return waveform.copy() if waveform.base is not None or waveform is chunk else waveform

    def _mix(self, samples: Any) -> Waveform:
        """Mix channels, [channels, num_samples] of any numbers."""
        if len(samples) == 1:
            return mono(samples)
        floats = np.stack([mono(channel[None]) for channel in samples])
        waveform = self._mixer.mixed(floats, self.rate)
        if self._mixer.is_cancelled and not self._has_warned:
            self._has_warned = True
            logger.warning("the live stream is read from one channel where its channels cancel each other in the mix")
        return waveform


def check_chunks(chunks: Any, kinds: type | UnionType = Iterable) -> None:
    """Raise ParameterError if an argument does not yield chunks, but is one itself, a path, or something else."""
    is_chunk = isinstance(chunks, str | bytes | bytearray | memoryview | PathLike)
    is_chunk = is_chunk or (is_array(chunks) and getattr(chunks, "ndim", 1) < 2)
    if is_chunk or not isinstance(chunks, kinds):
        message = "{chunks} must yield audio as it arrives, such as a generator or a list of arrays"
        raise ParameterError(f"{message}, not {shown(chunks)}", param="chunks", value=chunks)


def _checked_rate(rate: Any) -> float:
    is_number = isinstance(rate, Real) and not isinstance(rate, bool)
    if not (is_number and LOWEST_RATE <= rate <= HIGHEST_RATE):
        message = f"{{rate}} must be a number of {LOWEST_RATE} to {HIGHEST_RATE} Hz, not {shown(rate)}"
        raise ParameterError(message, param="rate", value=rate)
    return float(rate)
