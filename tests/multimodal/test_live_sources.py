"""A pipe in a format that FFmpeg reads: live audio has every sample that the same file has."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from media_files import SPEECH, media_file, sound_file

from transept.errors import MediaError
from transept.multimodal.audio import load_audio
from transept.multimodal.live_sources import RATE, decoded_chunks

RECORDING = load_audio(SPEECH / "librivox" / "austen-0880.flac", RATE)
BOTH = np.stack([RECORDING, np.roll(RECORDING, 800)])  # [channels, num_samples], as loud as full scale allows
MP3_PADDING = 2 * 576  # samples, two frames: only a seekable file's header says how many of its last ones are padding
FILES = {
    "wav": sound_file(RECORDING, RATE),
    "flac": sound_file(RECORDING, RATE, "FLAC"),
    "ogg": sound_file(RECORDING, RATE, "OGG"),
    "mpegts": media_file("mpegts", "aac", RECORDING[None], RATE, "mono"),
    "loud stereo mp3": media_file("mp3", "libmp3lame", BOTH / np.abs(BOTH).max(), RATE, "stereo"),
    "mp3 of two rates": media_file("mp3", "libmp3lame", BOTH, RATE, "stereo")
    + media_file("mp3", "libmp3lame", RECORDING[None], RATE // 2, "mono"),
}


@contextmanager
def piped(data: bytes) -> Iterator[BinaryIO]:
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(reading, "rb", buffering=0) as file:
        yield file
        while file.read(1 << 16):  # so that the writer ends
            pass
    writer.join()


@pytest.mark.parametrize("kind", FILES)
def test_a_pipe_gives_every_sample_of_the_file(kind: str) -> None:
    expected = load_audio(FILES[kind], RATE)
    with piped(FILES[kind]) as file:
        rate, chunks = decoded_chunks(file, "the pipe")
        heard = np.concatenate(list(chunks))
    assert rate == RATE
    most = MP3_PADDING if kind == "loud stereo mp3" else 0  # other formats have none
    assert len(expected) <= len(heard) <= len(expected) + most
    np.testing.assert_allclose(heard[: len(expected)], expected, atol=2e-4)


def test_damage_costs_only_the_packets_that_it_is_in(caplog: pytest.LogCaptureFixture) -> None:
    whole = bytearray(FILES["loud stereo mp3"])
    middle = len(whole) // 2
    whole[middle : middle + 2000] = b"\xff\xfb\x90\x64" * 500  # headers of frames, without frames
    with caplog.at_level(logging.WARNING), piped(bytes(whole)) as file:
        heard = sum(len(chunk) for chunk in decoded_chunks(file, "the pipe")[1])
    assert abs(heard - len(RECORDING)) < RATE
    assert "the pipe is damaged" in caplog.text


def test_an_mp4_file_with_its_index_at_the_end_is_refused_with_what_works() -> None:
    samples = np.tile(RECORDING, 4)[None]  # more than FFmpeg keeps in memory
    with piped(media_file("mp4", "aac", samples, RATE, "mono")) as file:
        _, chunks = decoded_chunks(file, "the pipe")
        with pytest.raises(MediaError, match=r"index at the end.*transept transcribe"):
            list(chunks)


def test_a_playlist_opens_no_file(tmp_path: Path) -> None:
    (tmp_path / "secret.wav").write_bytes(FILES["wav"])
    listed = f"#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:3,\nfile://{tmp_path}/secret.wav\n#EXT-X-ENDLIST\n"
    with piped(listed.encode()) as file, pytest.raises(MediaError):
        list(decoded_chunks(file, "the pipe")[1])
