"""Speakers told apart on real speech: a stereo call of two readers, and turns of a diarizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from idle import assert_idle
from recordings import RATE, clip

from transept import Segment, Transcriber, Transcript
from transept.errors import MediaError, ParameterError, PluginError
from transept.registry.diarizers import Diarizer
from transept.registry.plugins import Hook, PluginReport
from transept.speech.conversation import ChannelEnded, Interleaving
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Found, Opened
from transept.speech.transcript import TranscriptionInfo

READER = ("austen-0880", "austen-0890", "austen-0930")
PROMPTS = ("demo-abouttotry", "queue-periodic-announce")
OVERLAP = RATE // 2


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(transcriber: Transcriber) -> Iterator[None]:
    yield
    assert_idle(transcriber)


@pytest.fixture(scope="module")
def call(speech_dir: Path) -> np.ndarray:
    """[left and right, samples]: a reader and a voice of telephone prompts, who begin before the other has ended."""
    reader = [clip(speech_dir / "librivox" / f"{name}.flac") for name in READER]
    prompts = [clip(speech_dir / "prompts-en" / f"{name}.flac") for name in PROMPTS]
    turns = [reader[0], prompts[0], reader[1], prompts[1], reader[2]]
    both = np.zeros((2, sum(map(len, turns))), np.float32)
    begin = 0
    for index, turn in enumerate(turns):
        both[index % 2, begin : begin + len(turn)] += turn
        begin += len(turn) - OVERLAP
    return both[:, : begin + OVERLAP]


@pytest.fixture(scope="module")
def file(call: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("call") / "call.flac"
    soundfile.write(path, call.T, RATE)
    return path


def said(segments: list[Segment], *, named: bool = True) -> list[tuple[Any, ...]]:
    """Without probabilities, which differ by rounding. named: with speakers and ids."""
    return [
        (each.start, each.end, each.text, each.words and len(each.words), *((each.speaker, each.id) if named else ()))
        for each in segments
    ]


MODES = [{"batched": True}, {"vad": True, "word_timestamps": True}]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", MODES, ids=["batched", "vad"])
def test_each_channel_says_what_it_says_alone_in_order_of_time(
    transcriber: Transcriber, file: Path, options: dict[str, Any]
) -> None:
    both = transcriber.transcribe(file, channel="each", **options)
    assert {each.speaker for each in both.segments} == {"left", "right"}
    for side in ("left", "right"):
        alone = transcriber.transcribe(file, channel=side, **options)
        of_side = [each for each in both.segments if each.speaker == side]
        assert said(of_side, named=False) == said(alone.segments, named=False)
        assert {each.speaker for each in alone.segments} == {None}
    starts = [each.start for each in both.segments]
    assert starts == sorted(starts)
    assert [each.id for each in both.segments] == list(range(len(starts)))
    turns = [each.speaker for each in both.segments]
    changes = [turn for index, turn in enumerate(turns) if index == 0 or turn != turns[index - 1]]
    assert changes == ["left", "right", "left", "right", "left"]
    assert both.text == "".join(each.text for each in both.segments).strip()
    assert both.options.channel == "each"
    assert both.duration == pytest.approx(soundfile.info(file).duration)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("options", MODES, ids=["batched", "vad"])
def test_a_stream_has_the_transcripts_segments_and_order(
    transcriber: Transcriber, file: Path, options: dict[str, Any]
) -> None:
    whole = transcriber.transcribe(file, channel="each", **options)
    with transcriber.stream(file, channel="each", **options) as stream:
        assert stream.info.options.channel == "each"
        assert said(list(stream)) == said(whole.segments)


def test_a_segment_is_told_before_all_is_done(transcriber: Transcriber, call: np.ndarray) -> None:
    """Sequential mode has two windows a channel here: the first one's segments come before the last one is begun."""
    options = {"mode": "sequential", "temperature": 0.0, "condition_on_previous_text": False}
    job = transcriber.job((call, RATE), channel="each", **options)
    events = [event for _, event in transcriber.engine.runner.run([job], max_jobs=1)]
    assert [type(event) for event in events[:2]] == [Opened, TranscriptionInfo]
    found = [event for event in events if isinstance(event, Found)]
    assert found == events[2:-1]
    assert sum(bool(event.segments) for event in found) > 1
    assert {each.speaker for each in found[0].segments or found[1].segments} <= {"left", "right"}
    reached = [event.progress_seconds for event in found]
    assert reached == sorted(reached)
    assert reached[-1] == pytest.approx(call.shape[1] / RATE)
    assert [each for event in found for each in event.segments] == events[-1].segments


