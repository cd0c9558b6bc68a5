"""Known voices: their file, which of them match, and names that are the same in all recordings of a call."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transept.errors import MediaError, ParameterError, PluginError
from transept.registry.diarizers import Turn
from transept.registry.plugins import Hook, PluginReport
from transept.registry.voice_embedders import VoiceEmbedder
from transept.registry.voice_model import VoiceModel
from transept.speech.options import TranscriptionOptions
from transept.speech.same_speakers import SameSpeakers
from transept.speech.segments import Found, Segment
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.voices.heard import HeardVoice, HeardVoices, voices_of
from transept.speech.voices.matching import match_voices
from transept.speech.voices.naming import distinct_names, names_of
from transept.speech.voices.store import Voices

MODEL = VoiceModel("bands-1", threshold=0.9, min_seconds=0.5)
ANN, BOB, EVE = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
NEAR_ANN = (0.98, 0.199, 0.0)


def known(**embeddings: Sequence[float]) -> Voices:
    voices = Voices()
    for name, embedding in embeddings.items():
        voices = voices.with_voice(name, embedding, 3.0, MODEL.name)
    return voices


def test_a_file_of_voices_is_json_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "new" / "voices.json"
    voices = known(Ann=ANN, Bob=(0.0, 3.0, 4.0))
    voices.write(file)
    again = Voices.read(file)
    assert again == dataclasses.replace(voices, file=file)
    assert again.voices[1].embedding == pytest.approx((0.0, 0.6, 0.8))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["voices"]["Ann"] == {"recordings": 1, "seconds": 3.0, "embedding": [1, 0, 0]}
    assert [each.name for each in file.parent.iterdir()] == ["voices.json"]
    assert voices.without("Ann").names == ["Bob"]
    with pytest.raises(ParameterError, match=r"no voice is called 'Anne'\. Did you mean 'Ann'"):
        voices.without("Anne")


def test_more_speech_of_a_voice_counts_by_its_length() -> None:
    (voice,) = known(Ann=ANN).with_voice("Ann", BOB, 1.0, MODEL.name).voices
    assert voice.embedding == pytest.approx((3 / math.sqrt(10), 1 / math.sqrt(10), 0.0))
    assert (voice.seconds, voice.recordings) == (4.0, 2)


def test_voices_of_another_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match='were enrolled with "bands-1", and the installed plugin has "bands-2"'):
        known(Ann=ANN).with_voice("Bob", BOB, 1.0, "bands-2")
    known().check_model(VoiceModel("bands-2", threshold=0.9))
    with pytest.raises(ParameterError, match="have 3 numbers, and those of the installed plugin 2; enroll"):
        known(Ann=ANN).with_voice("Bob", (1.0, 0.0), 1.0, MODEL.name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "is not a JSON file of voices"),
        ("[]", "version must be 1"),
        ('{"version": 1, "model": 5, "voices": {}}', "model must be the name of a voice model"),
        ('{"version": 1, "model": "", "voices": {"a": {"embedding": [1]}}}', "model must be the name"),
        ('{"version": 1, "model": "m", "voices": []}', "voices must be an object"),
        ('{"version": 1, "model": "m", "voices": {"a\\nb": {"embedding": [1]}}}', "a name on one line"),
        ('{"version": 1, "model": "m", "voices": {"a": {}}}', "voices of 'a' must be an embedding"),
        ('{"version": 1, "model": "m", "voices": {"a": {"embedding": [0, 0]}}}', "not all 0"),
        ('{"version": 1, "model": "m", "voices": {"a": {"embedding": [NaN]}}}', "finite numbers"),
        ('{"version": 1, "model": "m", "voices": {"a": {"embedding": ["1"]}}}', "finite numbers"),
        ('{"version": 1, "model": "m", "voices": {"a": {"embedding": [1], "seconds": -1}}}', "at least 0"),
        ('{"version": 1, "model": "m", "voices": {"a": {"embedding": [1]}, "b": {"embedding": [1, 2]}}}', "one length"),
        (
            '{"version": 1, "model": "m", "voices": {"a": {"embedding": [1]}, "a ": {"embedding": [2]}}}',
            "different names",
        ),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "voices.json").write_text(content)
    with pytest.raises(ParameterError, match=message) as raised:
        Voices.read(tmp_path / "voices.json")
    assert raised.value.param == "voices"
    assert str(tmp_path / "voices.json") in str(raised.value)


def test_each_known_voice_matches_one_speaker_the_most_similar_first() -> None:
    assert match_voices([NEAR_ANN, ANN, EVE], [ANN, BOB], 0.9) == [None, 0, None]
    assert match_voices([NEAR_ANN, ANN], [ANN, NEAR_ANN], 0.9) == [1, 0]
    assert match_voices([ANN], [], 0.9) == [None]
    assert match_voices([], [ANN], 0.9) == []
    assert match_voices([ANN], [ANN], 1.0) == [0]  # the threshold itself is enough


VECTORS = st.lists(
    st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda v: math.hypot(*v) > 0.1), max_size=5
)


@given(VECTORS, VECTORS, st.floats(-1, 1))
def test_matches_are_one_to_one_and_no_better_pair_is_left(
    heard: list[list[float]], voices: list[list[float]], threshold: float
) -> None:
    heard, voices = ([np.array(each) / np.linalg.norm(each) for each in those] for those in (heard, voices))
    found = match_voices(heard, voices, threshold)
    taken = [index for index in found if index is not None]
    assert len({*taken}) == len(taken)
    for one, own in enumerate(found):
        for other, voice in enumerate(voices):
            similarity = heard[one] @ voice
            rivals = [heard[found.index(other)] @ voice] if other in taken else []
            rivals += [] if own is None else [heard[one] @ voices[own]]
            assert similarity < threshold + 1e-9 or max(rivals) >= similarity - 1e-9


def test_speech_in_which_another_speaks_is_not_embedded() -> None:
    """The embedding is the mean of the samples: each speaker's own samples have one value."""
    rate = 100
    waveform = np.repeat(np.array([1, 2, 9, 2, 1, 5], np.float32), 100)  # 9 where both speak
    report = PluginReport(
        "told",
        "transept-told",
        "1",
        "ok",
        embed_voice=Hook(lambda waveform, sample_rate: [[waveform.mean(), len(waveform)]], ()),
        voice_model=Hook(lambda: [MODEL], ()),
    )
    turns = [Turn(0.0, 1.0, "a"), Turn(1.0, 4.0, "b"), Turn(2.0, 3.0, "a"), Turn(4.0, 5.0, "a"), Turn(5.0, 5.4, "c")]
    a, b, c = voices_of(waveform, rate, turns, VoiceEmbedder(report))
    assert [voice.speaker for voice in (a, b, c)] == ["a", "b", "c"]
    assert [voice.seconds for voice in (a, b)] == [2.0, 2.0]
    np.testing.assert_allclose(a.embedding, np.array([1, 200]) / np.hypot(1, 200), rtol=1e-6)
    np.testing.assert_allclose(b.embedding, np.array([2, 200]) / np.hypot(2, 200), rtol=1e-6)
    assert c.embedding is None  # 0.4 s are too short


