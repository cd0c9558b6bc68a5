"""Damage that is told: truncated files and packets that do not decode, with the time from when."""

import io
import re

import av
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


NOISE = (0.1 * np.random.default_rng(0).standard_normal(20 * SAMPLE_RATE)).astype(np.float32)
ANNOUNCING = {
    "avi": ("avi", "libmp3lame"),
    "avi of samples": ("avi", "pcm_s16le"),
    "wma": ("asf", "wmav2"),
    "wavpack": ("wv", "wavpack"),
    "tta": ("tta", "tta"),
}


@pytest.mark.parametrize("kind", ANNOUNCING)
def test_a_file_that_is_shorter_than_its_header_announces_says_so(kind):
    whole = media_file(*ANNOUNCING[kind], NOISE[None], SAMPLE_RATE, "mono", video=kind == "avi")
    assert load_recording(whole).warnings == []
    begin, end = len(whole) * 2 // 5, len(whole) * 3 // 5
    for broken in (whole[:begin] + np.random.default_rng(1).bytes(end - begin) + whole[end:], whole[:end]):
        recording = load_recording(broken)
        seconds = len(recording.waveforms[0]) / SAMPLE_RATE
        assert seconds > 19 or any("of 20." in each or "the 20." in each for each in recording.warnings)
        assert recording.warnings


def test_fragments_behind_a_hole_are_not_read_and_that_is_told():
    file = io.BytesIO()
    with av.open(
        file, "w", format="mp4", options={"movflags": "frag_keyframe+empty_moov", "frag_duration": "1000000"}
    ) as output:
        track = output.add_stream("aac", rate=SAMPLE_RATE, layout="mono")
        for begin in range(0, len(NOISE) // 1024 * 1024, 1024):
            frame = av.AudioFrame.from_ndarray(NOISE[None, begin : begin + 1024], format="fltp", layout="mono")
            frame.sample_rate, frame.pts = SAMPLE_RATE, begin
            output.mux(track.encode(frame))
        output.mux(track.encode(None))
    whole = file.getvalue()
    assert load_recording(whole).warnings == []
    begin, end = len(whole) * 2 // 5, len(whole) * 3 // 5
    told = load_recording(whole[:begin] + bytes(end - begin) + whole[end:]).warnings
    assert any(re.fullmatch(r"damaged: not read from [78]\.\d s on, though the file has more", each) for each in told)


@pytest.mark.parametrize("kind", ["avi", "avi of samples"])
def test_sound_after_a_hole_in_an_avi_file_keeps_its_time(kind):
    speech = np.where(np.arange(len(NOISE)) < 15 * SAMPLE_RATE, NOISE / 100, NOISE)
    whole = media_file(*ANNOUNCING[kind], speech[None], SAMPLE_RATE, "mono", video=kind == "avi")
    begin, end = len(whole) * 2 // 5, len(whole) * 3 // 5
    recording = load_recording(whole[:begin] + bytes(end - begin) + whole[end:])
    (samples,) = recording.waveforms
    assert np.argmax(np.abs(samples) > 0.05) / SAMPLE_RATE > 14.7  # FFmpeg reads no frames directly behind the hole
    assert len(samples) / SAMPLE_RATE == pytest.approx(20, abs=0.3)
    assert recording.warnings


@pytest.mark.parametrize("codec", ["ac3", "eac3"])
def test_raw_frames_that_are_cut_are_told(codec):
    whole = media_file(codec, codec, np.repeat(TONE, 3)[None], 48_000, "mono")
    assert load_recording(whole).warnings == []
    (warning,) = load_recording(whole[:-100]).warnings
    assert re.fullmatch(rf"damaged: 1 place in it was not decoded, from {SECONDS}\.\d s on", warning)
