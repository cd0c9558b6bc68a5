"""Sources of live audio: a microphone, raw samples of a pipe, and a pipe in any format that FFmpeg reads.

``transept live`` uses them. Each yields chunks of a fraction of a second as soon as they arrive.
"""

from __future__ import annotations

import itertools
import logging
import queue
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from typing import Any, BinaryIO

from transept.errors import MediaError, MissingPackageError, ParameterError
from transept.multimodal.cancellation import ArrivingMix
from transept.multimodal.channels import swresample_blocks
from transept.multimodal.waveforms import Waveform

logger = logging.getLogger(__name__)

RATE = 16_000  # Hz, of decoded audio and of microphones
BLOCK_SECONDS = 0.1
RAW_BYTES = 1 << 15  # at most, of one read from a pipe
MOST_BLOCKS = 600  # unread blocks of a microphone, a minute; further audio is dropped
MOST_FAILURES = 100  # successive errors of a container, after which its rest is not read
# Bytes and microseconds to find the format in; FFmpeg then decodes them too, unless fflags has nobuffer. Without a
# protocol, FFmpeg opens no file or URL that a playlist names.
OPENED = {"probesize": "65536", "analyzeduration": "500000", "protocol_whitelist": "none"}


def raw_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield raw samples of an unbuffered file as they arrive, until its end."""
    while chunk := file.read(RAW_BYTES):
        yield chunk


def decoded_chunks(file: BinaryIO, name: str) -> tuple[float, Iterator[Waveform]]:
    """Return a rate in Hz, and chunks at that rate decoded by FFmpeg as they arrive. name: of the file, for errors.

    Waits for the beginning of the file. Raises MediaError if it has no audio that FFmpeg reads.
    """
    import av

    try:
        container: Any = av.open(file, mode="r", metadata_errors="replace", options=dict(OPENED))  # av empties its copy
    except av.FFmpegError as error:
        raise MediaError(
            f"{name} has no audio that FFmpeg reads ({error.strerror}); raw samples need their rate, --pcm HZ"
        ) from None
    if not container.streams.audio:
        raise MediaError(f"{name} has no audio track; send audio, or a video with sound")
    return RATE, _decoded(container, name)


def _decoded(container: Any, name: str) -> Iterator[Waveform]:
    """Yield what `_mixed` yields, at RATE."""
    for rate, blocks in itertools.groupby(_mixed(container, name), key=itemgetter(0)):
        for block in swresample_blocks((samples for _, samples in blocks), rate, RATE):
            yield block.clip(-1.0, 1.0)  # damage and overshoot


def _mixed(container: Any, name: str) -> Generator[tuple[int, Waveform], None, None]:
    """Yield the rate and the mix of all channels of each frame. Both may change within the stream.

    Packets that do not decode are left out, and a warning tells their number. Raises MediaError if none decodes, and if
    the container breaks off.
    """
    import av

    packer, packed_form, mixer = av.AudioResampler(format="flt"), None, ArrivingMix()
    packets, num_decoded, num_lost, num_failures = container.demux(audio=0), 0, 0, 0
    try:
        while True:
            try:
                packet = next(packets, None)
            except av.EOFError:
                break
            except av.FFmpegError as error:
                num_failures += 1
                if not isinstance(error, av.InvalidDataError) or num_failures == MOST_FAILURES:
                    raise MediaError(_failure(container, name, error, num_decoded)) from None
                packets = container.demux(audio=0)
                continue
            if packet is None:
                break
            try:
                frames = packet.decode()
            except av.FFmpegError:
                num_lost += 1
                continue
            for frame in frames:
                num_decoded, num_failures, frame.pts = num_decoded + 1, 0, None
                form = (frame.sample_rate, frame.format.name, frame.layout.name)
                if form != packed_form:
                    packer, packed_form = av.AudioResampler(format="flt"), form
                for packed in packer.resample(frame):
                    samples = packed.to_ndarray().reshape(-1, packed.layout.nb_channels).T
                    yield packed.sample_rate, mixer.mixed(samples, packed.sample_rate)
    finally:
        container.close()
    if num_lost and num_decoded:
        logger.warning("%s is damaged: packets that were not decoded: %d", name, num_lost)
    elif num_lost:
        raise MediaError(f"{name} has no audio that FFmpeg decodes; send another format, or raw samples with --pcm HZ")


def _failure(container: Any, name: str, error: Any, num_decoded: int) -> str:
    if not num_decoded and "mp4" in container.format.name:
        return (
            f"{name} is an MP4 file with its index at the end, which cannot be decoded as it arrives; "
            "send another format, or give the file to `transept transcribe`"
        )
    return f"{name} is damaged: FFmpeg reports {error.strerror}; the audio before it is complete"


@contextmanager
def microphone(device: str | None) -> Iterator[tuple[float, Iterator[Waveform]]]:
    """Open a microphone for a ``with`` block. Gives its rate in Hz, and an iterator of chunks that never ends.

    device: name or number of the microphone; None: the system's default. Raises MissingPackageError without the package
    sounddevice, MediaError if no microphone can be opened.
    """
    try:
        import sounddevice
    except ImportError:
        message = 'a microphone needs the package sounddevice: pip install "transept[live]", or send audio to -'
        raise MissingPackageError(message) from None
    except OSError as error:  # PortAudio's library is missing
        raise MediaError(f"a microphone needs the library PortAudio ({error}); install libportaudio2") from None
    blocks: queue.SimpleQueue[Waveform] = queue.SimpleQueue()

    def received(samples: Any, _frames: int, _time: Any, _status: Any) -> None:
        if blocks.qsize() < MOST_BLOCKS:
            blocks.put(samples[:, 0].copy())

    chosen = int(device) if device is not None and device.isdecimal() else device
    with ExitStack() as opened:
        try:
            stream = sounddevice.InputStream(
                samplerate=RATE, blocksize=int(BLOCK_SECONDS * RATE), device=chosen, channels=1, callback=received
            )
            opened.enter_context(stream)
        except sounddevice.PortAudioError as error:
            raise MediaError(f"no microphone can be opened: {error}") from None
        except ValueError as error:
            message = f"there is no {{microphone}} {device!r}: {error}"
            raise ParameterError(message, param="microphone", value=device) from None
        yield RATE, _taken(blocks)


def _taken(blocks: queue.SimpleQueue[Waveform]) -> Iterator[Waveform]:
    while True:
        yield blocks.get()
