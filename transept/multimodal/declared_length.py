"""Compare the length that a file declares with the limits, and report it to the memory budget, before decoding.

`audio_file` and `media` call it for each file. A header may be wrong, so a file is refused only if there is audio
beyond the limit: a seek to that place takes milliseconds. A file that declares no length, or a length that is too
short, is measured while it is decoded (`AudioLimits.counted`).
"""

from __future__ import annotations

from typing import Any

from transept.multimodal.audio_limits import AudioLimits, kept_bytes
from transept.multimodal.decoded_memory import expect

NEAR_PACKETS = 10_000  # read after a seek, which may land some seconds early
MICROSECONDS = 1_000_000  # in a second: FFmpeg's unit for the duration of a container


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
