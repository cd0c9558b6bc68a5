"""AudioLimits: bounds on a file before it is decoded, and on its samples while it is decoded.

`load_audio` applies them, and reports the memory of the samples to a server's budget (RESERVATION). A header may be
wrong, so `check_sound` and `is_longer` refuse a file before it is decoded only if there is audio beyond the limit: a
seek to that place takes milliseconds. A file that declares no length, or a length that is too short, is measured while
it is decoded (`AudioLimits.counted`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Protocol

from transept.errors import MediaError, MediaTooLargeError
from transept.multimodal.sounds import Sound
from transept.options import Option, take_options

MAX_SECONDS = 24 * 3600.0
MAX_BYTES = 64 << 30  # 64 GiB: of a file on disk, as large as films are
MAX_STREAM_BYTES = 4 << 30  # 4 GiB: all that a WAV file can hold
MAX_DECODED_BYTES = 64 << 30  # 64 GiB: 24 hours of 96 kHz stereo in float32; they are never in memory together
MOST_LIMIT = 2**63 - 1
MOST_CHANNELS = 256  # of the largest arrays of microphones
READ_BYTES = 1 << 20  # of a pipe at a time
SAMPLE_BYTES = 4  # of float32
NEAR_PACKETS = 10_000  # read after a seek, which may land some seconds early
MICROSECONDS = 1_000_000  # in a second: FFmpeg's unit for the duration of a container


class Reservation(Protocol):
    """One recording's share of a budget. Both methods are called in the thread that decodes the recording."""

    def expect(self, num_bytes: int) -> None:
        """Wait until there is room for a recording that declares so many bytes of samples. May raise."""

    def hold(self, num_bytes: int) -> None:
        """Record that so many bytes have been decoded so far. Does not wait; raises if they do not fit."""


# A server sets it for each request; the request's job carries it into the threads that decode.
RESERVATION: ContextVar[Reservation | None] = ContextVar("transept_decoded_memory", default=None)


def expect(num_bytes: float) -> None:
    """Report the declared size of a recording to the current context's budget, if there is one."""
    if (reservation := RESERVATION.get()) is not None:
        reservation.expect(int(num_bytes))


def limit(help: str, more: str = "", default: str = "") -> Option:
    """Declare a limit: a number above 0, or None for no limit."""
    return Option(help, more, default=default, metavar="N", gt=0, le=MOST_LIMIT, unset="no limit")


def check_window(seconds: float, longest: float) -> None:
    """Raise MediaError if audio is longer than one request may be; input mappers call it. Both are in seconds."""
    if seconds > longest:
        raise MediaError(
            f"the audio is {seconds:.2f} s long, and one request carries at most {longest:g} s. Use "
            "transept.transcribe, which takes audio of any length, or split it"
        )


class AudioTooLongError(MediaTooLargeError):
    """A recording has more than max_audio_seconds."""


