"""Which of a container's audio tracks is heard, and which of two channels that cancel each other."""

import numpy as np
import pytest
import soundfile
from media_files import SPEECH, media_file, sound_file
from timed_media import timed_file

from transept.errors import MediaError, ParameterError
from transept.multimodal.audio import SAMPLE_RATE, load_audio, load_recording
from transept.multimodal.audio_tracks import checked_track

CLIP = soundfile.read(sorted((SPEECH / "librivox").glob("*.flac"))[0], dtype="float32")[0][: 4 * SAMPLE_RATE]
SILENCE = np.zeros_like(CLIP)
NAMED = (("English", 0), ("spanish", 1), ("Castilian", 1), ("German", 2), (" GERMAN ", 2))


def tracks(container: str, codec: str, *samples: np.ndarray) -> bytes:
    """A file of one track each: English, Spanish, German."""
    return timed_file(container, codec, [[(0, each)] for each in samples])


@pytest.mark.parametrize(("container", "codec"), [("matroska", "pcm_s16le"), ("mp4", "aac"), ("mpegts", "aac")])
def test_a_track_is_chosen_by_number_and_by_language(container, codec):
    data = tracks(container, codec, CLIP * 0.2, CLIP * 0.5, CLIP)
    alone = [load_audio(data, audio_track=number) for number in range(3)]
    peaks = [np.abs(samples).max() / np.abs(CLIP).max() for samples in alone]
    assert peaks == pytest.approx([0.2, 0.5, 1], rel=0.3)
    for track, number in (
        ("en", 0),
        ("eng", 0),
        ("en-GB", 0),
        ("ES", 1),
        ("spa", 1),
        ("de", 2),
        ("deu", 2),
        ("2", 2),
        *NAMED,
    ):
        np.testing.assert_array_equal(load_audio(data, audio_track=track), alone[number])
    with pytest.raises(MediaError, match=r'has no track 3: its audio tracks are 0 \("eng"\), 1 \("spa"\), 2 \("ger"\)'):
        load_audio(data, audio_track=3)
    with pytest.raises(MediaError, match='has no track in "fr"'):
        load_audio(data, audio_track="fr")


def test_every_name_is_of_a_code_that_there_is():
    from transept.plugins.whisper.languages import LANGUAGES

    for name in LANGUAGES.values():  # the longer and those of two words as well
        assert checked_track(name.title()) == name
    with pytest.raises(MediaError, match='no track in "haitian creole": its audio tracks are 0'):
        load_audio(tracks("matroska", "pcm_s16le", CLIP, CLIP), audio_track="Haitian Creole")


@pytest.mark.parametrize("codec", ["pcm_s16le", "flac"])
def test_a_silent_first_track_gives_way_to_the_loudest(codec):
    data = tracks("matroska", codec, SILENCE, CLIP * 0.2, CLIP)
    recording = load_recording(data)
    np.testing.assert_array_equal(recording.waveforms[0], load_audio(data, audio_track=2))
    assert recording.warnings in (
        ['read from audio track 2 ("ger"), the loudest, from 0.0 s on, since track 0 is silent'],
        [],  # FFmpeg deems the third best at once
    )
    for track in (0, "eng"):  # the one that is named is heard
        assert not load_audio(data, audio_track=track).any()


def test_tracks_that_are_all_silent_are_silent():
    recording = load_recording(tracks("matroska", "pcm_s16le", SILENCE, SILENCE))
    assert not recording.waveforms[0].any()
    assert recording.warnings == []


def test_recordings_of_one_track():
    lone = media_file("matroska", "aac", CLIP[None], SAMPLE_RATE, "mono")
    wav = sound_file(CLIP, SAMPLE_RATE)
    for data in (lone, wav, (CLIP, SAMPLE_RATE), CLIP):
        for track in (0, "en"):  # it does not say its language
            np.testing.assert_array_equal(load_audio(data, audio_track=track), load_audio(data))
        with pytest.raises(MediaError, match="no track 1"):
            load_audio(data, audio_track=1)


def test_a_misspelt_language_is_told_the_nearest():
    with pytest.raises(ParameterError, match=r"not 'Germann'\. Did you mean \"german\"\?$"):
        load_audio(CLIP, audio_track="Germann")


@pytest.mark.parametrize("track", [-1, True, 1.5, "", "-1", "e", "english please", "zzzz", []])
def test_what_is_no_track(track):
    with pytest.raises(ParameterError, match="audio_track must be the number of a track, from 0 up, or its language"):
        load_audio(CLIP, audio_track=track)


