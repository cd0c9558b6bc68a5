"""Transept's diarizer on real voices: a LibriVox reader, and two voices of telephone prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soxr
from speech.recordings import RATE, clip
from transept_speakers import diarize, embed_voice, voice_model

PAUSE = np.zeros(RATE // 4, np.float32)
READER = tuple(f"librivox/austen-{number}" for number in ("0870", "0890", "0920", "0880"))
PROMPTS = tuple(f"prompts-en/{name}" for name in ("demo-abouttotry", "queue-periodic-announce", "dictate__both_help"))
Turns = Sequence[tuple[float, float, str]]


@pytest.fixture(scope="module")
def voices(speech_dir: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Clips of a reader, and of a voice of prompts, equally loud."""
    clips = [[clip(speech_dir / f"{name}.flac") for name in names] for names in (READER, PROMPTS)]
    reader, prompts = ([each * np.float32(0.05 / each.std()) for each in own] for own in clips)
    return reader, prompts


def speaking(turns: Turns, start: float, end: float) -> dict[str, float]:
    """Speaker -> seconds between start and end, over a fifth of a second."""
    seconds: dict[str, float] = {}
    for begin, until, name in turns:
        seconds[name] = seconds.get(name, 0.0) + max(0.0, min(until, end) - max(begin, start))
    return {name: time for name, time in seconds.items() if time > 0.2}


def talk(clips: Sequence[np.ndarray]) -> tuple[np.ndarray, list[tuple[float, float]]]:
    """Clips one after the other with short pauses, and the times of each."""
    ends = np.cumsum([len(each) + len(PAUSE) for each in clips]) / RATE - len(PAUSE) / RATE
    times = [(float(end) - len(each) / RATE, float(end)) for end, each in zip(ends, clips, strict=True)]
    return np.concatenate([part for each in clips for part in (each, PAUSE)]), times


def test_each_clip_has_its_speaker_also_in_noise(voices: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    reader, prompts = voices
    waveform, times = talk([reader[0], prompts[0], reader[1], prompts[1], reader[2]])
    noise = np.random.default_rng(0).standard_normal(len(waveform)).astype(np.float32)
    noisy = waveform + noise * np.float32(waveform.std() * 10 ** (-15 / 20))
    for each in (waveform, noisy):
        turns = diarize(each, RATE, None, None)
        heard = [set(speaking(turns, *time)) for time in times]
        assert heard == [{"speaker 1"}, {"speaker 2"}, {"speaker 1"}, {"speaker 2"}, {"speaker 1"}]
        assert turns == sorted(turns)
        assert turns[0][0] >= 0
        assert turns[-1][1] <= len(waveform) / RATE


def test_voices_at_the_same_time_are_two_turns(voices: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    reader, prompts = voices
    first, second, overlap = reader[0], prompts[0][: 6 * RATE], 2 * RATE
    waveform = np.zeros(len(first) + len(second) - overlap, np.float32)
    waveform[: len(first)] += first
    waveform[len(first) - overlap :] += second
    end = len(first) / RATE
    both = speaking(diarize(waveform, RATE, None, None), end - overlap / RATE, end)
    assert set(both) == {"speaker 1", "speaker 2"}
    assert min(both.values()) > 0.8


def test_the_number_of_speakers_can_be_given(voices: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    waveform, _ = talk([voices[0][0][: 5 * RATE], voices[1][0][: 5 * RATE]])
    for least, most, found in ((3, 3, 3), (None, 1, 1), (3, None, 3), (1, 4, 2)):
        assert len({name for *_, name in diarize(waveform, RATE, least, most)}) == found


def test_a_voice_that_speaks_briefly_in_a_short_recording_is_a_speaker(
    voices: tuple[list[np.ndarray], list[np.ndarray]],
) -> None:
    reader, prompts = voices
    waveform, times = talk([reader[0], prompts[0][: int(1.8 * RATE)], reader[1]])
    turns = diarize(waveform, RATE, None, None)
    assert [set(speaking(turns, *time)) for time in times] == [{"speaker 1"}, {"speaker 2"}, {"speaker 1"}]


def test_recordings_without_speech_have_no_turns(voices: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    noise = np.random.default_rng(0).standard_normal(3 * RATE).astype(np.float32)
    for waveform in (noise[:0], noise[:1], noise * 0, noise * np.float32(1e-3)):
        assert diarize(waveform, RATE, None, None) == []
        assert diarize(waveform, RATE, 2, 2) == []


def test_embeddings_are_close_for_one_voice_only(voices: tuple[list[np.ndarray], list[np.ndarray]]) -> None:
    reader, prompts = (np.stack([embed_voice(each, RATE) for each in own]) for own in voices)
    model = voice_model()
    np.testing.assert_allclose(np.linalg.norm(reader, axis=1), 1, atol=1e-5)
    assert (reader @ reader.T).min() > model.threshold
    assert (prompts @ prompts.T).min() > model.threshold
    assert (reader @ prompts.T).max() < model.threshold
    telephone = soxr.resample(voices[0][0], RATE, 8000)
    assert embed_voice(telephone, 8000) @ reader[1] > model.threshold
    assert np.isfinite(embed_voice(PAUSE[:100], RATE)).all()
