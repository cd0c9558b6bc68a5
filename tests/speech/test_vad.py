"""Voice activity against silero-vad's own functions, and the windows that batched mode packs."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from transept.errors import ParameterError
from transept.speech.vad.network import FRAME, speech_probabilities
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import (
    Span,
    pack,
    padded,
    silence_between,
    speech_spans,
)

RATE = 16_000


@pytest.fixture(scope="module")
def recording(speech_dir: Path) -> np.ndarray:
    """27 seconds, more than a block: the LibriVox clips with half a second of silence between them."""
    files = sorted((speech_dir / "librivox").glob("*.flac"))
    pause = np.zeros(RATE // 2, np.float32)
    return np.concatenate([part for file in files for part in (soundfile.read(file, dtype="float32")[0], pause)])


@pytest.fixture(scope="module")
def silero():
    silero_vad = pytest.importorskip("silero_vad")
    return silero_vad, silero_vad.load_silero_vad()


def test_probabilities_are_those_of_the_packaged_model(recording: np.ndarray, silero) -> None:
    _, model = silero
    expected = model.audio_forward(torch.from_numpy(recording), RATE)[0].detach().numpy()
    probabilities = speech_probabilities(recording)
    assert probabilities.shape == expected.shape == (-(-len(recording) // FRAME),)
    np.testing.assert_allclose(probabilities, expected, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"min_silence_duration_ms": 160},
        {"threshold": 0.8, "neg_threshold": 0.2, "min_silence_duration_ms": 100, "speech_pad_ms": 30},
        {"min_silence_duration_ms": 50, "min_speech_duration_ms": 1500, "speech_pad_ms": 0},
    ],
    ids=str,
)
def test_spans_are_silero_vads(recording: np.ndarray, silero, options: dict) -> None:
    silero_vad, model = silero
    settings = {"min_silence_duration_ms": 2000, "speech_pad_ms": 400, "min_speech_duration_ms": 0, **options}
    expected = silero_vad.get_speech_timestamps(torch.from_numpy(recording), model, **settings)
    assert speech_spans(recording, VadOptions(**options)) == [Span(span["start"], span["end"]) for span in expected]
    assert expected


def test_long_spans_are_cut_where_it_is_quiet(recording: np.ndarray) -> None:
    options = {"min_silence_duration_ms": 2000, "speech_pad_ms": 0}
    (whole,) = speech_spans(recording, VadOptions(**options))
    pieces = speech_spans(recording, VadOptions(**options, max_speech_duration_s=4.0))
    assert (pieces[0].start, pieces[-1].end) == whole
    assert all(one.end == other.start for one, other in pairwise(pieces))
    assert all(piece.end - piece.start <= 4 * RATE for piece in pieces)
    assert len(pieces) <= 2 * (whole.end - whole.start) / (4 * RATE) + 1
    loudness = np.square(recording[whole.start : whole.end]).mean()
    for piece in pieces[:-1]:
        assert np.square(recording[piece.end - 800 : piece.end + 800]).mean() < 0.1 * loudness


@pytest.mark.parametrize("seconds", [0, 0.01, 60])
def test_silence_has_no_spans(seconds: float) -> None:
    assert speech_spans(np.zeros(int(seconds * RATE), np.float32)) == []


def test_noise_has_no_spans() -> None:
    noise = np.random.default_rng(0).normal(0, 0.05, 20 * RATE).astype(np.float32)
    assert speech_spans(noise) == []


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 1.5},
        {"neg_threshold": -0.1},
        {"threshold": 0.3, "neg_threshold": 0.5},
        {"min_silence_duration_ms": -1},
        {"speech_pad_ms": float("inf")},
        {"max_speech_duration_s": 0},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        VadOptions(**options)


def test_the_number_of_threads_is_left_alone() -> None:
    program = (
        "import numpy, torch; from transept.speech.vad.spans import speech_spans; torch.set_num_threads(3);"
        "speech_spans(numpy.zeros(512, 'float32')); print(torch.get_num_threads())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3"]


@st.composite
def rising_spans(draw: st.DrawFn) -> list[Span]:
    lengths = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), max_size=30))
    spans, now = [], 0
    for gap, length in lengths:
        spans.append(Span(now + gap, now + gap + length))
        now += gap + length
    return spans


@given(rising_spans(), st.integers(0, 6))
def test_padding_shares_short_pauses(spans: list[Span], pad: int) -> None:
    length = spans[-1].end + 3 if spans else 0
    kept = padded(spans, pad, length)
    assert len(kept) == len(spans)
    assert all(one.end <= other.start for one, other in pairwise(kept))
    for (start, end), (kept_start, kept_end), before, after in zip(
        spans, kept, [Span(0, 0), *spans], [*spans[1:], Span(length, length)], strict=False
    ):
        assert start - kept_start == min(pad, start if before == (0, 0) else start - (before.end + start) // 2)
        assert kept_end - end == min(pad, length - end if after.start == length else (end + after.start) // 2 - end)


@given(rising_spans(), st.integers(0, 3))
def test_packing_keeps_every_span_once_in_as_few_windows_as_can_be(spans: list[Span], pad: int) -> None:
    kept = padded(spans, pad, spans[-1].end + 3 if spans else 0)
    windows = pack(spans, kept, 36)
    assert [index for first, last in windows for index in range(first, last)] == list(range(len(spans)))
    lengths = [end - start for start, end in kept]
    assert all(0 < sum(lengths[first:last]) <= 36 for first, last in windows)
    fewest, held = 0, 36
    for length in lengths:  # taking as much as fits needs the fewest
        fewest, held = (fewest, held + length) if held + length <= 36 else (fewest + 1, length)
    assert len(windows) == fewest


def test_packing_cuts_at_the_longest_pause() -> None:
    spans = [Span(0, 10), Span(12, 20), Span(29, 35), Span(36, 40), Span(41, 50)]
    assert pack(spans, spans, 35) == [(0, 2), (2, 5)]


def test_silence_between_times_is_what_no_span_covers() -> None:
    spans = [Span(0, 2 * RATE), Span(3 * RATE, 4 * RATE), Span(8 * RATE, 9 * RATE)]
    assert silence_between(spans, [0.5, 1.5, 3.5, 8.5]) == pytest.approx([0.0, 1.0, 4.0])
    assert silence_between(spans, [1.0]) == silence_between([], []) == []
