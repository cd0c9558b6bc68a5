"""Audio made to fill the memory or the disk: it is given up at a limit that the error names, on the way."""

import io
import os
import struct
import sys
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from media_files import media_file, sound_file
from patience import PATIENCE
from peak_memory import run_python

from transept.errors import MediaError, MediaTooLargeError, ParameterError
from transept.multimodal.audio import load_audio

RATE = 16_000


def silence(seconds: float, rate: int = RATE, channels: int = 1, file_format: str = "WAV") -> bytes:
    return sound_file(np.zeros((round(seconds * rate), channels), np.int16), rate, file_format)


def wav(data: bytes, *, channels: int = 1, rate: int = RATE, announced: int | None = None) -> bytes:
    """16-bit PCM with a header that says what is wanted."""
    block = 2 * channels
    form = struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * block % 2**32, block % 2**16, 16)
    size = len(data) if announced is None else announced
    return b"RIFF\xff\xff\xff\xffWAVEfmt " + form + b"data" + struct.pack("<I", size) + data


@pytest.mark.parametrize("file_format", ["WAV", "FLAC", "OGG", "MP3", "m4a"])
def test_a_recording_may_be_as_long_as_the_limit_and_no_longer(file_format: str) -> None:
    if file_format == "m4a":
        encoded = media_file("ipod", "aac", np.zeros((1, 10 * RATE), np.float32), RATE, "mono")
    else:
        encoded = silence(10, file_format=file_format)
    assert len(load_audio(encoded, max_audio_seconds=10.2)) == pytest.approx(10 * RATE, abs=2000)
    with pytest.raises(MediaError, match=r"longer than the 9\.5 seconds of max_audio_seconds: split it, or raise that"):
        load_audio(encoded, max_audio_seconds=9.5)


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted in other units")
def test_a_small_file_of_hours_is_given_up_at_the_limit_in_bounded_memory(tmp_path: Path) -> None:
    bomb, small = tmp_path / "bomb.flac", tmp_path / "small.flac"
    soundfile.write(small, np.zeros(RATE), RATE)
    with soundfile.SoundFile(bomb, "w", RATE, 1) as file:
        for _ in range(180):
            file.write(np.zeros(60 * RATE, np.int16))
    assert bomb.stat().st_size < 1_000_000  # and 691 MB when it is decoded
    program = (
        "import sys\n"
        "from peak_memory import forget_peak, peak\n"
        "from transept.errors import MediaError\n"
        "from transept.multimodal.audio import load_audio\n"
        "load_audio(sys.argv[2], max_audio_seconds=10)\n"  # what decodes is loaded
        "before = forget_peak()\n"
        "try:\n"
        "    load_audio(sys.argv[1], max_audio_seconds=600)\n"
        "except MediaError as error:\n"
        "    print(peak() - before, error)\n"
    )
    done = run_python(program, bomb, small)
    kilobytes, message = done.stdout.split(maxsplit=1)
    assert "bomb.flac" in message
    assert "longer than the 600 seconds of max_audio_seconds" in message
    assert int(kilobytes) < 150_000  # of which 38,400 are the ten minutes


def test_samples_are_counted_of_all_channels_and_after_resampling() -> None:
    with pytest.raises(MediaError, match=r"max_decoded_bytes .*\(6 channels at 48000 Hz\)"):
        load_audio(silence(1, rate=48_000, channels=6), max_decoded_bytes=1_000_000)
    slow = wav(bytes(200_000), rate=1_000)  # 100 seconds; 0.4 MB of samples, 6.4 at 16 kHz
    assert len(load_audio(slow, max_decoded_bytes=6_500_000)) == 1_600_000
    with pytest.raises(MediaError, match=r"more than the 1000000 bytes of max_decoded_bytes"):
        load_audio(slow, max_decoded_bytes=1_000_000)
    with pytest.raises(MediaError, match="max_decoded_bytes"):
        load_audio((np.zeros((2, 1000)), RATE), max_decoded_bytes=7999)


