"""Damage that is told: truncated files and packets that do not decode, with the time from when."""

import re

import numpy as np
import pytest
from media_files import media_file, sound_file

from transept.errors import MediaError
from transept.multimodal.audio import SAMPLE_RATE, load_recording

SECONDS = 10
TONE = (0.3 * np.sin(2 * np.pi * 440 * np.arange(SECONDS * SAMPLE_RATE) / SAMPLE_RATE)).astype(np.float32)

FILES = {
    "wav": lambda: sound_file(TONE, SAMPLE_RATE),
    "flac": lambda: sound_file(TONE, SAMPLE_RATE, "FLAC"),
    "aiff": lambda: sound_file(TONE, SAMPLE_RATE, "AIFF"),
    "w64": lambda: sound_file(TONE, SAMPLE_RATE, "W64"),
    "rf64": lambda: sound_file(TONE, SAMPLE_RATE, "RF64"),
    "opus": lambda: sound_file(TONE, SAMPLE_RATE, "OGG", "OPUS"),
    "au": lambda: sound_file(TONE, SAMPLE_RATE, "AU"),
    "caf": lambda: sound_file(TONE, SAMPLE_RATE, "CAF"),
    "avi": lambda: media_file("avi", "libmp3lame", TONE[None], SAMPLE_RATE, "mono"),
    "mp3": lambda: media_file("mp3", "libmp3lame", TONE[None], SAMPLE_RATE, "mono"),
    "webm": lambda: media_file("webm", "libopus", np.repeat(TONE, 3)[None], 48_000, "mono"),
    "mkv": lambda: media_file("matroska", "aac", TONE[None], SAMPLE_RATE, "mono"),
    "flv": lambda: media_file("flv", "aac", np.repeat(TONE, 3)[None, : 44_100 * SECONDS], 44_100, "mono"),
    "adts": lambda: media_file("adts", "aac", TONE[None], SAMPLE_RATE, "mono"),
    "ts": lambda: media_file("mpegts", "aac", TONE[None], SAMPLE_RATE, "mono"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_truncated_file_says_from_when(kind):
    whole = FILES[kind]()
    assert load_recording(whole).warnings == []
    cut = load_recording(whole[: len(whole) // 2])
    seconds = len(cut.waveforms[0]) / SAMPLE_RATE
    told = " ".join(cut.warnings)
    assert told.startswith("damaged: ")
    times = [float(time) for time in re.findall(r"(?:truncated at|from) (\d+\.\d) s", told)]
    assert times
    assert all(abs(time - seconds) < 1 for time in times)


def test_headers_that_were_never_completed_announce_nothing():
    for announced in (0, 0x7FFFF000, 0xFFFFFFFF):
        data = bytearray(FILES["wav"]())
        data[4:8] = data[40:44] = announced.to_bytes(4, "little")
        recording = load_recording(bytes(data))
        assert len(recording.waveforms[0]) == len(TONE)
        assert recording.warnings == []


def test_packets_that_do_not_decode_are_told_with_their_time():
    data = bytearray(FILES["mkv"]())
    middle = len(data) // 2
    data[middle : middle + 2000] = np.random.default_rng(0).bytes(2000)
    told = " ".join(load_recording(bytes(data)).warnings)
    match = re.search(r"not decoded, from (\d+\.\d) s on", told)
    assert match is not None
    assert float(match[1]) == pytest.approx(SECONDS / 2, abs=1)


def test_clipped_bursts_are_told_with_their_time():
    burst = TONE.copy()
    burst[5 * SAMPLE_RATE : 5 * SAMPLE_RATE + 1000] *= 200
    told = load_recording(sound_file(burst, SAMPLE_RATE, "OGG", "VORBIS")).warnings
    (warning,) = told
    match = re.search(r"\d+ samples far over full scale were clipped, from (\d\.\d) s on", warning)
    assert match is not None
    assert float(match[1]) == pytest.approx(5, abs=0.2)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95])
@pytest.mark.parametrize(("container", "codec"), [("ipod", "aac"), ("mp4", "aac"), ("mov", "pcm_s16le")])
def test_a_file_without_its_index_says_that_it_is_truncated(container, codec, share):
    data = media_file(container, codec, TONE[None], SAMPLE_RATE, "mono")
    size = int(share * len(data))
    with pytest.raises(MediaError, match=rf"It ends after {size} of the \d+ bytes that it announces, as an incomplete"):
        load_recording(data[:size])
    with pytest.raises(MediaError, match="has no index \\(moov\\), which programs write last"):
        load_recording(data[:size] + bytes(len(data) - size))


def test_other_files_that_cannot_be_decoded_are_not_called_truncated():
    with pytest.raises(MediaError) as error:
        load_recording(b"no audio at all " * 100)
    assert "index" not in str(error.value)
    assert "incomplete" not in str(error.value)
