"""Audio: from a file, bytes or a waveform to mono float32 samples.

Input mappers of speech families and `transept.speech` call it. libsndfile reads some formats (wav, flac, ogg, ...),
FFmpeg through PyAV the others (mp3, m4a, mp4, webm, mkv, ...); both are in Python packages (`audio_file`, `media`).
Nothing here cuts audio, and only an AudioUrl opens a URL. `audio_limits` bounds the amount of audio.
PyAV is imported with the first file that libsndfile does not read, or that is not at the wanted rate.
"""

from __future__ import annotations

import io
import logging
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, Unpack

import numpy as np

from transept.errors import MediaError
from transept.multimodal.audio_file import READABLE, decode_file
from transept.multimodal.audio_limits import MAX_BYTES, MAX_DECODED_BYTES, MAX_SECONDS, MAX_STREAM_BYTES
from transept.multimodal.audio_tracks import checked_track, only_track
from transept.multimodal.audio_url import AudioUrl, is_url
from transept.multimodal.channels import EACH, HIGHEST_PEAK, MIX, Intake, joined, one_channel, soxr_blocks
from transept.multimodal.media import decode_media
from transept.multimodal.missing_files import why_unopened
from transept.multimodal.sounds import sounds_at
from transept.multimodal.waveforms import EXPECTED, SupportsArray, Waveform, channels_of, is_array

if TYPE_CHECKING:
    from transept.multimodal.option_types import AudioLimitKeywords

# path, URL, contents, open file, samples at 16 kHz (an array or a tensor), (waveform, rate)
AudioInput: TypeAlias = (
    str | os.PathLike[str] | AudioUrl | bytes | bytearray | memoryview | BinaryIO | SupportsArray | tuple[Any, float]
)

SAMPLE_RATE = 16_000  # Hz; speech encoders expect this rate

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedAudio:
    """The waveforms of a recording, and the faults found in it.

    waveforms: float32 [num_samples] each: one, or one for each channel. warnings: damage, missing audio, a silent track
    and the like, each with its time; each continues a sentence that begins "the recording is". other_tracks: names of
    the audio tracks that were not used, such as `1 ("spa")`.
    """

    waveforms: list[Waveform]
    warnings: list[str]
    other_tracks: list[str]


def load_recording(
    data: AudioInput,
    sample_rate: int = SAMPLE_RATE,
    *,
    channel: str = MIX,
    audio_track: int | str | None = None,
    **limits: Unpack[AudioLimitKeywords],
) -> LoadedAudio:
    """Return the waveforms of a recording and its warnings, which are also logged.

    channel: as in `load_audio`, or ``"each"``: every channel separately. The other arguments and the errors are those
    of `load_audio` and `load_channels`.
    """
    if channel != EACH:
        one_channel(channel)
    intake = Intake(**limits, channel=channel, audio_track=checked_track(audio_track))
    waveforms = _load(data, sample_rate, intake)
    for warning in intake.warnings:
        logger.warning("%s is %s", audio_name(data), warning)
    return LoadedAudio(waveforms, intake.warnings, intake.other_tracks)