def test_recordings_of_several_kinds_share_a_call(transcriber: Transcriber, call: np.ndarray, file: Path) -> None:
    silent = np.stack([call[0], np.zeros_like(call[0])])
    results = transcriber.transcribe_many(
        [file, (silent, RATE), call[0], np.stack([call[0]] * 2), np.zeros((2, 0), np.float32), np.zeros((2, RATE))],
        channel="each",
        batched=True,
    )
    both, one_sided, mono, alike, nothing, silence = results
    assert {each.speaker for each in both.segments} == {"left", "right"}
    assert {each.speaker for each in one_sided.segments} == {"left"}
    assert isinstance(mono, MediaError)
    assert "has one channel" in str(mono)
    assert isinstance(alike, MediaError)
    assert "channels are identical" in str(alike)
    assert nothing.segments == silence.segments == []


def test_the_language_is_that_of_the_surest_channel() -> None:
    options = TranscriptionOptions(channel="each")
    interleaving = Interleaving(["left", "right"], options)
    segment = Segment(0, 0, 1.0, 2.0, " Hallo", [], 0.0, 0.0, 1.0, 0.0)
    left = TranscriptionInfo("en", 0.6, {"en": 0.6}, 9.0, 4.0, TranscriptionOptions())
    right = TranscriptionInfo("de", 0.9, {"de": 0.9}, 9.0, 3.0, TranscriptionOptions())
    assert interleaving(0, left) == []
    assert interleaving(0, Found([segment], 3.0)) == []  # nothing before the other channel's language
    info, found = interleaving(1, right)
    assert info == TranscriptionInfo("de", 0.9, {"de": 0.9}, 9.0, 4.0, options)
    assert found == Found([], 0.0)
    (found,) = interleaving(1, Found([dataclasses.replace(segment, start=2.0)], 3.0))
    assert [(each.speaker, each.language, each.start) for each in found.segments] == [
        ("left", "en", 1.0),
        ("right", "de", 2.0),
    ]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=6), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_segments_come_in_the_transcripts_order_whatever_channel_is_ahead(
    channels: list[list[tuple[int, int]]], random: Random
) -> None:
    """channels: of each the pauses and lengths of its segments, a window each."""
    interleaving = Interleaving([str(number) for number in range(len(channels))], TranscriptionOptions())
    events: list[list[Any]] = []
    for windows in channels:
        info = TranscriptionInfo("en", None, {}, 60.0, 60.0, TranscriptionOptions())
        events.append([info])
        end = 0
        for pause, length in windows:
            segment = Segment(0, 0, float(end + pause), float(end + pause + length), " a", [], 0.0, 0.0, 1.0, 0.0)
            end += pause + length
            events[-1].append(Found([segment], float(end)))
        events[-1].append(ChannelEnded())
    transcripts = [
        Transcript.of(own[0], "", [segment for event in own[1:-1] for segment in event.segments]) for own in events
    ]
    order = [number for number, own in enumerate(events) for _ in own]
    random.shuffle(order)
    heard = [event for number in order for event in interleaving(number, events[number].pop(0))]
    assert [each for event in heard[1:] for each in event.segments] == interleaving.segments(transcripts)
    assert [type(event) for event in heard[:1]] == [TranscriptionInfo]


def told(*turns: tuple[float, float, str]) -> Diarizer:
    report = PluginReport("told", "transept-told", "1", "ok", diarize=Hook(lambda **_: [turns], ()))
    return Diarizer(report)


