"""Files with a hole in the middle, zeroed, cut out or overwritten: what follows keeps its time where that is known."""

import io
import re

import av
import numpy as np
import pytest
from media_files import media_file, sound_file

from transept.multimodal import flac_frames
from transept.multimodal.audio import SAMPLE_RATE, load_audio, load_recording

SECONDS, PAUSE = 40, 35  # a second of silence begins at PAUSE, behind the hole
HOLE = 20_000  # bytes
NOISE = (0.1 * np.random.default_rng(0).standard_normal(SECONDS * SAMPLE_RATE)).astype(np.float32)
NOISE[PAUSE * SAMPLE_RATE : (PAUSE + 1) * SAMPLE_RATE] = 0

FILES = {
    "flac": lambda: sound_file(NOISE, SAMPLE_RATE, "FLAC"),
    "ogg flac": lambda: media_file("ogg", "flac", NOISE[None], SAMPLE_RATE, "mono"),
    "vorbis": lambda: sound_file(NOISE, SAMPLE_RATE, "OGG", "VORBIS"),
    "opus": lambda: sound_file(NOISE, SAMPLE_RATE, "OGG", "OPUS"),
    "m4a": lambda: media_file("ipod", "aac", NOISE[None], SAMPLE_RATE, "mono"),
    "mka": lambda: media_file("matroska", "aac", NOISE[None], SAMPLE_RATE, "mono"),
    "ts": lambda: media_file("mpegts", "aac", NOISE[None], SAMPLE_RATE, "mono"),
    "mp3": lambda: media_file("mp3", "libmp3lame", NOISE[None], SAMPLE_RATE, "mono"),
    "ac3": lambda: media_file("ac3", "ac3", np.repeat(NOISE, 3)[None], 3 * SAMPLE_RATE, "mono"),
    "adts": lambda: media_file("adts", "aac", NOISE[None], SAMPLE_RATE, "mono"),
}
UNTIMED = ("mp3", "ac3", "adts")
WHOLE = {}


def whole(kind: str) -> bytes:
    if kind not in WHOLE:
        WHOLE[kind] = FILES[kind]()
    return WHOLE[kind]


def holed(data: bytes, how: str, hole: int = HOLE) -> bytes:
    begin, end = len(data) // 2, len(data) // 2 + hole
    inside = {"zeroed": bytes(hole), "cut": b"", "overwritten": np.random.default_rng(1).bytes(hole)}[how]
    return data[:begin] + inside + data[end:]


def pause_begin(samples: np.ndarray) -> float:
    """Where the last second of silence begins, in seconds."""
    step = SAMPLE_RATE // 20
    is_quiet = [np.abs(samples[at : at + step]).max() < 0.02 for at in range(0, len(samples) - step, step)]
    runs = [at for at in range(len(is_quiet) - 16) if all(is_quiet[at : at + 16])]
    last = runs[-1]
    while last - 1 in runs:
        last -= 1
    return last / 20


def first_time(warnings: list[str]) -> float:
    return min(float(time) for time in re.findall(r"from (\d+\.\d) s on", " ".join(warnings)))


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (kind, how)
        for kind in FILES
        for how in ("zeroed", "cut", "overwritten")
        if kind not in UNTIMED and (kind, how) != ("m4a", "cut")  # which has lost its index
    ],
)
def test_what_follows_a_hole_keeps_its_time(kind, how):
    recording = load_recording(holed(whole(kind), how))
    assert pause_begin(recording.waveforms[0]) == pytest.approx(PAUSE, abs=0.15)
    assert first_time(recording.warnings) == pytest.approx(SECONDS / 2, abs=2.5)
    assert any("s of audio is missing in 1 place" in warning for warning in recording.warnings)
    assert not any("truncated" in warning for warning in recording.warnings)


@pytest.mark.parametrize("how", ["zeroed", "overwritten"])
@pytest.mark.parametrize("kind", ["mp3", "ac3"])
def test_bytes_without_sound_count_as_time_where_a_format_stores_none(kind, how):
    recording = load_recording(holed(whole(kind), how))
    assert pause_begin(recording.waveforms[0]) == pytest.approx(PAUSE, abs=0.15)
    assert first_time(recording.warnings) == pytest.approx(SECONDS / 2, abs=0.5)
    assert any("later times may be off" in warning for warning in recording.warnings)
    assert not any("truncated" in warning or "shorter" in warning for warning in recording.warnings)