def test_a_header_that_announces_terabytes_is_not_believed() -> None:
    sizes = struct.pack("<IQQQI", 28, 1 << 44, 1 << 44, 1 << 43, 0)
    riff = wav(bytes(2 * RATE))
    rf64 = b"RF64\xff\xff\xff\xffWAVEds64" + sizes + riff[12:36] + b"data\xff\xff\xff\xff" + bytes(2 * RATE)
    w64 = bytearray(silence(1, file_format="W64"))
    length = w64.index(b"data") + 16
    w64[length : length + 8] = struct.pack("<Q", 1 << 50)
    for encoded in (rf64, bytes(w64), wav(bytes(2 * RATE), announced=0xFFFFFFF0)):
        assert len(load_audio(encoded, max_audio_seconds=1)) == RATE


def test_channels_are_bounded() -> None:
    for channels, message in ((257, "257 channels; up to 256"), (1024, "1024 channels"), (65_535, "no audio stream")):
        with pytest.raises(MediaError, match=message):
            load_audio(wav(bytes(2 * 65_535 * 4), channels=channels))
    with pytest.raises(MediaError, match="the waveform has 257 channels"):
        load_audio((np.zeros((257, 300), np.float32), RATE))
    assert len(load_audio(wav(bytes(256 * 2 * 100), channels=256))) == 100


