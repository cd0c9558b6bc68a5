"""Where openai-whisper and faster-whisper lose speech, or hear it after the end: it is found again, or told."""

import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st
from recordings import RATE, joined

from transept import Transcriber
from transept.speech.algorithms.second_hearing import LONGEST_GAP, uncovered
from transept.speech.segments import Segment


@pytest.fixture(scope="module")
def base(base_dir: Path) -> Transcriber:
    return Transcriber(base_dir)


@pytest.fixture(scope="module")
def languages(speech_dir: Path) -> dict[str, np.ndarray]:
    """The same prompt: English of 10 s, French of 10 s, Spanish of 15 s."""
    found = {}
    for file in (speech_dir / "languages").glob("*.flac"):
        waveform, rate = soundfile.read(file, dtype="float32")
        found[file.stem] = soxr.resample(waveform, rate, RATE)
    return found


def one_after_the_other(languages: dict[str, np.ndarray], *codes: str) -> np.ndarray:
    pause = np.zeros(RATE // 2, np.float32)
    return np.concatenate([part for code in codes for part in (languages[code], pause)])


def test_speech_that_is_left_out_is_told(
    base: Transcriber, languages: dict[str, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    recording = one_after_the_other(languages, "fr", "en")
    with caplog.at_level(logging.WARNING):
        transcript = base.transcribe(recording, temperature=0.0, mode="sequential")
    ((begin, end),) = transcript.missed_speech
    assert begin == pytest.approx(len(languages["fr"]) / RATE, abs=1.0)
    assert end == pytest.approx(len(recording) / RATE, abs=1.0)
    assert transcript.to_dict()["missed_speech"] == [[begin, end]]
    assert "demonstration" not in transcript.text
    (told,) = caplog.messages
    assert told == (
        f"the waveform: no segment covers the speech at {begin:.1f} to {end:.1f} s; "
        "multilingual=True (--multilingual) decodes such speech again"
    )


def test_a_model_of_one_language_is_not_told_to_detect_more(
    tiny_en_dir: Path, speech_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transcriber, recording = Transcriber(tiny_en_dir), joined(speech_dir / "librivox")
    silent = {
        "no_speech_threshold": 0.0,
        "logprob_threshold": 0.0,
        "temperature": 0.0,
    }  # every window counts as silence
    with caplog.at_level(logging.WARNING):
        for mode in ("sequential", "auto", "batched"):
            assert transcriber.transcribe(recording, mode=mode, **silent).missed_speech
    sequential, *others = caplog.messages
    assert sequential.endswith('; mode="auto" (--mode auto) decodes such speech again')
    assert all(message.endswith(" s") for message in others)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second", "word", "vad"),
    [
        ("fr", "en", "demonstration", False),
        ("en", "es", "problema", False),
        ("en", "es", "problema", True),
    ],
    ids=["fr-en", "en-es", "en-es-vad"],
)
def test_a_second_language_in_a_window_is_heard(
    base: Transcriber, languages: dict[str, np.ndarray], first: str, second: str, word: str, vad: bool
) -> None:
    before = np.zeros(6 * RATE if vad else 0, np.float32)  # silence that vad leaves out
    recording = np.concatenate([before, one_after_the_other(languages, first, second)])
    with base.stream(recording, multilingual=True, temperature=0.0, mode="sequential", vad=vad) as stream:
        segments = list(stream)
    change = (len(before) + len(languages[first])) / RATE
    earlier = [each for each in segments if (each.start + each.end) / 2 < change]
    later = segments[len(earlier) :]
    assert {each.language for each in earlier} == {first}
    assert {each.language for each in later} == {second}
    assert word in "".join(each.text for each in later).lower()
    assert [each.start for each in segments] == sorted(each.start for each in segments)
    assert [each.id for each in segments] == list(range(len(segments)))
    assert not base.transcribe(recording, multilingual=True, temperature=0.0, mode="sequential", vad=vad).missed_speech


@pytest.mark.slow
def test_a_channel_that_is_heard_again_stays_in_order_beside_another(
    base: Transcriber, languages: dict[str, np.ndarray]
) -> None:
    left = one_after_the_other(languages, "en", "es", "fr")
    right = np.roll(np.pad(languages["en"], (0, len(left) - len(languages["en"]))), 15 * RATE)
    unsure = {"no_speech_threshold": 0.0, "logprob_threshold": -0.35}  # the Spanish, until it is heard again
    options = {"multilingual": True, "temperature": 0.0, "mode": "sequential", "channel": "each", **unsure}
    with base.stream(np.stack([left, right]), **options) as stream:
        segments = list(stream)
    assert {each.speaker for each in segments} == {"left", "right"}
    assert "es" in {each.language for each in segments}
    assert [each.start for each in segments] == sorted(each.start for each in segments)


@pytest.mark.slow
def test_windows_side_by_side_hear_the_second_language_again(
    base: Transcriber, languages: dict[str, np.ndarray]
) -> None:
    recording = one_after_the_other(languages, "en", "es", "fr")
    transcript = base.transcribe(recording, batched=True, temperature=0.0)
    assert not transcript.missed_speech
    spoken = [(0.2, len(recording) / RATE - 1.0)]
    assert not uncovered(spoken, transcript.segments)


@pytest.mark.slow
def test_the_last_sentence_is_not_said_again_in_the_last_tenth_of_a_second(base: Transcriber, speech_dir: Path) -> None:
    once = joined(speech_dir / "librivox")
    recording = np.concatenate([once, once])[: round(30.15 * RATE)]
    transcript = base.transcribe(recording, temperature=0.0, mode="sequential", without_timestamps=True)
    assert transcript.text.count("And Mr. John Dashwood") == 2
    assert [each.end for each in transcript.segments] == [30.0]


def test_nothing_is_said_after_the_end(tiny_en_dir: Path, speech_dir: Path) -> None:
    transcriber = Transcriber(tiny_en_dir)
    recording = joined(speech_dir / "librivox")
    seconds = len(recording) / RATE
    with_it = transcriber.transcribe(recording, temperature=0.0, chunk_length=8)
    assert all(each.start < seconds and each.end <= seconds + 1.0 for each in with_it.segments)


segment_times = st.lists(st.integers(0, 60), min_size=0, max_size=12).map(
    lambda times: list(zip(sorted(times)[::2], sorted(times)[1::2], strict=False))
)


def segment(begin: float, end: float) -> Segment:
    return Segment(0, 0, begin, end, " text", [1], 0.0, 0.0, 1.0, 0.0)


@given(stretches=segment_times, covered=segment_times)
def test_what_is_uncovered_is_long_and_in_no_segment(
    stretches: list[tuple[int, int]], covered: list[tuple[int, int]]
) -> None:
    apart = [each for index, each in enumerate(stretches) if not index or each[0] > stretches[index - 1][1]]
    found = uncovered(apart, [segment(*each) for each in covered if each[0] < each[1]])
    seconds = {second for begin, end in apart for second in range(begin, end)}
    seconds -= {second for begin, end in covered for second in range(begin, end)}
    runs: list[list[int]] = []
    borders = {border for each in apart for border in each}
    for second in sorted(seconds):
        if runs and runs[-1][-1] == second - 1 and second not in borders:
            runs[-1].append(second)
        else:
            runs.append([second])
    assert found == [(run[0], run[-1] + 1) for run in runs if len(run) > LONGEST_GAP]
