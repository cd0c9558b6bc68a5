"""Audio: from a file, bytes or a waveform to mono float32 samples.

Input mappers of speech families and `transept.speech` call it. libsndfile reads what it can (wav, flac, ogg, ...),
FFmpeg through PyAV the rest (mp3, m4a, mp4, webm, mkv, ...); neither needs a program installed. Nothing here cuts
audio, and nothing here opens a URL but an AudioUrl's. How much is taken in is bounded (`audio_limits`). PyAV loads with
the first file that is not libsndfile's, or not at the wanted rate.
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import soundfile

from transept.errors import MediaError
from transept.multimodal.audio_limits import MAX_BYTES, MAX_DECODED_BYTES, MAX_SECONDS, MAX_STREAM_BYTES
from transept.multimodal.audio_url import AudioUrl
from transept.multimodal.channels import EACH, MIX, Intake, one_channel
from transept.multimodal.declared_length import check_sound, is_longer
from transept.multimodal.resampling import joined, soxr_blocks, swresample_blocks
from transept.multimodal.waveforms import EXPECTED, Waveform, channels_of, is_array

SAMPLE_RATE = 16_000  # Hz; what speech encoders are trained on

HIGHEST_PEAK = 16.0  # 24 dB over full scale: lossy codecs overshoot 1.0 a little, unscaled integers by far more
FLOAT_PCM = ("FLOAT", "DOUBLE")  # libsndfile's names for samples as they were written
BLOCK_SAMPLES = 1 << 18  # decoded at a time, over all channels; 1 MiB of float32

READABLE = (
    "Any file that libsndfile or FFmpeg decodes works (wav, flac, ogg, opus, mp3, m4a, mp4, webm, mkv, ...); "
    "headerless samples go in as (waveform, sample_rate), on the command line with --pcm"
)

logger = logging.getLogger(__name__)


def load_audio(
    data: Any,
    sample_rate: int = SAMPLE_RATE,
    *,
    channel: str = MIX,
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
    channel: ``"mix"``, the mean of all; ``"left"``, the first; ``"right"``, the second.
    max_audio_seconds, max_audio_bytes, max_stream_bytes, max_decoded_bytes: limits on the recording's length; on its
        bytes before it is decoded; on those of a pipe or an open file, which are held in memory; on those of its
        samples as float32, of all channels at its own rate or mono at `sample_rate`. None: no limit. What goes beyond
        one is given up there, so that memory is bounded, too.
    Returns float32 [num_samples] in [-1, 1], but for the small overshoot that lossy codecs and resampling leave. Files
    are resampled by FFmpeg, as for openai-whisper and faster-whisper, waveforms by soxr's high quality, as in
    librosa.resample. Of a truncated or damaged file, what can be decoded; of several audio tracks, the one that FFmpeg
    deems best.
    Raises MediaError when there is nothing to decode, for what is beyond a limit, and for samples or sample rates that
    cannot be meant, and for a channel that is not there; ParameterError for what is no limit or no channel.
    """
    limits = (max_audio_seconds, max_audio_bytes, max_stream_bytes, max_decoded_bytes)
    return _load(data, sample_rate, Intake(*limits, channel=one_channel(channel)))[0]


def load_channels(data: Any, sample_rate: int = SAMPLE_RATE, **limits: Any) -> list[Waveform]:
    """The channels of a recording, two or more, each as `load_audio` gives one, in their order.

    limits: the keywords of `load_audio`. Raises what that does, and MediaError for a recording of one channel.
    """
    return _load(data, sample_rate, Intake(**limits, channel=EACH))


def audio_name(data: Any) -> str:
    """How messages name a recording that is given as to `load_audio`."""
    if isinstance(data, AudioUrl):
        return f'audio from "{data.url}"'
    if isinstance(data, bytes | bytearray | memoryview):
        return f"audio data of {memoryview(data).nbytes} bytes"
    if hasattr(data, "read"):
        own = getattr(data, "name", None)
        return f'audio from "{own}"' if isinstance(own, str) else f"audio from an open {type(data).__name__}"
    return f'audio file "{os.fspath(data)}"' if isinstance(data, str | os.PathLike) else "the waveform"