@dataclass(frozen=True)
class AudioLimits:
    """The limits on one recording, named as in `load_audio`; None: no limit.

    Raises ParameterError for anything but a number above 0 and None.
    """

    max_audio_seconds: Annotated[float | None, limit("refuse longer recordings", "In seconds.", default="24 hours")] = (
        MAX_SECONDS
    )
    max_audio_bytes: Annotated[
        int | None, limit("refuse larger recordings", "Before they are decoded.", default="64 GiB")
    ] = MAX_BYTES
    max_stream_bytes: Annotated[
        int | None,
        limit("refuse larger recordings from a pipe or an open file", "They are held in memory.", default="4 GiB"),
    ] = MAX_STREAM_BYTES
    max_decoded_bytes: Annotated[
        int | None,
        limit(
            "refuse recordings with more samples",
            "As float32, of all channels at the recording's own sample rate, or mono at the model's. They are counted "
            "during decoding; only samples at the model's rate are kept.",
            default="64 GiB",
        ),
    ] = MAX_DECODED_BYTES

    def __post_init__(self) -> None:
        take_options(self)

    def check_size(self, num_bytes: int, name: str) -> None:
        """Raise MediaError for encoded audio of more bytes than max_audio_bytes."""
        if self.max_audio_bytes is not None and num_bytes > self.max_audio_bytes:
            raise MediaTooLargeError(
                f"{name} has more than the {self.max_audio_bytes} bytes of {{max_audio_bytes}}: split or compress it, "
                "or raise that limit",
                others=["max_audio_bytes"],
            )

    def read(self, file: BinaryIO, name: str) -> io.BytesIO:
        """Read all of a pipe.

        Raises MediaError as soon as it exceeds max_stream_bytes or max_audio_bytes, and for a file that is not opened
        in binary mode, cannot be read, or has no unread data.
        """
        held = io.BytesIO()
        while piece := _read(file, name):
            if not isinstance(piece, bytes):
                raise MediaError(f'{name} gives {type(piece).__name__}, not bytes: open it with mode "rb"')
            held.write(piece)
            self.check_size(held.tell(), name)
            if self.max_stream_bytes is not None and held.tell() > self.max_stream_bytes:
                raise MediaTooLargeError(
                    f"{name} has more than the {self.max_stream_bytes} bytes of {{max_stream_bytes}}, which are held "
                    "in memory: pass it as the path of a file, or raise that limit",
                    others=["max_stream_bytes"],
                )
        if not held.tell() and _position(file):
            raise MediaError(f"{name} has no unread data, because it was read or written before: call seek(0) first")
        held.seek(0)
        return held

    def counted(
        self, sounds: Iterable[Sound], sample_rate: int, name: str, *, apart: bool = False, begin: float = 0.0
    ) -> Iterator[Sound]:
        """Yield the sounds of one recording, and raise once they exceed the limits.

        sample_rate: of the resulting mono waveform, in Hz. apart: True if channels are kept unmixed. begin: seconds of
        the recording before these sounds.
        Raises AudioTooLongError for more than max_audio_seconds, MediaError for more than max_decoded_bytes before or
        after mixing and resampling, and for more than MOST_CHANNELS channels.
        """
        seconds, num_bytes = begin, begin * sample_rate * SAMPLE_BYTES
        for sound in sounds:
            channels = len(sound.samples)
            if channels > MOST_CHANNELS:
                raise MediaError(f"{name} has {channels} channels; up to {MOST_CHANNELS} are mixed: pass some of them")
            seconds += sound.seconds
            num_bytes += sound.samples.size * SAMPLE_BYTES
            self.check_length(seconds, channels, sound.rate, sample_rate, name, apart, num_bytes)
            if (reservation := RESERVATION.get()) is not None:
                reservation.hold(int(kept_bytes(seconds, sample_rate, channels, apart)))
            yield sound

    def longest_seconds(self, channels: int, rate: float, sample_rate: int, *, apart: bool) -> float | None:
        """Return the longest signal that max_audio_seconds and max_decoded_bytes allow, in seconds; None: any length.

        The arguments are those of `check_length`.
        """
        limits = [] if self.max_audio_seconds is None else [float(self.max_audio_seconds)]
        if self.max_decoded_bytes is not None:
            a_second = max(rate * channels * SAMPLE_BYTES, kept_bytes(1, sample_rate, channels, apart))
            limits.append(self.max_decoded_bytes / a_second)
        return min(limits, default=None)

    def check_seconds(self, seconds: float, name: str) -> None:
        """Raise AudioTooLongError for a recording of more than max_audio_seconds."""
        if self.max_audio_seconds is not None and seconds > self.max_audio_seconds:
            raise AudioTooLongError(
                f"{name} is longer than the {self.max_audio_seconds:g} seconds of {{max_audio_seconds}}: split it, or "
                "raise that limit",
                others=["max_audio_seconds"],
            )

    def check_length(
        self,
        seconds: float,
        channels: int,
        rate: float,
        sample_rate: int,
        name: str,
        apart: bool,
        num_bytes: float | None = None,
    ) -> None:
        """Raise AudioTooLongError for more than max_audio_seconds, MediaTooLargeError for more than max_decoded_bytes.

        rate: of the signal, in Hz; sample_rate: of the resulting waveform. apart: True if channels are kept unmixed.
        num_bytes: of all its samples as float32; default: computed from seconds.
        """
        self.check_seconds(seconds, name)
        num_bytes = seconds * rate * channels * SAMPLE_BYTES if num_bytes is None else num_bytes
        most = max(num_bytes, kept_bytes(seconds, sample_rate, channels, apart))
        if self.max_decoded_bytes is not None and most > self.max_decoded_bytes:
            raise MediaTooLargeError(
                f"{name} is more than the {self.max_decoded_bytes} bytes of {{max_decoded_bytes}} when it is decoded "
                f"({channels} channels at {rate:g} Hz): split it, or raise that limit",
                others=["max_decoded_bytes"],
            )