def load_audio(
    data: AudioInput,
    sample_rate: int = SAMPLE_RATE,
    *,
    channel: str = MIX,
    audio_track: int | str | None = None,
    max_audio_seconds: float | None = MAX_SECONDS,
    max_audio_bytes: int | None = MAX_BYTES,
    max_stream_bytes: int | None = MAX_STREAM_BYTES,
    max_decoded_bytes: int | None = MAX_DECODED_BYTES,
) -> Waveform:
    """Decode, mix to mono or take one channel, and resample.

    data: a path; an AudioUrl; the bytes of a file; a file or pipe opened to read bytes, from where it stands; an array
        or tensor of floats at 16 kHz; or ``(waveform, sample_rate)``, the waveform an array, tensor or list, floats in
        [-1, 1] or PCM as int16, int32 or uint8. Both are mono [num_samples] or have channels on either side: the
        shorter axis is the channels ([2, 2] counts as [channels, samples]).
    sample_rate: of the result, in Hz.
    channel: ``"mix"``, the mean of all, or the left one of two that cancel each other; ``"left"``, the first;
        ``"right"``, the second.
    audio_track: the number of a container's audio track, from 0, or its language, such as ``"eng"``, ``"English"`` or
        ``"en"``; None: the one that FFmpeg deems best, or the loudest if that is silent.
    max_audio_seconds, max_audio_bytes, max_stream_bytes, max_decoded_bytes: limits on the recording's length; on its
        bytes before decoding; on bytes of a pipe or an open file, which are held in memory; on bytes of its samples as
        float32, of all channels at its own rate or mono at `sample_rate`. None: no limit. Decoding stops at the first
        limit that is exceeded, so memory is bounded as well.
    Returns float32 [num_samples] in [-1, 1], but for the small overshoot that lossy codecs and resampling leave. Files
    are resampled by FFmpeg, as for openai-whisper and faster-whisper, waveforms by soxr's high quality, as in
    librosa.resample. Sample 0 is the start of the file: a track that begins later than the picture has silence before
    it, and lost packets become silence. If the sample rate or the channels change within a file, resampling restarts
    there. A truncated or damaged file gives everything that can be decoded, with a warning in the log.
    Raises MediaError when there is nothing to decode, beyond a limit, for impossible samples or sample rates, and for a
    channel or a track that does not exist; ParameterError for an invalid limit, channel or track.
    """
    return load_recording(
        data,
        sample_rate,
        channel=one_channel(channel),
        audio_track=audio_track,
        max_audio_seconds=max_audio_seconds,
        max_audio_bytes=max_audio_bytes,
        max_stream_bytes=max_stream_bytes,
        max_decoded_bytes=max_decoded_bytes,
    ).waveforms[0]


def load_channels(
    data: AudioInput,
    sample_rate: int = SAMPLE_RATE,
    *,
    audio_track: int | str | None = None,
    **limits: Unpack[AudioLimitKeywords],
) -> list[Waveform]:
    """Return the channels of a recording, two or more, in their order, each as `load_audio` returns one.

    The arguments and the errors are those of `load_audio`. Raises MediaError for a recording with one channel.
    """
    return load_recording(data, sample_rate, channel=EACH, audio_track=audio_track, **limits).waveforms


def audio_name(data: Any) -> str:
    """Return the name of a recording in messages; data: as for `load_audio`."""
    if isinstance(data, AudioUrl):
        return f'audio from "{data.url}"'
    if isinstance(data, bytes | bytearray | memoryview):
        return f"audio data of {memoryview(data).nbytes} bytes"
    if hasattr(data, "read"):
        own = getattr(data, "name", None)
        return f'audio from "{own}"' if isinstance(own, str) else f"audio from an open {type(data).__name__}"
    return f'audio file "{os.fspath(data)}"' if isinstance(data, str | os.PathLike) else "the waveform"


def _load(data: Any, sample_rate: int, limits: Intake) -> list[Waveform]:
    """Return the wanted waveforms of a recording, as `load_audio` takes it: one, or one for each channel."""
    if isinstance(data, tuple):
        return _checked(_from_pair(data, sample_rate, limits), "the waveform")
    if is_array(data):
        return _checked(_from_array(data, sample_rate, limits), "the waveform")
    if isinstance(data, bytes | bytearray | memoryview):
        try:
            name, num_bytes, file = audio_name(data), memoryview(data).nbytes, io.BytesIO(data)
        except (BufferError, ValueError) as error:  # not contiguous, released
            raise MediaError(f"audio data in a {type(data).__name__} cannot be read: {error}. Pass bytes") from None
        limits.check_size(num_bytes, name)
        return _checked(decode_file(file, name, sample_rate, limits), name)
    if isinstance(data, AudioUrl):
        return _from_url(data, sample_rate, limits)
    if isinstance(data, io.TextIOBase):
        raise MediaError('audio came as a file opened to read text; open it with "rb"')
    if hasattr(data, "read"):
        name = audio_name(data)
        return _checked(decode_file(limits.read(data, name), name, sample_rate, limits), name)
    if not isinstance(data, str | os.PathLike):
        raise MediaError(
            f"audio of type {type(data).__name__} cannot be read: pass a path, the bytes of a file, a file opened to "
            f"read bytes, an array of floats at {SAMPLE_RATE} Hz, or (waveform, sample_rate)"
        )
    try:
        name = audio_name(data)
    except TypeError as error:
        raise MediaError(f"audio of type {type(data).__name__} names no file: {error}") from None
    with _open(data, name) as opened:
        try:
            rewindable = opened if opened.seekable() else limits.read(opened, name)  # decoders rewind; a pipe cannot
            limits.check_size(os.fstat(opened.fileno()).st_size, name)
            return _checked(decode_file(rewindable, name, sample_rate, limits), name)
        except OSError as error:
            raise MediaError(f"{name} cannot be read: {error.strerror or error}. Copy it to a file first") from None


