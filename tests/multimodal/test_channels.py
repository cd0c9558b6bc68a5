"""Channels of recordings: one of them, or each, as if it had been a recording of its own."""

import io

import numpy as np
import pytest
import soundfile
import torch
from media_files import SPEECH, media_file, sound_file

from transept.errors import MediaError, ParameterError
from transept.multimodal.audio import SAMPLE_RATE, load_audio, load_channels
from transept.multimodal.cancellation import ArrivingMix
from transept.multimodal.channels import channel_names
from transept.multimodal.sounds import BLOCK_SAMPLES
from transept.speech.live.feed import Feed

READER = soundfile.read(SPEECH / "librivox" / "austen-0870.flac", dtype="float32")[0]
PROMPT = soundfile.read(SPEECH / "prompts-en" / "vm-whichbox.flac", dtype="float32")[0]
LENGTH = min(len(READER), len(PROMPT))
STEREO = np.stack([READER[:LENGTH], PROMPT[:LENGTH]])  # [channels, samples]
CODED = media_file("matroska", "pcm_f32le", STEREO, SAMPLE_RATE, "stereo")


@pytest.mark.parametrize(
    "data",
    [sound_file(STEREO.T, SAMPLE_RATE, subtype="FLOAT"), CODED, (STEREO, SAMPLE_RATE), torch.from_numpy(STEREO.T)],
    ids=["libsndfile", "ffmpeg", "array", "tensor"],
)
def test_a_channel_is_what_was_written_to_it(data):
    np.testing.assert_array_equal(load_audio(data, channel="left"), STEREO[0])
    np.testing.assert_array_equal(load_audio(data, channel="right"), STEREO[1])
    np.testing.assert_array_equal(load_audio(data), load_audio(data, channel="mix"))
    np.testing.assert_allclose(load_audio(data), STEREO.mean(axis=0), atol=1e-7)
    np.testing.assert_array_equal(load_channels(data), STEREO)


@pytest.mark.parametrize("rate", [8_000, 44_100])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_U8"])
def test_a_channel_at_another_rate_is_that_of_a_mono_file(rate, subtype):
    """Longer than a block, so that each channel's resampler goes on where it was."""
    long = np.tile(STEREO, 1 + 2 * BLOCK_SAMPLES // STEREO.shape[1])
    alone = [load_audio(sound_file(channel, rate, subtype=subtype)) for channel in long]
    both = sound_file(long.T, rate, subtype=subtype)
    for channel, loaded in zip(alone, load_channels(both), strict=True):
        np.testing.assert_allclose(loaded, channel, atol=1e-6)
    np.testing.assert_allclose(load_audio(both, channel="right"), alone[1], atol=1e-6)


def test_a_recording_of_many_channels_gives_each():
    many = np.random.default_rng(0).uniform(-0.5, 0.5, (5, 4000)).astype(np.float32)
    np.testing.assert_array_equal(load_channels((many, SAMPLE_RATE)), many)
    np.testing.assert_array_equal(load_audio((many, SAMPLE_RATE), channel="right"), many[1])
    assert channel_names(5) == ["channel 1", "channel 2", "channel 3", "channel 4", "channel 5"]
    assert channel_names(2) == ["left", "right"]


def test_a_pipe_is_read_once():
    class Pipe(io.BytesIO):
        def seek(self, *_):
            raise OSError

    np.testing.assert_array_equal(load_channels(Pipe(CODED)), STEREO)


def test_a_channel_that_is_not_there_is_told(tmp_path):
    path = tmp_path / "mono.wav"
    path.write_bytes(sound_file(READER, SAMPLE_RATE))
    with pytest.raises(MediaError, match=r'"mono|mono.wav" has one channel, so it cannot be split'):
        load_channels(path)
    with pytest.raises(MediaError, match=r'mono.wav" has one channel, so it has no right one'):
        load_audio(path, channel="right")
    with pytest.raises(MediaError, match="the waveform has one channel"):
        load_channels(READER)
    np.testing.assert_array_equal(load_audio(READER, channel="left"), READER)  # the first
    with pytest.raises(MediaError, match="holds no audio"):
        load_channels(sound_file(np.zeros((0, 2)), SAMPLE_RATE))


@pytest.mark.parametrize("channel", ["each", "middle", None, 0])
def test_what_is_no_channel_is_refused(channel):
    with pytest.raises(ParameterError, match='channel must be "mix", "left" or "right" here'):
        load_audio(READER, channel=channel)


def test_limits_are_of_the_whole_recording():
    with pytest.raises(MediaError, match="max_decoded_bytes"):
        load_channels((STEREO, SAMPLE_RATE), max_decoded_bytes=LENGTH * 4)
    slow = (np.zeros((8, 1000), np.float32), 1000)  # one second, of which each channel is kept at 16 kHz
    assert len(load_channels(slow, max_decoded_bytes=8 * SAMPLE_RATE * 4)) == 8
    with pytest.raises(MediaError, match=r"max_decoded_bytes .*\(8 channels at 1000 Hz\)"):
        load_channels(slow, max_decoded_bytes=8 * SAMPLE_RATE * 4 - 1)
    assert len(load_channels((STEREO, SAMPLE_RATE), max_decoded_bytes=2 * LENGTH * 4)) == 2


@pytest.mark.parametrize("size", [7, 160, 1600, 40_000])
def test_channels_that_cancel_in_audio_that_arrives_are_not_lost(size):
    """From the middle on, one of two channels is inverted."""
    voice = READER[: 2 * SAMPLE_RATE]
    sign = np.where(np.arange(len(voice)) < SAMPLE_RATE, 1, -1).astype(np.float32)
    stereo, mix = np.stack([voice, sign * voice]), ArrivingMix()
    pieces = [mix.mixed(stereo[:, at : at + size], SAMPLE_RATE) for at in range(0, len(voice), size)]
    mixed = np.concatenate(pieces)
    assert mix.is_cancelled
    np.testing.assert_array_equal(mixed[:SAMPLE_RATE], voice[:SAMPLE_RATE])
    late = SAMPLE_RATE + SAMPLE_RATE // 2
    np.testing.assert_array_equal(mixed[late:], voice[late:])
    fed = Feed(SAMPLE_RATE)
    fed.push(stereo)
    np.testing.assert_array_equal(fed.take(2.0)[0].samples, ArrivingMix().mixed(stereo, SAMPLE_RATE))


def test_unrelated_channels_that_arrive_are_mixed_to_their_mean():
    mix = ArrivingMix()
    np.testing.assert_array_equal(mix.mixed(STEREO, SAMPLE_RATE), STEREO.mean(axis=0, dtype=np.float32))
