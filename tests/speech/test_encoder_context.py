"""encoder_context: the encoder reads a window's sound and a margin, and the whole window where the text is in doubt."""

import json
from pathlib import Path
from typing import Any

import jiwer
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from whisper.normalizers import EnglishTextNormalizer

from transept import Transcriber, Transcript, TranscriptionOptions
from transept.core.scheduling.stopping import ends_in_repetition
from transept.errors import ParameterError
from transept.speech import calibration
from transept.speech.algorithms.decoding import SHORTEST_RUN, is_plausible, repeats_itself
from transept.speech.calibration import Calibration
from transept.speech.word_errors import word_error_rate

normalize = EnglishTextNormalizer()
WINDOW = 1500  # positions


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def positions(transcriber: Transcriber, audio: Any, **options: Any) -> tuple[int, Any]:
    """How many positions of the encoder a transcription computes, and the transcript."""
    transcriber.engine.block_manager.forget_unused()
    statistics = transcriber.engine.core.statistics
    before = statistics.num_encoder_tokens
    transcript = transcriber.transcribe(audio, **options)
    return statistics.num_encoder_tokens - before, transcript


@pytest.mark.parametrize("batched", [False, True])
def test_the_encoder_reads_the_sound_and_the_margin(transcriber: Transcriber, speech_dir: Path, batched: bool) -> None:
    file = speech_dir / "prompts-en" / "agent-pass.flac"
    whole, expected = positions(transcriber, file, batched=batched, word_timestamps=True)
    short, found = positions(transcriber, file, batched=batched, word_timestamps=True, encoder_context=2)
    assert whole == WINDOW
    assert short == pytest.approx((found.duration_after_vad + 2) * 50, abs=30)
    assert found.text == expected.text
    assert far_apart(expected, found) < 0.3  # seconds; tiny.en's heads move with what they can look at


def far_apart(expected: Transcript, found: Transcript) -> float:
    """The most by which a word's begin or end differs, in seconds. The texts are the same."""
    words, others = ([word for each in one.segments for word in each.words or ()] for one in (expected, found))
    pairs = list(zip(words, others, strict=True))
    return max(max(abs(one.start - other.start), abs(one.end - other.end)) for one, other in pairs)


def test_windows_of_several_lengths_are_encoded_together_as_alone(transcriber: Transcriber, speech_dir: Path) -> None:
    files = sorted((speech_dir / "prompts-en").glob("*.flac"))[:4]
    alone = [transcriber.transcribe(file, encoder_context=3, temperature=0.0) for file in files]
    transcriber.engine.block_manager.forget_unused()
    together = list(transcriber.transcribe_many(files, encoder_context=3, temperature=0.0))
    assert [[s.tokens for s in each.segments] for each in together] == [
        [s.tokens for s in each.segments] for each in alone
    ]


def test_a_doubtful_window_is_heard_as_a_whole(transcriber: Transcriber, speech_dir: Path) -> None:
    file = speech_dir / "prompts-en" / "agent-pass.flac"
    options = {"logprob_threshold": 0.0, "temperature": 0.0}  # which no text reaches
    whole, expected = positions(transcriber, file, **options)
    counts = transcriber.model.short_contexts
    again = counts.again
    both, found = positions(transcriber, file, encoder_context=2, **options)
    assert counts.again == again + 1
    assert both > whole == WINDOW
    assert found.segments == expected.segments


def test_what_nobody_can_have_said(transcriber: Transcriber) -> None:
    tokenizer, spec = transcriber.model.tokenizer, transcriber.model.spec
    first = tokenizer.control.first_timestamp
    assert first is not None
    assert is_plausible(tokenizer, spec, [first, 5, 6, first + 100], "Two words", 2.0)
    assert not is_plausible(tokenizer, spec, [first, 5, 6, first + 200], "Two words", 2.0)  # at 4 s
    assert not is_plausible(tokenizer, spec, [5, 6], "word " * 20, 2.0)
    assert not is_plausible(tokenizer, spec, [], "", 2.0)
    assert not is_plausible(tokenizer, spec, [5, 6, 7, 8, 5, 6, 7, 8], "Two words", 2.0)


def test_runs_that_come_twice() -> None:
    assert repeats_itself([9, 1, 2, 3, 4, 1, 2, 3, 4])
    assert repeats_itself([1] * 8)
    assert not repeats_itself([1, 2, 3, 1, 2, 3, 1])
    assert not repeats_itself([1, 2, 3, 4, 9, 1, 2, 3, 4])


@given(st.lists(st.integers(0, 2), max_size=24))
def test_a_text_that_a_repetition_ends_is_one_that_nobody_can_have_said(tokens: list[int]) -> None:
    ends = [ends_in_repetition(tokens[:length], SHORTEST_RUN) for length in range(len(tokens) + 1)]
    assert any(ends) == repeats_itself(tokens)


def test_auto_takes_what_was_kept_for_the_weights(tiny_en_dir: Path, transcriber: Transcriber, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="transept calibrate"):
        Transcriber.from_engine(transcriber.engine).transcribe(b"", encoder_context="auto")
    calibration.keep(tiny_en_dir, Calibration("tiny.en", None, 0.05, {"2": 0.2}))
    with pytest.raises(ParameterError, match="loses words"):
        Transcriber.from_engine(transcriber.engine).transcribe(b"", encoder_context="auto")
    file = calibration.keep(tiny_en_dir, Calibration("tiny.en", 5.0, 0.05, {"2": 0.2, "5": 0.05}))
    assert file.is_relative_to(tmp_path)
    assert len(json.loads(file.read_text())) == 1
    model = Transcriber.from_engine(transcriber.engine).model
    assert model.short_context(torch.zeros(80, 300), TranscriptionOptions(encoder_context="auto")) == 800
    assert model.short_context(torch.zeros(80, 2600), TranscriptionOptions(encoder_context="auto")) is None


@pytest.mark.parametrize("given", [-1, "soon", float("nan"), True, []])
def test_what_is_no_margin(given: Any) -> None:
    with pytest.raises(ParameterError, match="encoder_context"):
        TranscriptionOptions(encoder_context=given)


def test_word_error_rates_are_jiwers() -> None:
    pairs = [("One, two three.", "one two"), ("four", "for you"), ("five six", "Five six!")]
    plain = [["one two three", "four", "five six"], ["one two", "for you", "five six"]]
    assert word_error_rate(pairs) == pytest.approx(jiwer.wer(*plain))


@pytest.mark.slow
def test_base_keeps_its_words(base_dir: Path, speech_dir: Path) -> None:
    folder = speech_dir / "prompts-en"
    entries = json.loads((folder / "transcripts.json").read_text())[::3]
    base = Transcriber(base_dir)
    files = [folder / entry["audio"] for entry in entries]
    spoken = [normalize(entry["text"]) for entry in entries]
    statistics, runs, work = base.engine.core.statistics, [], []
    for margin in (None, 5):
        base.engine.block_manager.forget_unused()
        before = statistics.num_encoder_tokens
        runs.append(list(base.transcribe_many(files, encoder_context=margin, word_timestamps=True)))
        work.append(statistics.num_encoder_tokens - before)
    whole, short = (jiwer.wer(spoken, [normalize(each.text) for each in run]) for run in runs)
    assert short <= whole + 0.005
    assert work[1] < work[0] / 2
    alike = [(one, other) for one, other in zip(*runs, strict=True) if one.text == other.text]
    assert len(alike) > len(files) / 2
    assert max(far_apart(*pair) for pair in alike) <= 0.101
