"""Even loudness: quiet speech becomes as loud as the rest, and all else stays."""

from pathlib import Path

import numpy as np
import pytest
from recordings import RATE, clip, joined

from transept import Transcriber
from transept.speech import levelling
from transept.speech.levelling import MOST, levelled

QUIET = np.float32(10 ** (-30 / 20))


@pytest.fixture(scope="module")
def speech(speech_dir: Path) -> np.ndarray:
    return joined(speech_dir / "librivox", pause=0.5)


def decibels(waveform: np.ndarray) -> float:
    """Return the level of the loudest 20 ms."""
    frames = waveform[: len(waveform) // 320 * 320].reshape(-1, 320)
    return float(10 * np.log10(np.square(frames).mean(axis=1).max()))


def test_quiet_speech_is_raised_and_loud_speech_stays(speech: np.ndarray) -> None:
    speech = speech * np.float32(0.5 / np.abs(speech).max())
    recording = np.concatenate([speech, speech * QUIET, speech])
    before = recording.copy()
    result = levelled(recording, RATE)
    loud, quiet = decibels(speech), decibels(result[len(speech) + 2 * RATE : 2 * len(speech) - 2 * RATE])
    assert loud - 12 < quiet < loud
    assert np.all(np.abs(result[: len(speech) - 2 * RATE]) <= 2 * np.abs(speech[: -2 * RATE]))  # its faint words
    assert np.array_equal(recording, before)


def test_speech_at_a_usual_level_is_not_even_copied(speech_dir: Path) -> None:
    loud = clip(speech_dir / "prompts-en" / "vm-passchanged.flac")
    loud = loud * np.float32(0.9 / np.abs(loud).max())
    assert levelled(loud, RATE) is loud


@pytest.mark.parametrize("deviation", [0.0, 1e-3, 0.1])
def test_silence_and_steady_noise_stay(deviation: float) -> None:
    noise = np.random.default_rng(0).normal(0, deviation, 20 * RATE).astype(np.float32)
    assert levelled(noise, RATE) is noise


def test_a_pause_is_raised_as_the_speech_around_it(speech: np.ndarray) -> None:
    noise = np.random.default_rng(0).normal(0, 1e-5, 30 * RATE).astype(np.float32)
    quiet = speech * QUIET
    recording = np.concatenate([quiet, noise, quiet])
    gain = levelled(recording, RATE)[len(quiet) :][: len(noise)] / noise
    end = decibels(levelled(quiet, RATE)) - decibels(quiet)
    assert 20 * np.log10(gain.max()) < end + 6
    assert gain.min() > 1


def test_samples_stay_within_full_scale_and_gain_within_its_bound(speech: np.ndarray) -> None:
    faint = speech * np.float32(1e-3)
    result = levelled(faint, RATE)
    assert np.abs(result).max() <= 1
    assert np.abs(result).max() <= np.abs(faint).max() * 10 ** (MOST / 20) * 1.001
    bursts = np.where(np.arange(len(speech)) % 8000 == 0, np.float32(1.5), speech * QUIET)
    assert np.abs(levelled(bursts, RATE)).max() == np.float32(1.5)  # as a lossy codec overshoots


def test_blocks_do_not_change_a_sample(speech: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = speech * QUIET
    whole = levelled(quiet, RATE)
    monkeypatch.setattr(levelling, "BLOCK", 7)
    assert np.array_equal(levelled(quiet, RATE), whole)


@pytest.mark.parametrize("length", [0, 1, 319, 321])
def test_short_recordings(speech: np.ndarray, length: int) -> None:
    assert len(levelled(speech[RATE : RATE + length], RATE)) == length


def test_every_call_takes_it(tiny_en_dir: Path, speech_dir: Path) -> None:
    transcriber = Transcriber(tiny_en_dir, threads=1)
    quiet = clip(sorted((speech_dir / "librivox").glob("*.flac"))[0]) * QUIET
    raised = levelled(quiet, RATE)
    assert raised is not quiet
    expected = transcriber.transcribe(raised, word_timestamps=True)
    found, plain = transcriber.transcribe_many([quiet, raised], word_timestamps=True, even_loudness=True)
    assert expected.text
    assert found.segments == expected.segments
    assert plain.text  # raised once more, by little or nothing
    each = transcriber.transcribe(np.stack([quiet, np.roll(quiet, 100)]), channel="each", even_loudness=True)
    assert [segment.text for segment in each.segments if segment.speaker == "left"] == [
        segment.text for segment in expected.segments
    ]
    aligned = transcriber.align(quiet, expected.text, even_loudness=True)
    assert aligned.segments == transcriber.align(raised, expected.text).segments
