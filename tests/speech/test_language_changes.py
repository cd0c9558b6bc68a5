"""Where the language changes within a window, each language is written in its own words."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st
from recordings import RATE

from transept import Transcriber
from transept.speech.algorithms.language import CHANGE, LEAST, viterbi_path

LANGUAGES = ("en", "fr", "es")
PROMPTS = ("conf-thereare", "conf-userswilljoin", "confbridge-remove-last-in")
WORDS = {"fr": "trouverez", "en": "will join the conference", "es": "problema"}


@pytest.fixture(scope="module")
def base(base_dir: Path) -> Transcriber:
    return Transcriber(base_dir)


@pytest.fixture(scope="module")
def spoken(speech_dir: Path) -> dict[str, np.ndarray]:
    """French of 10 s, Spanish of 15 s, and English of some sentences."""
    found = {}
    for code in ("fr", "es"):
        waveform, rate = soundfile.read(speech_dir / f"languages/{code}.flac", dtype="float32")
        found[code] = soxr.resample(waveform, rate, RATE)
    pause = np.zeros(RATE // 2, np.float32)
    prompts = [soundfile.read(speech_dir / f"prompts-en/{name}.flac", dtype="float32")[0] for name in PROMPTS]
    found["en"] = np.concatenate([part for prompt in prompts for part in (prompt, pause)])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("batched", [False, True], ids=["sequential", "batched"])
@pytest.mark.parametrize("order", ["fr en es", "es en fr", "en fr en es"])
def test_a_recording_of_three_languages(
    base: Transcriber, spoken: dict[str, np.ndarray], order: str, batched: bool
) -> None:
    codes, pause = order.split(), np.zeros(RATE * 6 // 10, np.float32)
    recording = np.concatenate([part for code in codes for part in (spoken[code], pause)])
    ends = np.cumsum([len(spoken[code]) + len(pause) for code in codes]) / RATE
    transcript = base.transcribe(recording, multilingual=True, batched=batched)
    assert not transcript.missed_speech
    heard: dict[int, str] = dict.fromkeys(range(len(codes)), "")
    for segment in transcript.segments:
        turn = int(np.searchsorted(ends, (segment.start + segment.end) / 2))
        assert segment.language == codes[turn]
        heard[turn] += segment.text
    for turn, code in enumerate(codes):
        assert WORDS[code] in heard[turn].lower()
    assert all(one.end <= other.start + 0.5 for one, other in pairwise(transcript.segments))


distributions = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3).filter(lambda each: sum(each) > 0.1)


@given(st.lists(distributions, min_size=1, max_size=6), st.sampled_from([None, *LANGUAGES]))
def test_no_other_languages_are_likelier(drawn: list[list[float]], before: str | None) -> None:
    probabilities = [dict(zip(LANGUAGES, (value / sum(each) for value in each), strict=True)) for each in drawn]

    def score(codes: list[str]) -> float:
        said = sum(math.log(max(one[code], LEAST)) for one, code in zip(probabilities, codes, strict=True))
        changes = sum(one != other for one, other in pairwise([before or codes[0], *codes]))
        return said - CHANGE * changes

    def ways(length: int) -> list[list[str]]:
        return [[*way, code] for way in ways(length - 1) for code in LANGUAGES] if length else [[]]

    found = viterbi_path(probabilities, LANGUAGES, before)
    assert score(found) == pytest.approx(max(score(way) for way in ways(len(drawn))), abs=1e-9)


def test_what_is_too_short_to_tell_goes_with_its_neighbours() -> None:
    english, french = {"en": 0.97, "fr": 0.01, "es": 0.02}, {"en": 0.02, "fr": 0.97, "es": 0.01}
    assert viterbi_path([english, {}, english, french, {}], LANGUAGES, None) == ["en", "en", "en", "fr", "fr"]
    doubtful = {"en": 0.4, "fr": 0.6, "es": 0.0}
    assert viterbi_path([english, doubtful, english], LANGUAGES, None) == ["en", "en", "en"]
    assert viterbi_path([doubtful], LANGUAGES, "en") == ["en"]