@pytest.mark.parametrize("kind", ["samples", "wav", "vorbis", "aac", "opus", "at 44.1 kHz"])
def test_of_channels_that_cancel_each_other_one_is_heard(kind):
    stereo = np.stack([CLIP, -CLIP])
    data = {
        "samples": lambda: (stereo, SAMPLE_RATE),
        "wav": lambda: sound_file(stereo.T, SAMPLE_RATE),
        "vorbis": lambda: sound_file(stereo.T, SAMPLE_RATE, "OGG", "VORBIS"),
        "aac": lambda: media_file("mp4", "aac", stereo, SAMPLE_RATE, "stereo"),
        "opus": lambda: media_file("webm", "libopus", np.repeat(stereo, 3, axis=1), 48_000, "stereo"),
        "at 44.1 kHz": lambda: (stereo, 44_100),
    }[kind]()
    recording = load_recording(data)
    np.testing.assert_array_equal(recording.waveforms[0], load_audio(data, channel="left"))
    assert recording.warnings == [
        "read from its left channel where the two cancel each other in the mix, from 0.0 s on"
    ]
    assert load_recording(data, channel="each").warnings == []


@pytest.mark.parametrize("kind", ["samples", "wav", "matroska"])
@pytest.mark.parametrize(("begin", "end"), [(5.0, 30.0), (13.3, 14.0), (8.0, 8.4), (16.1, 17.03)])
def test_no_sound_is_lost_where_cancellation_begins_or_ends(kind, begin, end):
    """Wherever that is within the blocks in which a file is decoded."""
    speech = np.random.default_rng(1).normal(0, 0.1, 30 * SAMPLE_RATE).astype(np.float32)
    first, last = round(begin * SAMPLE_RATE), round(end * SAMPLE_RATE)
    other = speech.copy()
    other[first:last] *= -1
    stereo = np.stack([speech, other])
    data = {
        "samples": lambda: (stereo, SAMPLE_RATE),
        "wav": lambda: sound_file(stereo.T, SAMPLE_RATE, subtype="FLOAT"),
        "matroska": lambda: media_file("matroska", "pcm_f32le", stereo, SAMPLE_RATE, "stereo"),
    }[kind]()
    recording = load_recording(data)
    lost = np.flatnonzero(recording.waveforms[0] != speech)
    assert len(lost) <= 2 * 0.025 * SAMPLE_RATE
    (warning,) = recording.warnings
    assert float(warning.split()[-3]) == pytest.approx(begin, abs=0.1)


def test_hum_that_cancels_in_the_pauses_is_left_to_cancel():
    hum = 0.004 * np.sin(np.arange(30 * SAMPLE_RATE) * 2 * np.pi * 50 / SAMPLE_RATE).astype(np.float32)
    speech = np.concatenate([np.tile(CLIP, 2), np.zeros(5 * SAMPLE_RATE, np.float32), CLIP])
    stereo = np.stack([speech + hum[: len(speech)], speech - hum[: len(speech)]])
    recording = load_recording((stereo, SAMPLE_RATE))
    assert recording.warnings == []
    np.testing.assert_allclose(recording.waveforms[0], speech, atol=1e-6)


@pytest.mark.parametrize(("layout", "first", "second"), [("5.1", 0, 1), ("5.1", 4, 5), ("quad", 0, 3)])
def test_of_more_channels_two_of_which_cancel_each_other_one_is_heard(layout, first, second):
    channels = np.zeros((6 if layout == "5.1" else 4, len(CLIP)), np.float32)
    channels[first], channels[second] = CLIP, -CLIP
    recording = load_recording(media_file("matroska", "pcm_f32le", channels, SAMPLE_RATE, layout))
    np.testing.assert_array_equal(recording.waveforms[0], CLIP)
    assert recording.warnings == [
        f"read from channel {first + 1} where its channels cancel each other in the mix, from 0.0 s on"
    ]


@pytest.mark.parametrize("count", [3, 6, 32])
def test_one_channel_of_many_is_mixed(count):
    channels = np.zeros((count, len(CLIP)), np.float32)
    channels[2] = CLIP
    recording = load_recording((channels, SAMPLE_RATE))
    assert recording.warnings == []
    np.testing.assert_array_equal(recording.waveforms[0], channels.mean(axis=0, dtype=np.float32))


def test_other_stereo_is_mixed():
    noise = np.random.default_rng(0).normal(0, 0.1, (2, SAMPLE_RATE)).astype(np.float32)
    for stereo in (
        noise,
        np.stack([CLIP, CLIP]),
        np.stack([CLIP, -0.5 * CLIP]),
        np.stack([CLIP, SILENCE]),
        noise * 1e-4,
    ):
        recording = load_recording((stereo, SAMPLE_RATE))
        np.testing.assert_array_equal(recording.waveforms[0], stereo.mean(axis=0, dtype=np.float32))
        assert recording.warnings == []
    short = np.array([[0.5, 0.25], [-0.5, -0.25]], np.float32)
    assert not load_audio((np.repeat(short, 4, axis=1), SAMPLE_RATE)).any()