def test_a_video_is_as_long_as_its_sound() -> None:
    sound = np.zeros((1, RATE // 4), np.float32)  # beside half a second of pictures
    encoded = media_file("mp4", "aac", sound, RATE, "mono", video=True)
    assert 0 < len(load_audio(encoded, max_audio_seconds=0.4)) < 0.4 * RATE


@pytest.mark.parametrize("form", ["path", "bytes", "open"])
def test_the_size_of_a_file_is_bounded(tmp_path: Path, form: str) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(silence(1))
    size = path.stat().st_size
    with path.open("rb") as opened:
        data = {"path": path, "bytes": path.read_bytes(), "open": opened}[form]
        with pytest.raises(MediaError, match=f"more than the {size - 1} bytes of max_audio_bytes"):
            load_audio(data, max_audio_bytes=size - 1)
        opened.seek(0)
        assert len(load_audio(data, max_audio_bytes=size)) == RATE


def test_an_open_file_is_read_from_where_it_stands_and_must_give_bytes() -> None:
    encoded = silence(1)
    file = io.BytesIO(b"skipped" + encoded)
    file.seek(7)
    assert len(load_audio(file)) == RATE
    with pytest.raises(MediaError, match='a file opened to read text; open it with "rb"'):
        load_audio(io.StringIO("text"))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="the system has no such file")
def test_a_stream_without_end_is_given_up_at_the_limit() -> None:
    with (
        open("/dev/zero", "rb") as endless,
        pytest.raises(MediaError, match="more than the 5000000 bytes of max_stream_bytes, which are held in memory"),
    ):
        load_audio(endless, max_stream_bytes=5_000_000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_without_end_is_given_up_at_the_limit(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write_for_ever() -> None:
        with pipe.open("wb", buffering=0) as opened:
            try:
                while True:
                    opened.write(bytes(1 << 16))
            except BrokenPipeError:
                return

    writer = threading.Thread(target=write_for_ever)
    writer.start()
    with pytest.raises(MediaError, match="max_stream_bytes"):
        load_audio(pipe, max_stream_bytes=5_000_000)
    writer.join(PATIENCE)
    assert not writer.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no such files")
@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/proc/self/mem", "/proc/self/maps", "/"])
def test_what_is_no_file_on_disk_is_an_error(path: str) -> None:
    with pytest.raises(MediaError, match=f'"{path}"'):
        load_audio(path)


@pytest.mark.parametrize(
    "limit", [{"max_audio_seconds": -1}, {"max_audio_bytes": "5"}, {"max_stream_bytes": 0}, {"max_decoded_bytes": 1.5}]
)
def test_what_is_no_limit_is_refused(limit: dict) -> None:
    with pytest.raises(ParameterError, match=f"{next(iter(limit))} must be"):
        load_audio((np.zeros(10), RATE), **limit)


def flac_that_declares(seconds: float, declared_samples: int) -> bytes:
    """Silence whose header tells another number of samples; 0: none."""
    file = bytearray(silence(seconds, file_format="FLAC"))
    file[21] = file[21] & 0xF0 | declared_samples >> 32  # the last 36 bits of STREAMINFO before its checksum
    file[22:26] = (declared_samples & 0xFFFFFFFF).to_bytes(4, "big")
    return bytes(file)


def variable_mp3() -> bytes:
    """60 s of silence, then 60 s of noise, without a header of its length: FFmpeg takes it for three minutes."""
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, 60 * RATE)
    encoded = io.BytesIO()
    options = {"write_xing": "0", "id3v2_version": "0"}
    with av.open(encoded, "w", format="mp3", options=options) as container:
        stream = container.add_stream("libmp3lame", rate=RATE)
        stream.layout, stream.codec_context.bit_rate = "mono", 0
        stream.codec_context.flags |= av.codec.context.Flags.qscale
        stream.codec_context.global_quality = 118  # FF_QP2LAMBDA: quality 1
        frame = av.AudioFrame.from_ndarray(
            np.concatenate([np.zeros(60 * RATE), noise])[None].astype(np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate = RATE
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return encoded.getvalue()


SECONDS = 600  # of silence, 38 MB of samples
ENCODED = {
    "FLAC": lambda: silence(SECONDS, file_format="FLAC"),
    **{
        container: partial(media_file, container, codec, np.zeros((1, SECONDS * RATE), np.float32), RATE, "mono")
        for container, codec in (
            ("ogg", "libopus"),
            ("mp3", "libmp3lame"),
            ("ipod", "aac"),
            ("webm", "libopus"),
            ("adts", "aac"),
        )
    },
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ENCODED)
def test_a_file_that_declares_too_much_is_refused_before_it_is_decoded(form: str) -> None:
    encoded = ENCODED[form]()
    limits: list[dict[str, Any]] = [{"max_audio_seconds": SECONDS // 2}, {"max_decoded_bytes": SECONDS * RATE * 2}]
    for limit in limits:
        tracemalloc.start()
        try:
            with pytest.raises(MediaTooLargeError):
                load_audio(encoded, **limit)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8_000_000  # half of the recording is 19 MB


@pytest.mark.parametrize("declared", [0, 2**36 - 1, 1000 * RATE, 2 * RATE])
def test_a_header_that_declares_another_length_changes_nothing(declared: int) -> None:
    encoded = flac_that_declares(4, declared)
    expected = 2 * RATE if declared == 2 * RATE else 4 * RATE  # libsndfile reads what is declared, and no more
    assert len(load_audio(encoded, max_audio_seconds=5)) == expected
    if declared != 2 * RATE:
        with pytest.raises(MediaTooLargeError, match=r"longer than the 3 seconds"):
            load_audio(encoded, max_audio_seconds=3)


def test_a_length_that_is_a_guess_is_not_believed() -> None:
    encoded = variable_mp3()
    with av.open(io.BytesIO(encoded)) as container:
        assert container.duration > 150_000_000  # microseconds
    assert len(load_audio(encoded, max_audio_seconds=130)) == pytest.approx(120 * RATE, rel=0.01)
    with pytest.raises(MediaTooLargeError):
        load_audio(encoded, max_audio_seconds=110)


def test_a_file_that_breaks_off_is_as_long_as_what_is_left() -> None:
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, (1, 20 * RATE)).astype(np.float32)
    whole = media_file("webm", "libopus", noise, RATE, "mono")
    left = len(load_audio(whole[: len(whole) // 2])) / RATE
    assert 5 < left < 15
    assert len(load_audio(whole[: len(whole) // 2], max_audio_seconds=16)) == left * RATE