def _from_url(data: AudioUrl, sample_rate: int, limits: Intake) -> list[Waveform]:
    """Fetch and decode with FFmpeg. Raises MediaError if the connection breaks."""
    import av

    def opened() -> Any:
        return av.open(data.url, metadata_errors="replace", **data.opening())

    name = audio_name(data)
    try:
        reason = "a URL is left to FFmpeg"
        return _checked(decode_media(opened, name, sample_rate, limits, reason, READABLE), name)
    except av.FFmpegError as error:
        reason = "the server sent no data in time" if isinstance(error, av.error.ExitError) else error.strerror
        raise MediaError(f"{name} cannot be read: {reason}") from None


def _from_pair(data: tuple[Any, ...], sample_rate: int, limits: Intake) -> list[Waveform]:
    if len(data) != 2:
        raise MediaError(f"audio came as a tuple of {len(data)}: {EXPECTED}")
    waveform, rate = data
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.integer | np.floating):
        raise MediaError(f"audio came with a sample rate of type {type(rate).__name__}: {EXPECTED}")
    channels = channels_of(waveform)
    try:
        rate = float(rate)
    except OverflowError:
        rate = math.inf
    only_track(limits.audio_track, "the waveform")
    return joined(sounds_at(rate, [channels]), sample_rate, "the waveform", limits, soxr_blocks)


def _from_array(data: Any, sample_rate: int, limits: Intake) -> list[Waveform]:
    """Resample an array or tensor of floats at SAMPLE_RATE."""
    channels = channels_of(data)
    if channels.dtype.kind != "f":
        raise MediaError(
            f"an array of {channels.dtype} alone does not say its sample rate: pass (waveform, sample_rate), or floats "
            f"in [-1, 1] at {SAMPLE_RATE} Hz"
        )
    only_track(limits.audio_track, "the waveform")
    return joined(sounds_at(SAMPLE_RATE, [channels]), sample_rate, "the waveform", limits, soxr_blocks)


def _open(path: str | os.PathLike[str], name: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        advice = ". Pass the path of a local file" if is_url(os.fsdecode(path)) else ""
        raise MediaError(f"{name} cannot be opened: {why_unopened(path, error)}{advice}") from None


def _checked(waveforms: list[Waveform], name: str) -> list[Waveform]:
    """Return the waveforms. Raises MediaError if they are empty or their samples are not audio."""
    if not all(waveform.size for waveform in waveforms):
        raise MediaError(f"{name} holds no audio: it is empty, or shorter than one sample")
    # The peak is NaN if any sample is.
    peak = max(max(float(waveform.max()), -float(waveform.min())) for waveform in waveforms)
    if not np.isfinite(peak):
        raise MediaError(f"{name} has samples that are not finite (NaN or infinity): replace or remove them")
    if peak > HIGHEST_PEAK:
        raise MediaError(
            f"{name} has float samples up to {peak:g}, but full scale is 1.0: divide them by the full scale of the PCM "
            "they came from (32768 for 16 bits), or pass integers"
        )
    return waveforms