def _load(data: Any, sample_rate: int, limits: Intake) -> list[Waveform]:
    """What is wanted of a recording, as `load_audio` takes it: one waveform, or one a channel."""
    if isinstance(data, tuple):
        return _checked(_from_pair(data, sample_rate, limits), "the waveform")
    if is_array(data):
        return _checked(_from_array(data, sample_rate, limits), "the waveform")
    if isinstance(data, bytes | bytearray | memoryview):
        return _from_bytes(data, sample_rate, limits)
    if isinstance(data, AudioUrl):
        return _from_url(data, sample_rate, limits)
    if isinstance(data, io.TextIOBase):
        raise MediaError('audio came as a file opened to read text; open it with "rb"')
    if hasattr(data, "read"):
        name = audio_name(data)
        return _checked(_decode(limits.read(data, name), name, sample_rate, limits), name)
    if not isinstance(data, str | os.PathLike):
        raise MediaError(
            f"audio of type {type(data).__name__} cannot be read: pass a path, the bytes of a file, a file opened to "
            f"read bytes, an array of floats at {SAMPLE_RATE} Hz, or (waveform, sample_rate)"
        )
    try:
        name = audio_name(data)
    except TypeError as error:
        raise MediaError(f"audio of type {type(data).__name__} names no file: {error}") from None
    with _open(data, name) as file:
        try:
            rewindable = file if file.seekable() else limits.read(file, name)  # a pipe is not, and decoders rewind
            limits.check_size(os.fstat(file.fileno()).st_size, name)
            return _checked(_decode(rewindable, name, sample_rate, limits), name)
        except OSError as error:
            raise MediaError(f"{name} cannot be read: {error.strerror or error}. Copy it to a file first") from None


def _from_bytes(data: bytes | bytearray | memoryview, sample_rate: int, limits: Intake) -> list[Waveform]:
    """The bytes of a file -> mono at the wanted rate."""
    try:
        name, num_bytes, file = audio_name(data), memoryview(data).nbytes, io.BytesIO(data)
    except (BufferError, ValueError) as error:  # not contiguous, released
        raise MediaError(f"audio data in a {type(data).__name__} cannot be read: {error}. Pass bytes") from None
    limits.check_size(num_bytes, name)
    return _checked(_decode(file, name, sample_rate, limits), name)


def _from_url(data: AudioUrl, sample_rate: int, limits: Intake) -> list[Waveform]:
    """What FFmpeg fetches -> mono at the wanted rate. Raises MediaError for one that breaks off, too."""
    import av

    name = audio_name(data)
    try:
        with av.open(data.url, metadata_errors="replace", **data.opening()) as container:
            return _checked(_samples(container, name, sample_rate, limits, "a URL is left to FFmpeg"), name)
    except av.FFmpegError as error:
        reason = "nothing came in time" if isinstance(error, av.error.ExitError) else error.strerror
        raise MediaError(f"{name} cannot be read: {reason}") from None


def _from_pair(data: tuple[Any, ...], sample_rate: int, limits: Intake) -> list[Waveform]:
    """``(waveform, sample_rate)`` as `load_audio` takes it -> mono at the wanted rate."""
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
    return joined([channels], rate, sample_rate, "the waveform", limits, soxr_blocks)


def _from_array(data: Any, sample_rate: int, limits: Intake) -> list[Waveform]:
    """A bare array or tensor of floats at SAMPLE_RATE -> mono at the wanted rate."""
    channels = channels_of(data)
    if channels.dtype.kind != "f":
        raise MediaError(
            f"an array of {channels.dtype} alone does not say its sample rate: pass (waveform, sample_rate), or floats "
            f"in [-1, 1] at {SAMPLE_RATE} Hz"
        )
    return joined([channels], SAMPLE_RATE, sample_rate, "the waveform", limits, soxr_blocks)