def heard(**speakers: Sequence[float] | None) -> list[HeardVoice]:
    return [
        HeardVoice(speaker, 2.0, None if vector is None else np.array(vector, np.float32))
        for speaker, vector in speakers.items()
    ]


def test_unknown_speakers_keep_their_names_unless_a_known_voice_has_them() -> None:
    voices = known(Ann=ANN, b=EVE)
    names = names_of(heard(a=NEAR_ANN, b=BOB, c=None), voices, MODEL.threshold)
    assert names == {"a": "Ann", "b": None, "c": None}
    with pytest.raises(ParameterError, match="have 3 numbers, and those of the installed plugin 2; enroll"):
        names_of(heard(a=(1.0, 0.0)), voices, MODEL.threshold)
    with pytest.raises(PluginError, match="have 2 and 3 numbers"):
        names_of(heard(a=(1.0, 0.0), b=BOB), voices, MODEL.threshold)
    assert distinct_names(names, voices.names) == {"a": "Ann", "b": "unknown 1", "c": "c"}


def segment(speaker: str | None) -> Segment:
    return Segment(0, 0, 0.0, 1.0, f" by {speaker}", [], 0.0, 0.0, 1.0, 0.0, speaker=speaker)


def events_of(voices: list[HeardVoice] | None) -> list[Any]:
    """The events of a recording's job; None: of one that fails before its voices are known."""
    if voices is None:
        return [MediaError("cannot be read")]
    info = TranscriptionInfo("en", None, {}, 9.0, 9.0, TranscriptionOptions())
    segments = [segment(voice.speaker) for voice in voices]
    return [HeardVoices(voices), info, Found(segments, 9.0), Transcript.of(info, "text", segments)]