@pytest.fixture
def diarizer(transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets who speaks when, in place of a plugin that is installed."""
    return lambda *turns: monkeypatch.setitem(transcriber.model.__dict__, "diarizer", told(*turns))


def test_names_without_a_speaker_are_a_warning(
    transcriber: Transcriber, speech_dir: Path, diarizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    diarizer((0.0, 60.0, "one"))
    recording = speech_dir / "librivox" / "austen-0930.flac"
    found = transcriber.transcribe(recording, speaker_names="Anna,Ben,Carl", quality="fast")
    assert {segment.speaker for segment in found.segments} == {"Anna"}
    assert [each for each in caplog.messages if each.endswith("it has 1 speaker, so no segment is of Ben, Carl")]


@pytest.mark.parametrize("batched", [False, True])
def test_a_sentence_is_cut_where_the_speaker_changes(
    transcriber: Transcriber, speech_dir: Path, diarizer: Any, batched: bool
) -> None:
    recording = speech_dir / "librivox" / "austen-0870.flac"
    whole = transcriber.transcribe(recording, word_timestamps=True, batched=batched)
    words = [word for segment in whole.segments for word in segment.words or ()]
    cut = words[8]
    diarizer((0.0, cut.start, "Anna"), (cut.start, 60.0, "Ben"))
    found = transcriber.transcribe(recording, word_timestamps=True, batched=batched, diarize=True)
    assert found.text == whole.text
    assert [(each.speaker, word.word, word.start) for each in found.segments for word in each.words or ()] == [
        ("Anna" if index < 8 else "Ben", word.word, word.start) for index, word in enumerate(words)
    ]
    assert len(found.segments) == len(whole.segments) + 1
    assert [token for each in found.segments for token in each.tokens] == [
        token for each in whole.segments for token in each.tokens
    ]
    plain = transcriber.transcribe(recording, batched=batched, diarize=True)
    assert [(each.speaker, each.text) for each in plain.segments] == [
        (each.speaker, each.text) for each in found.segments
    ]
    assert all(each.words is None for each in plain.segments)
    with transcriber.stream(recording, batched=batched, diarize=True) as stream:
        assert said(list(stream)) == said(plain.segments)
        assert stream.info.options.diarize


def test_a_diarizer_that_fails_ends_its_recording_alone(
    transcriber: Transcriber, speech_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(waveform: np.ndarray, **_: Any) -> Any:
        if len(waveform) > 4 * RATE:
            raise RuntimeError("too long for me")
        return [[(0.0, 9.0, "Anna")]]

    report = PluginReport("told", "transept-told", "1", "ok", diarize=Hook(fails, ()))
    monkeypatch.setitem(transcriber.model.__dict__, "diarizer", Diarizer(report))
    clips = [speech_dir / "librivox" / f"{name}.flac" for name in ("austen-0870", "austen-0930")]
    failed, done = transcriber.transcribe_many(clips, diarize=True)
    assert isinstance(failed, PluginError)
    assert "the diarizer of told (transept-told 1) failed: RuntimeError: too long for me" in str(failed)
    assert {each.speaker for each in done.segments} == {"Anna"}
    empty = transcriber.transcribe(np.zeros(0, np.float32), diarize=True)
    assert empty.segments == []


def test_without_a_diarizer_it_is_told_why(
    transcriber: Transcriber, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEPT_DISABLE_PLUGINS", "speakers")
    transcriber.model.__dict__.pop("diarizer", None)
    with pytest.raises(ParameterError, match="variable TRANSEPT_DISABLE_PLUGINS disables"):
        transcriber.transcribe(file, diarize=True)


def test_speakers_are_for_transcripts(transcriber: Transcriber, file: Path) -> None:
    with pytest.raises(ParameterError, match="channel='each' and diarize are for transcripts"):
        transcriber.align(file, "He was not an ill-disposed young man.", channel="each")
    with pytest.raises(ParameterError, match="channel='each' and diarize are for transcripts"):
        transcriber.detect_language(file, channel="each")
    aligned = transcriber.align(file, "He might even have been made amiable himself.", channel="left")
    assert aligned.segments[0].start > 20.0
