"""Sources of live audio: a microphone, raw samples of a pipe, and a pipe in any format that FFmpeg reads.

``transept live`` uses them. Each yields chunks of a fraction of a second as soon as they arrive.
"""

from __future__ import annotations

import queue
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from transept.errors import MediaError, MissingPackageError, ParameterError
from transept.multimodal.waveforms import Waveform

RATE = 16_000  # Hz, of decoded audio and of microphones
BLOCK_SECONDS = 0.1
RAW_BYTES = 1 << 15  # at most, of one read from a pipe
MOST_BLOCKS = 600  # unread blocks of a microphone, a minute; further audio is dropped
PROBED = {"probesize": "65536", "analyzeduration": "500000", "fflags": "nobuffer"}  # bytes, microseconds


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
        container: Any = av.open(file, mode="r", options=PROBED)
    except av.FFmpegError as error:
        raise MediaError(
            f"{name} has no audio that FFmpeg reads ({error.strerror}); raw samples need their rate, --pcm HZ"
        ) from None
    if not container.streams.audio:
        raise MediaError(f"{name} has no audio track; send audio, or a video with sound")
    return RATE, _decoded(container, name)


def _decoded(container: Any, name: str) -> Generator[Waveform, None, None]:
    import av

    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    try:
        for frame in container.decode(audio=0):
            for resampled in resampler.resample(frame):
                yield resampled.to_ndarray()[0].clip(-1.0, 1.0)  # damage and overshoot
        for resampled in resampler.resample(None):
            yield resampled.to_ndarray()[0].clip(-1.0, 1.0)
    except av.EOFError:
        return
    except av.FFmpegError as error:
        raise MediaError(
            f"{name} is damaged: FFmpeg reports {error.strerror}; the audio before it is complete"
        ) from None
    finally:
        container.close()


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