RECORDINGS = [
    heard(x=BOB, y=ANN),
    None,
    heard(x=ANN, y=EVE),
    heard(),
    heard(x=EVE, y=None, z=BOB, w=NEAR_ANN),
]
NAMES = [["speaker 1", "Ann"], None, ["Ann", "speaker 2"], [], ["speaker 2", "unknown 1", "speaker 1", "Ann"]]


@given(st.randoms(use_true_random=False))
def test_names_depend_on_the_order_of_recordings_and_not_on_which_is_done_first(random: Random) -> None:
    named = SameSpeakers(known(Ann=ANN), MODEL, writes=False)
    events = [events_of(voices) for voices in RECORDINGS]
    order = [number for number, own in enumerate(events) for _ in own]
    random.shuffle(order)
    found: dict[int, list[Any]] = {number: [] for number in range(len(events))}
    for number in order:
        for index, event in named(number, events[number].pop(0)):
            found[index].append(event)
    for number, names in enumerate(NAMES):
        if names is None:
            assert [type(event) for event in found[number]] == [MediaError]
            continue
        info, segments, transcript = found[number]
        assert isinstance(info, TranscriptionInfo)
        assert [each.speaker for each in segments.segments] == names
        assert [each.speaker for each in transcript.segments] == names
    assert named.voices.names == ["Ann", "speaker 1", "speaker 2"]


def test_new_voices_are_kept_for_later_runs(tmp_path: Path) -> None:
    file = tmp_path / "voices.json"
    for expected in (["speaker 1", "speaker 2"], ["speaker 1", "speaker 2"]):
        named = SameSpeakers(Voices.read(file, missing_ok=True), MODEL, writes=True)
        events = [each for event in events_of(heard(p=EVE, q=BOB)) for _, each in named(0, event)]
        assert [each.speaker for each in events[-1].segments] == expected
    Voices.read(file).without("speaker 1").write(file)
    events = [each for event in events_of(heard(p=EVE, q=ANN)) for _, each in named(1, event)]
    assert [each.speaker for each in events[-1].segments] == ["speaker 1", "speaker 3"]
    assert Voices.read(file).names == ["speaker 2", "speaker 1", "speaker 3"]


def test_a_transcript_outlives_a_file_of_voices_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    named = SameSpeakers(Voices(file=tmp_path / "file" / "voices.json"), MODEL, writes=True)
    for index in (0, 1):
        events = [each for event in events_of(heard(p=EVE, q=BOB)) for _, each in named(index, event)]
        assert [each.speaker for each in events[-1].segments] == ["speaker 1", "speaker 2"]
    (message,) = caplog.messages
    assert "the new voices of this and later recordings are lost: cannot write" in message


def test_embeddings_of_another_length_are_refused_before_any_work() -> None:
    sized = VoiceModel(MODEL.name, threshold=0.9, size=2)
    with pytest.raises(ParameterError, match="have 3 numbers, and those of the installed plugin 2; enroll"):
        known(Ann=ANN).check_model(sized)
    known().check_model(sized)


def test_a_file_of_voices_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voices = Voices(file=tmp_path / "new" / "voices.json")
    TranscriptionOptions(voices=voices, add_voices=True)
    monkeypatch.setattr(os, "access", lambda *_: False)  # as of a folder of another user
    with pytest.raises(ParameterError, match=r'voices: cannot write ".*voices.json": Permission denied'):
        TranscriptionOptions(voices=voices, add_voices=True)