def _open(path: str | os.PathLike[str], name: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        reason = getattr(error, "strerror", None) or error
        raise MediaError(f"{name} cannot be opened: {reason}. Pass the path of a local file") from None


def _decode(file: BinaryIO, name: str, sample_rate: int, limits: Intake) -> list[Waveform]:
    """Decode with libsndfile, or with FFmpeg what libsndfile cannot read, breaks off at or finds empty.

    MPEG audio is always FFmpeg's, with the same samples to 1e-6: the libmpg123 in libsndfile writes what it thinks of a
    file to the process's stderr.
    """
    if file.seek(0, io.SEEK_END) == 0:
        raise MediaError(f"{name} is empty. {READABLE}")
    file.seek(0)
    head = file.read(3)
    file.seek(0)
    if head == b"ID3" or (head[0] == 0xFF and head[1:2] >= b"\xe0"):  # 11 bits that begin a frame
        return _decode_with_ffmpeg(file, name, sample_rate, limits, "MPEG audio is left to FFmpeg")
    try:
        waveforms = _decode_with_libsndfile(file, name, sample_rate, limits)
        if waveforms[0].size:
            return waveforms
        reason = "no samples"  # as in a recording that broke off before its header was completed
    except soundfile.LibsndfileError as error:
        reason = error.error_string.rstrip(".")
    except TypeError:  # a name in .raw, whose format soundfile wants to be told
        reason = "a .raw file"
    file.seek(0)
    return _decode_with_ffmpeg(file, name, sample_rate, limits, reason)


def _decode_with_libsndfile(file: BinaryIO, name: str, sample_rate: int, limits: Intake) -> list[Waveform]:
    with soundfile.SoundFile(_ForLibsndfile(file)) as sound:
        check_sound(sound, sample_rate, limits, name, apart=limits.channel == EACH)
        blocks = _sound_blocks(sound)
        if sound.subtype not in FLOAT_PCM:
            blocks = _without_bursts(blocks, name)
        return joined(blocks, sound.samplerate, sample_rate, name, limits, swresample_blocks)


class _ForLibsndfile:
    """A file whose `seek` stays where it is when it is sent to before the file's begin, as a damaged header may do.

    An exception in a callback of libsndfile would be printed, and not raised.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.tell, self._seek = file.read, file.tell, file.seek
        self.readinto: Any = getattr(file, "readinto", None)  # which saves a copy of every block

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As a file's. Returns the position."""
        try:
            return self._seek(offset, whence)
        except (OSError, ValueError):  # of files, of bytes
            return self.tell()


def _sound_blocks(sound: Any) -> Iterator[npt.NDArray[np.float32]]:
    """soundfile.SoundFile -> blocks [channels, frames] until one is empty: a header may announce more than there is."""
    while len(block := sound.read(BLOCK_SAMPLES // sound.channels, dtype="float32", always_2d=True)):
        yield block.T


def _decode_with_ffmpeg(file: BinaryIO, name: str, sample_rate: int, limits: Intake, reason: str) -> list[Waveform]:
    """reason: why libsndfile could not read the file."""
    import av

    try:
        # Playlists (ffconcat, m3u8) name further files and URLs; without a protocol FFmpeg opens none of them.
        options = {"protocol_whitelist": "none"}
        with av.open(file, metadata_errors="replace", options=options) as container:
            if not is_longer(container, sample_rate, limits, name, apart=limits.channel == EACH):
                return _samples(container, name, sample_rate, limits, reason)
        file.seek(0)  # its header is wrong: decoding tells how long it is
        with av.open(file, metadata_errors="replace", options=options) as container:
            return _samples(container, name, sample_rate, limits, reason)
    except av.FFmpegError as error:
        raise MediaError(
            f"{name} cannot be decoded, by libsndfile ({reason}) or by FFmpeg ({error.strerror}). {READABLE}"
        ) from None


def _samples(container: Any, name: str, sample_rate: int, limits: Intake, reason: str) -> list[Waveform]:
    """The best audio stream of an open container. reason: why it is FFmpeg that reads it."""
    stream = container.streams.best("audio")
    if stream is None or stream.codec_context is None:
        kinds = ", ".join(stream.type for stream in container.streams) or "none"
        raise MediaError(f"{name} has no audio stream that FFmpeg decodes (its streams: {kinds}). {READABLE}")
    decoded = _decoded_frames(container, stream, name)
    first = next(decoded, None)
    if first is None:
        raise MediaError(f"{name} holds no audio that can be decoded (libsndfile: {reason}). {READABLE}")
    frames = itertools.chain([first], decoded)
    rate = first.sample_rate
    blocks = _frame_blocks(frames, rate, name)
    if not stream.codec_context.name.startswith("pcm"):
        blocks = _without_bursts(blocks, name)
    return joined(blocks, rate, sample_rate, name, limits, swresample_blocks)


def _decoded_frames(container: Any, stream: Any, name: str) -> Iterator[Any]:
    """The stream's av.AudioFrames, without the packets that do not decode; a damaged container ends them."""
    import av

    packets, damaged = container.demux(stream), 0
    while True:
        try:
            packet = next(packets, None)  # None also after an error: then the generator is over
            frames = packet.decode() if packet is not None else None
        except av.FFmpegError as error:
            if container.file is None and not isinstance(error, av.InvalidDataError):
                raise  # the network failed, and what follows is missing
            damaged += 1
            continue
        if frames is None:
            break
        yield from frames
    if damaged:
        places = "1 place in it was" if damaged == 1 else f"{damaged} places in it were"
        logger.warning("%s is damaged: %s not decoded", name, places)


def _frame_blocks(frames: Iterable[Any], rate: int, name: str) -> Iterator[npt.NDArray[np.float32]]:
    """av.AudioFrames -> blocks [channels, samples], larger than the frames: resampling 20 ms at a time is slow."""
    import av

    for kind, run in itertools.groupby(frames, lambda frame: (frame.sample_rate, frame.format.name, frame.layout.name)):
        if kind[0] != rate:  # formats and layouts may change, as in a damaged stream
            raise MediaError(f"{name} changes its sample rate from {rate} to {kind[0]} Hz: split it there")
        # To packed floats: PyAV's to_ndarray reads past the planes of a planar frame with 8 channels or more.
        queue, packer = av.AudioFifo(), av.AudioResampler(format="flt")
        for frame in itertools.chain(run, [None]):  # None: the end
            if frame is not None:
                frame.pts = None  # or the queue would refuse gaps between the time stamps
                queue.write(frame)
            while block := queue.read(BLOCK_SAMPLES // 8, partial=frame is None):
                for packed in packer.resample(block):
                    yield packed.to_ndarray().reshape(-1, packed.layout.nb_channels).T


def _without_bursts(blocks: Iterable[npt.NDArray[np.float32]], name: str) -> Iterator[npt.NDArray[np.float32]]:
    """What a codec decoded, where damage blew samples up beyond HIGHEST_PEAK clipped as if it were 16 bits."""
    num_clipped = 0
    for block in blocks:
        if not -HIGHEST_PEAK <= block.min(initial=0) <= block.max(initial=0) <= HIGHEST_PEAK:  # nor where one is NaN
            num_clipped += int((~(np.abs(block) <= HIGHEST_PEAK)).sum())
            block = np.clip(np.nan_to_num(block), -1.0, 1.0)
        yield block
    if num_clipped:
        logger.warning("%s is damaged: %d samples far over full scale were clipped", name, num_clipped)


def _checked(waveforms: list[Waveform], name: str) -> list[Waveform]:
    """The waveforms, unless they are empty or their samples are not audio."""
    if not all(waveform.size for waveform in waveforms):
        raise MediaError(f"{name} holds no audio: it is empty, or shorter than one sample")
    # All are NaN when a sample is.
    peak = max(max(float(waveform.max()), -float(waveform.min())) for waveform in waveforms)
    if not np.isfinite(peak):
        raise MediaError(f"{name} has samples that are not finite (NaN or infinity): mend or drop them")
    if peak > HIGHEST_PEAK:
        raise MediaError(
            f"{name} has float samples up to {peak:g}, but full scale is 1.0: divide them by the full scale of the PCM "
            "they came from (32768 for 16 bits), or pass integers"
        )
    return waveforms
