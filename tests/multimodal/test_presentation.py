"""The times of containers: sound lies where they say, and gaps are silence."""

import struct

import numpy as np
import pytest
from media_files import media_file
from peak_memory import run_python
from timed_media import timed_file

from transept.errors import MediaError
from transept.multimodal.audio import SAMPLE_RATE, load_audio, load_recording

MATROSKA_BLOCK = b"\x81"  # the number of the track, after the size of a SimpleBlock


def tone(seconds: float) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE)).astype(np.float32)


def loud(samples: np.ndarray) -> list[tuple[float, float]]:
    """Where there is sound, as (begin, end), in seconds, in steps of 0.1 s."""
    step = SAMPLE_RATE // 10
    is_loud = [np.abs(samples[at : at + step]).max() > 0.05 for at in range(0, len(samples), step)]
    edges = np.flatnonzero(np.diff([0, *map(int, is_loud), 0]))
    return [(begin / 10, end / 10) for begin, end in edges.reshape(-1, 2)]


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("mp4", "aac"),
        ("mov", "pcm_s16le"),
        ("matroska", "aac"),
        ("matroska", "pcm_s16le"),
        ("mpegts", "aac"),
        ("asf", "wmav2"),
        ("nut", "pcm_s16le"),
        ("avi", "libmp3lame"),
    ],
)
def test_sound_that_begins_after_the_picture_keeps_its_begin(container, codec):
    recording = load_recording(timed_file(container, codec, [[(4.98, tone(3))]], video_seconds=8))
    ((begin, end),) = loud(recording.waveforms[0])
    assert begin == pytest.approx(4.9, abs=0.15)
    assert end == pytest.approx(7.9, abs=0.15)
    assert recording.warnings == []  # nothing is missing


def test_the_index_of_avi_may_follow_a_byte_that_its_list_does_not_count():
    data = bytearray(timed_file("avi", "libmp3lame", [[(4.98, tone(3))]], video_seconds=8))
    place = data.index(b"movi") - 4
    (size,) = struct.unpack_from("<I", data, place)
    struct.pack_into("<I", data, place, size - 1)
    ((begin, _),) = loud(load_audio(bytes(data)))
    assert begin == pytest.approx(4.9, abs=0.15)


@pytest.mark.parametrize(
    ("container", "codec"), [("ipod", "aac"), ("matroska", "aac"), ("matroska", "pcm_s16le"), ("mpegts", "aac")]
)
def test_a_file_without_pictures_begins_with_its_sound(container, codec):
    recording = load_recording(timed_file(container, codec, [[(4.98, tone(3))]]))
    ((begin, end),) = loud(recording.waveforms[0])
    assert begin == pytest.approx(0, abs=0.15)
    assert end == pytest.approx(3, abs=0.15)
    assert recording.warnings == []


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        *(("mp4", "aac"), ("matroska", "aac"), ("webm", "libopus"), ("mpegts", "aac"), ("flv", "aac")),
        *(("asf", "wmav2"), ("avi", "libmp3lame")),
    ],
)
def test_lost_packets_are_silence_and_told(container, codec):
    recording = load_recording(timed_file(container, codec, [[(0, tone(3)), (11, tone(3))]]))
    (first, second) = loud(recording.waveforms[0])
    assert first == pytest.approx((0, 3), abs=0.15)
    assert second == pytest.approx((11, 14), abs=0.15)
    (warning,) = recording.warnings
    assert "s of audio is missing in 1 place, from 2.9 s on" in warning or "from 3.0 s on" in warning


@pytest.mark.parametrize("begin", [0.01, 0.05])
@pytest.mark.parametrize(("container", "codec"), [("matroska", "pcm_s16le"), ("mov", "pcm_s16le"), ("mpegts", "aac")])
def test_a_begin_within_the_tolerance_shifts_nothing(container, codec, begin):
    late, at_once = (timed_file(container, codec, [[(start, tone(2))]], video_seconds=2) for start in (begin, 0.0))
    np.testing.assert_array_equal(load_audio(late), load_audio(at_once))


def test_jitter_of_times_is_no_gap():
    pieces = [(0.064 * number + 0.02 * (number % 3), tone(0.064)) for number in range(40)]
    assert len(load_audio(timed_file("matroska", "pcm_s16le", [pieces]))) == 40 * 1024