@pytest.mark.parametrize("kind", UNTIMED)
def test_bytes_that_are_gone_are_told_where_a_format_stores_no_times(kind):
    told = load_recording(holed(whole(kind), "cut")).warnings
    assert first_time(told) == pytest.approx(SECONDS / 2, abs=0.5)
    assert any("this format stores no times, so later times may be off" in warning for warning in told)
    assert not any("truncated" in warning for warning in told)
    if kind == "mp3":
        assert any(re.fullmatch(r"damaged: 1\.\d s shorter than the 40\.0 s that it announces", each) for each in told)


@pytest.mark.parametrize("kind", ["flac", "vorbis", "mp3", "mka"])
def test_a_file_whose_second_half_is_zero_is_truncated(kind):
    data = whole(kind)
    told = load_recording(data[: len(data) // 2] + bytes(len(data) - len(data) // 2)).warnings
    (end,) = re.findall(r"truncated at (\d+\.\d) s", " ".join(told))
    assert float(end) == pytest.approx(SECONDS / 2, abs=2.5)


def flac_positions(data: bytes) -> list[int]:
    """Where the frames begin."""
    file = io.BytesIO(data)
    info = flac_frames.StreamInfo.of(file)
    return [frame.position for frame in flac_frames._frames(file, info)]


def test_frames_of_flac_are_those_that_ffmpeg_finds():
    with av.open(io.BytesIO(whole("flac"))) as container:
        packets = [packet.pos for packet in container.demux() if packet.size]
    assert flac_positions(whole("flac")) == sorted(packets)


def test_whole_frames_of_flac_that_are_gone_are_silence_and_told():
    data = whole("flac")
    places = flac_positions(data)
    begin, end = places[len(places) // 2], places[len(places) // 2 + 4]
    recording = load_recording(data[:begin] + data[end:])
    assert len(recording.waveforms[0]) == len(NOISE)
    (warning,) = recording.warnings
    assert warning.startswith("damaged: 1.0 s of audio is missing in 1 place, from ")


@pytest.mark.parametrize("offset", [0, 2, 4, 100, 2000])
def test_a_flipped_bit_of_flac_costs_one_frame(offset):
    data = bytearray(whole("flac"))
    place = flac_positions(bytes(data))[40]
    data[place + offset] ^= 0x10
    recording, sound = load_recording(bytes(data)), load_audio(whole("flac"))
    changed = np.flatnonzero(recording.waveforms[0] != sound)
    assert len(recording.waveforms[0]) == len(sound)
    assert 40 * 4096 <= changed[0] <= changed[-1] < 41 * 4096
    assert any("from 10.2 s on" in warning for warning in recording.warnings)


def test_a_tag_before_flac_changes_nothing():
    tag = b"ID3\x04\0\0\0\0\x02\0" + bytes(256)
    np.testing.assert_array_equal(load_audio(tag + whole("flac")), load_audio(whole("flac")))
    recording = load_recording(tag + holed(whole("flac"), "zeroed"))
    assert pause_begin(recording.waveforms[0]) == pytest.approx(PAUSE, abs=0.15)


def test_a_picture_between_joined_mp3_files_is_no_damage():
    one = media_file("mp3", "libmp3lame", NOISE[None, : 3 * SAMPLE_RATE], SAMPLE_RATE, "mono")
    picture = np.random.default_rng(2).bytes(100_000)
    size = len(picture) + 10
    length = bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0))
    tag = b"ID3\x03\0\0" + length + b"APIC" + len(picture).to_bytes(4, "big") + b"\0\0" + picture
    recording = load_recording(one + tag + one)
    assert len(recording.waveforms[0]) == pytest.approx(6 * SAMPLE_RATE, abs=2500)
    assert recording.warnings == []


def test_damage_before_the_first_frame_of_mp3_shifts_nothing():
    data = whole("mp3")
    assert pause_begin(load_audio(np.random.default_rng(3).bytes(5000) + data)) == pytest.approx(PAUSE, abs=0.15)


def test_forged_marks_of_ogg_cost_no_more_than_a_few_readings():
    mark = b"OggS" + bytes(22) + b"\xff" + b"\xff" * 255
    data = whole("vorbis") + mark * 4000
    assert pause_begin(load_audio(data)) == pytest.approx(PAUSE, abs=0.15)
