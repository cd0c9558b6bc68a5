"""The diarizer on real speech of two voices: a LibriVox reader, and the voice of telephone prompts."""

from __future__ import annotations

from pathlib import Path

import librosa
import numpy as np
import numpy.typing as npt
import pytest
import soundfile
import torch
from transept_voices import diarize
from transept_voices.encoder import FRAMES, VoiceEncoder, embeddings, load_encoder, spectrogram

SPEECH = Path(__file__).parents[3] / "tests" / "data" / "speech"
RATE = 16_000
PAUSE = np.zeros(RATE // 4, np.float32)
READER = sorted((SPEECH / "librivox").glob("*.flac"))
PROMPTS = [SPEECH / "prompts-en" / f"{name}.flac" for name in ("demo-abouttotry", "queue-periodic-announce")]


def clip(file: Path) -> npt.NDArray[np.float32]:
    """Float32 [num_samples] at RATE."""
    waveform, rate = soundfile.read(file, dtype="float32")
    assert rate == RATE
    return np.asarray(waveform)


def talk(*files: Path) -> tuple[npt.NDArray[np.float32], list[tuple[float, float]]]:
    """Clips one after the other with short pauses, and the times of each."""
    clips = [clip(file) for file in files]
    ends = np.cumsum([len(each) + len(PAUSE) for each in clips]) / RATE
    times = [
        (end - len(PAUSE) / RATE - len(each) / RATE, end - len(PAUSE) / RATE)
        for end, each in zip(ends, clips, strict=True)
    ]
    return np.concatenate([part for each in clips for part in (each, PAUSE)]), times


def speakers(turns: list[tuple[float, float, str]], start: float, end: float) -> set[str]:
    """Return the speakers with more than a fifth of a second between start and end."""
    return {name for begin, until, name in turns if min(until, end) - max(begin, start) > 0.2}


def test_two_voices_are_told_apart() -> None:
    """Each clip is given to one voice, the same one for the same reader."""
    waveform, times = talk(READER[0], PROMPTS[0], READER[3], PROMPTS[1], READER[4])
    turns = diarize(waveform, RATE)
    heard = [speakers(turns, *each) for each in times]
    assert heard == [{"speaker 1"}, {"speaker 2"}, {"speaker 1"}, {"speaker 2"}, {"speaker 1"}]
    assert turns == sorted(turns)
    assert turns[-1][1] <= len(waveform) / RATE


@pytest.mark.parametrize("files", [READER, PROMPTS], ids=["reader", "prompts"])
def test_one_voice_is_one_speaker(files: list[Path]) -> None:
    """Clips of one voice are one speaker."""
    waveform, _ = talk(*files)
    assert {name for _, _, name in diarize(waveform, RATE)} == {"speaker 1"}


def test_another_sample_rate_is_heard_alike() -> None:
    """A recording at 24 kHz has the turns that it has at 16."""
    waveform, _ = talk(READER[0], PROMPTS[0])
    turns = diarize(waveform, RATE)
    slow = diarize(librosa.resample(waveform, orig_sr=RATE, target_sr=24_000, res_type="soxr_hq"), 24_000)
    assert [name for _, _, name in slow] == [name for _, _, name in turns]
    np.testing.assert_allclose([each[:2] for each in slow], [each[:2] for each in turns], atol=0.1)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 2.0])
def test_without_speech_nobody_has_a_turn(seconds: float) -> None:
    """Silence, even of no length, has no turns."""
    assert diarize(np.zeros(round(seconds * RATE), np.float32), RATE) == []


def test_embeddings_do_not_depend_on_what_is_beside_them() -> None:
    """A stretch's embedding is the same alone and in a batch."""
    mels = spectrogram(clip(READER[0]))
    stretches = [mels[:FRAMES], mels[50:130], mels[10 : 10 + FRAMES]]
    for in_batch, stretch in zip(embeddings(stretches), stretches, strict=True):
        np.testing.assert_allclose(in_batch, embeddings([stretch])[0], atol=1e-5)
        assert np.linalg.norm(in_batch) == pytest.approx(1.0, abs=1e-5)


def test_the_weights_are_all_there() -> None:
    """Resemblyzer's file has every weight of the network."""
    assert {name: tensor.shape for name, tensor in load_encoder().state_dict().items()} == {
        name: tensor.shape for name, tensor in VoiceEncoder().state_dict().items()
    }
    assert all(torch.isfinite(tensor).all() for tensor in load_encoder().state_dict().values())