def test_many_small_losses_do_not_add_up():
    pieces = [(0.128 * number, tone(0.064)) for number in range(100)]  # every other packet is lost
    assert len(load_audio(timed_file("matroska", "pcm_s16le", [pieces]))) == pytest.approx(12.8 * SAMPLE_RATE, abs=3000)


def moved(data: bytes, milliseconds: int, numbers: range) -> bytes:
    """A Matroska file of PCM whose blocks of these numbers lie so much later; all are in one cluster."""
    changed, places = bytearray(data), []
    size = struct.pack(">H", 0x4000 | (4 + 2 * 1024))  # of a SimpleBlock of 1024 samples
    at = data.find(size + MATROSKA_BLOCK)
    while at >= 0:
        places.append(at + 3)
        at = data.find(size + MATROSKA_BLOCK, at + 1)
    for place in (places[number] for number in numbers):
        (time,) = struct.unpack_from(">h", changed, place)
        struct.pack_into(">h", changed, place, time + milliseconds)
    return bytes(changed)


@pytest.mark.parametrize("milliseconds", [20_000, -20_000, 400, -400])
def test_one_time_that_its_neighbours_contradict_is_not_believed(milliseconds):
    plain = timed_file("matroska", "pcm_s16le", [[(0, tone(3))]])
    np.testing.assert_array_equal(load_audio(moved(plain, milliseconds, range(20, 21))), load_audio(plain))


@pytest.mark.parametrize(("milliseconds", "first"), [(-1000, 20), (-2000, 0), (-30_000, 10)])
def test_times_that_go_back_or_are_negative_leave_the_samples_in_their_order(milliseconds, first):
    plain = timed_file("matroska", "pcm_s16le", [[(0, tone(3))]])
    np.testing.assert_array_equal(load_audio(moved(plain, milliseconds, range(first, 46))), load_audio(plain))


def test_after_a_time_that_went_back_gaps_are_gaps():
    plain = timed_file("matroska", "pcm_s16le", [[(0, tone(3))]])
    changed = moved(moved(plain, -1000, range(10, 46)), 3000, range(30, 46))
    assert len(load_audio(changed)) == 46 * 1024 + 3 * SAMPLE_RATE


def test_streams_joined_byte_by_byte_begin_anew():
    one, other = (timed_file("mpegts", "aac", [[(0, tone(seconds))]]) for seconds in (3, 2))
    assert len(load_audio(one + other)) == pytest.approx(5 * SAMPLE_RATE, abs=4096)


def test_a_forged_time_takes_no_memory(tmp_path):
    path, plain = tmp_path / "forged.mkv", tmp_path / "plain.mkv"
    plain.write_bytes(timed_file("matroska", "pcm_s16le", [[(0, tone(3))]]))
    path.write_bytes(timed_file("matroska", "pcm_s16le", [[(0, tone(3)), (36_000, tone(3))]]))
    with pytest.raises(MediaError, match="longer than the 3600 seconds of max_audio_seconds"):
        load_audio(path, max_audio_seconds=3600)
    program = (
        "from peak_memory import forget_peak, peak\n"
        "from transept.errors import MediaError\n"
        "from transept.multimodal.audio import load_audio\n"
        f"load_audio({str(plain)!r})\n"  # what decodes is loaded
        "before = forget_peak()\n"
        "try:\n"
        f"    load_audio({str(path)!r}, max_audio_seconds=3600)\n"
        "except MediaError:\n"
        "    print(peak() - before)\n"
    )
    done = run_python(program)
    assert int(done.stdout) < 100_000  # kilobytes; ten hours of silence would be 2.3 million


def test_formats_without_times_of_their_own_are_left_alone():
    for container, codec, rate in (("mp3", "libmp3lame", 44_100), ("adts", "aac", 22_050), ("ac3", "ac3", 48_000)):
        encoded = media_file(container, codec, np.tile(tone(4), 3)[None, : rate * 3], rate, "mono")
        assert len(load_audio(encoded)) == pytest.approx(3 * SAMPLE_RATE, rel=0.1)