def kept_bytes(seconds: float, sample_rate: int, channels: int, apart: bool) -> float:
    """Number of bytes of a signal's samples at sample_rate: of the mono mix, or of all channels if apart."""
    return seconds * sample_rate * SAMPLE_BYTES * (channels if apart else 1)


def _position(file: BinaryIO) -> int:
    """Return the position of a file; 0 if it has none."""
    try:
        return file.tell()
    except (AttributeError, OSError, ValueError):  # of a pipe, say
        return 0


def _read(file: BinaryIO, name: str) -> Any:
    try:
        return file.read(READ_BYTES)
    except Exception as error:  # a stream may raise anything: it is closed, cut off, or broken in its own way
        raise MediaError(f"{name} cannot be read: {type(error).__name__}: {error}") from error


def check_sound(sound: Any, sample_rate: int, limits: AudioLimits, name: str, *, apart: bool) -> None:
    """Raise MediaError if a file that libsndfile opened is longer than the limits; else leave it at its beginning.

    sound: soundfile.SoundFile. sample_rate: the one to resample to, in Hz. apart: True if channels are kept unmixed.
    """
    longest = limits.longest_seconds(sound.channels, sound.samplerate, sample_rate, apart=apart)
    last = int(longest * sound.samplerate) if longest is not None else sound.frames
    if sound.frames <= last:
        expect(kept_bytes(sound.frames / sound.samplerate, sample_rate, sound.channels, apart))
        return
    if _has_sound_at(sound, last):
        limits.check_length(sound.frames / sound.samplerate, sound.channels, sound.samplerate, sample_rate, name, apart)
    sound.seek(0)


def _has_sound_at(sound: Any, frame: int) -> bool:
    import soundfile

    try:
        return sound.seek(frame) == frame and len(sound.read(1, dtype="float32")) == 1
    except soundfile.LibsndfileError:  # the header is wrong: the file ends earlier
        return False


def is_longer(container: Any, stream: Any, sample_rate: int, limits: AudioLimits, name: str, *, apart: bool) -> bool:
    """Raise MediaError if a stream of a container that FFmpeg opened is longer than the limits.

    Returns True if the stream declares more, but is shorter: the container has been read, and must be reopened.
    """
    if not stream.codec_context.sample_rate:
        return False
    rate, channels = stream.codec_context.sample_rate, stream.codec_context.channels
    declared = stream.duration * stream.time_base if stream.duration else (container.duration or 0) / MICROSECONDS
    longest = limits.longest_seconds(channels, rate, sample_rate, apart=apart)
    if longest is None or declared <= longest:
        expect(kept_bytes(float(declared), sample_rate, channels, apart))
        return False
    if _has_packet_at(container, stream, longest):
        limits.check_length(float(declared), channels, rate, sample_rate, name, apart)
    return True


def _has_packet_at(container: Any, stream: Any, seconds: float) -> bool:
    """True if a packet of the stream ends later. FFmpeg's seek is exact for audio, even without an index."""
    import av

    target = (stream.start_time or 0) + int(seconds / stream.time_base)
    try:
        container.seek(target, stream=stream, backward=True)
        for _, packet in zip(range(NEAR_PACKETS), container.demux(stream), strict=False):
            if packet.pts is not None and packet.size and packet.pts + (packet.duration or 0) > target:
                return True
    except av.FFmpegError:  # it ends earlier or is not seekable: decoding measures it
        pass
    return False
