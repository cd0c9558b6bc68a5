"""Times of words by a plugin with the hook align_words."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recordings import clip
from test_word_boundaries import attended, sounding

from transept import Transcriber
from transept.errors import ParameterError, PluginError
from transept.registry.plugins import Hook, PluginReport, Plugins
from transept.registry.word_aligners import WordAligner, find_word_aligner
from transept.speech.segments import Segment
from transept.speech.timing.aligned import MARGIN, word_times
from transept.speech.timing.boundaries import refined

WORDS = [("house", 1.0, 1.5), ("and", 1.5, 1.8), ("trees", 2.7, 3.2)]
SOUND = sounding([(start, end) for _, start, end in WORDS], 5.0)


def report(align_words: Any, name: str = "words") -> PluginReport:
    hook = Hook(lambda **given: [times] if (times := align_words(**given)) is not None else [], ())
    return PluginReport(name, f"transept-{name}", "1.2", "ok", align_words=hook)


def finished(job: Any) -> list[Segment]:
    """Run a job whose only steps are in other threads."""
    answer = None
    while True:
        try:
            answer = job.send(answer).function()
        except StopIteration as end:
            return list(end.value)


def segments() -> list[Segment]:
    return [attended([(text, start, end, start) for text, start, end in part]) for part in (WORDS[:2], WORDS[2:])]


def timed(align_words: Any) -> list[Segment]:
    return finished(word_times(segments(), SOUND, (0.0, 5.0), WordAligner(report(align_words)), "en"))


def test_a_plugin_times_the_words_of_each_segment_in_its_stretch() -> None:
    asked = []

    def align_words(waveform: np.ndarray, sample_rate: int, words: list[str], language: str) -> Any:
        asked.append((len(waveform) / sample_rate, words, language))
        return [(0.5 + index, 0.75 + index) for index in range(len(words))] if len(words) == 1 else None

    result = timed(align_words)
    own = refined(segments(), SOUND, (0.0, 5.0))
    assert result[0] == own[0]  # the plugin could not tell
    assert [(words, language) for _, words, language in asked] == [(["house", "and"], "en"), (["trees"], "en")]
    assert asked[1][0] == pytest.approx(own[1].end - own[1].start + 2 * MARGIN, abs=0.01)
    (word,) = result[1].words or ()
    assert word.start == pytest.approx(own[1].start - MARGIN + 0.5, abs=0.011)
    assert (result[1].start, result[1].end) == (word.start, word.end)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(-1, 6), st.floats(-1, 6)), min_size=3, max_size=3))
def test_words_have_a_length_and_an_order_whatever_a_plugin_returns(times: list[tuple[float, float]]) -> None:
    def align_words(words: list[str], **_: Any) -> Any:
        return [times.pop() for _ in words]

    words = [word for segment in timed(align_words) for word in segment.words or ()]
    assert all(0 <= word.start < word.end <= 5.0 for word in words)
    assert all(one.end <= other.start for one, other in pairwise(words))


@pytest.mark.parametrize("times", [[], [(0, 1)] * 3, [("0", 1)] * 2, [(0.0, float("nan"))] * 2, [1, 2], 7])
def test_invalid_times_are_the_plugin_s_error(times: Any) -> None:
    with pytest.raises(PluginError, match=r"the word aligner of words \(transept-words 1\.2\)"):
        timed(lambda **_: times)


def test_the_installed_aligner_is_found() -> None:
    assert find_word_aligner(Plugins(())) is None
    two = tuple(report(lambda **_: None, name) for name in ("a", "b"))
    found = find_word_aligner(Plugins(two[:1]))
    assert found is not None
    assert found.plugin.provides == "times words"
    with pytest.raises(ParameterError, match=r"2 plugins align words: a \(transept-a\) and b \(transept-b\)"):
        find_word_aligner(Plugins(two))


def test_transcripts_and_alignments_ask_the_plugin(
    tiny_en_dir: Path, speech_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its times are evenly spaced, unlike a recording's. It is called only if the options ask for times of words."""
    waveform = clip(speech_dir / "prompts-en" / "check-number-dial-again.flac")
    asked = []

    def align_words(waveform: np.ndarray, sample_rate: int, words: list[str], language: str) -> Any:
        asked.append(words)
        return [(index / 10, index / 10 + 0.1) for index in range(len(words))]

    transcriber = Transcriber(tiny_en_dir, threads=1)
    monkeypatch.setitem(vars(transcriber.model), "word_aligner", WordAligner(report(align_words)))
    plain = transcriber.transcribe(waveform)
    transcriber.transcribe(waveform, word_timestamps=True, refine_word_times=False)
    assert not asked
    for transcript in (
        transcriber.transcribe(waveform, word_timestamps=True),
        transcriber.transcribe(waveform, word_timestamps=True, mode="batched"),
        transcriber.align(waveform, plain.text),
    ):
        words = [word for segment in transcript.segments for word in segment.words or ()]
        assert [word.word for word in words]
        lengths = [round(word.end - word.start, 2) for word in words]
        assert lengths == [0.1] * len(words)
    assert len(asked) >= 3
