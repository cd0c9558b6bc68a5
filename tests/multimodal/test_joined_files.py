"""Recordings that were joined of several: each part is heard, at its own rate and with its own channels."""

import numpy as np
import pytest
from media_files import media_file, sound_file

from transept.errors import MediaError
from transept.multimodal.audio import SAMPLE_RATE, load_audio, load_channels, load_recording


def tone(rate: int, hertz: float, seconds: float = 2.0) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def pitch(samples: np.ndarray) -> float:
    """In Hz, of the middle of a tone."""
    middle = samples[len(samples) // 2 - 4000 : len(samples) // 2 + 4000]
    return float(np.argmax(np.abs(np.fft.rfft(middle))) * SAMPLE_RATE / len(middle))


def encoded(kind: str, rate: int, channels: int, hertz: float) -> bytes:
    samples = np.stack([tone(rate, hertz)] * channels)
    if kind in ("mp3", "adts", "ac3", "mpegts"):
        codec = {"mp3": "libmp3lame", "adts": "aac", "ac3": "ac3", "mpegts": "mp2"}[kind]
        return media_file(kind, codec, samples, rate, {1: "mono", 2: "stereo"}[channels])
    if kind.endswith("mp4"):
        options = {"movflags": "frag_keyframe+empty_moov"} if kind.startswith("fragmented") else {}
        return media_file("mp4", "aac", samples, rate, {1: "mono", 2: "stereo"}[channels], options=options)
    file_format, subtype = kind.split()
    return sound_file(samples.T, rate, file_format, subtype)


JOINED = [
    ("mp3", (44_100, 2), (22_050, 1)),
    ("mp3", (16_000, 1), (48_000, 2)),
    ("adts", (44_100, 2), (22_050, 1)),
    ("adts", (16_000, 1), (48_000, 2)),
    ("ac3", (48_000, 2), (32_000, 1)),
    ("mpegts", (48_000, 2), (24_000, 1)),
    ("OGG VORBIS", (44_100, 2), (16_000, 1)),
    ("OGG VORBIS", (16_000, 1), (16_000, 1)),
    ("OGG OPUS", (48_000, 1), (24_000, 2)),
    ("FLAC PCM_16", (44_100, 2), (16_000, 1)),
    ("WAV PCM_16", (8_000, 1), (48_000, 2)),
    ("mp4", (44_100, 2), (16_000, 1)),
    ("fragmented mp4", (48_000, 1), (44_100, 2)),
]


@pytest.mark.parametrize(("kind", "one", "other"), JOINED)
def test_all_parts_are_heard(kind, one, other):
    recording = load_recording(encoded(kind, *one, 440.0) + encoded(kind, *other, 1000.0))
    (samples,) = recording.waveforms
    assert len(samples) == pytest.approx(4 * SAMPLE_RATE, abs=0.2 * SAMPLE_RATE)
    half = len(samples) // 2
    assert pitch(samples[:half]) == pytest.approx(440, abs=3)
    assert pitch(samples[half:]) == pytest.approx(1000, abs=3)
    assert recording.warnings == []


@pytest.mark.parametrize(("kind", "one", "other"), [each for each in JOINED if each[1][1] == 2])
def test_a_part_of_one_channel_is_on_each_of_them(kind, one, other):
    data = encoded(kind, *one, 440.0) + encoded(kind, *other, 1000.0)
    channels = load_channels(data)
    assert len(channels) == 2
    np.testing.assert_array_equal(channels[1], load_audio(data, channel="right"))
    for samples in channels:
        assert pitch(samples[len(samples) // 2 :]) == pytest.approx(1000, abs=3)


def test_limits_count_all_parts():
    data = encoded("FLAC PCM_16", 16_000, 1, 440.0) * 3
    assert len(load_audio(data, max_audio_seconds=6)) == 6 * SAMPLE_RATE
    for kind in ("FLAC PCM_16", "OGG VORBIS", "WAV PCM_16", "mp3"):
        with pytest.raises(MediaError, match="longer than the 5 seconds of max_audio_seconds"):
            load_audio(encoded(kind, 16_000, 1, 440.0) * 3, max_audio_seconds=5)


def test_lossless_parts_keep_their_samples():
    samples = tone(SAMPLE_RATE, 440.0)
    for file_format in ("WAV", "FLAC"):
        one = sound_file(samples, SAMPLE_RATE, file_format, "PCM_16")
        np.testing.assert_array_equal(load_audio(one * 2), np.tile(load_audio(one), 2))
        np.testing.assert_array_equal(load_audio(one + b"\0" * 100), load_audio(one))


def pages(data: bytes) -> list[bytes]:
    """The pages of an Ogg file."""
    found, at = [], 0
    while at < len(data):
        count = data[at + 26]
        length = 27 + count + sum(data[at + 27 : at + 27 + count])
        found.append(data[at : at + length])
        at += length
    return found


def test_lost_pages_of_ogg_are_silence():
    noise = np.random.default_rng(0).normal(0, 0.1, 20 * SAMPLE_RATE)
    for subtype in ("VORBIS", "OPUS"):
        whole = pages(sound_file(noise, SAMPLE_RATE, "OGG", subtype))
        cut = load_recording(b"".join(whole[:6] + whole[12:]))
        assert len(cut.waveforms[0]) == pytest.approx(20 * SAMPLE_RATE, abs=1000)
        assert any("audio is missing in 1 place" in warning for warning in cut.warnings)


def test_an_ogg_file_that_is_cut_says_so():
    data = sound_file(np.random.default_rng(0).normal(0, 0.1, 20 * SAMPLE_RATE), SAMPLE_RATE, "OGG", "VORBIS")
    recording = load_recording(data[: len(data) // 2])
    seconds = len(recording.waveforms[0]) / SAMPLE_RATE
    assert recording.warnings == [f"damaged: truncated at {seconds:.1f} s, where its whole Ogg pages end"]


def test_a_joined_file_without_sound_is_told():
    first, silent = (
        media_file("mp4", codec, tone(16_000, 440)[None], 16_000, "mono", video=True) for codec in ("aac", "")
    )
    for joined in (first + silent, first + first[: len(first) // 2]):
        recording = load_recording(joined)
        assert len(recording.waveforms[0]) == pytest.approx(len(load_audio(first)), abs=2000)
        assert recording.warnings[-1].startswith("damaged: not decoded from 2.0 s on, where another file is joined")
