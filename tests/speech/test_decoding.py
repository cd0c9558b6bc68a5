"""The decoding of one window: when it falls back, what its prompt holds, how samples and hypotheses are chosen."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from recordings import joined
from whisper.tokenizer import get_tokenizer
from whisper.utils import compression_ratio as openai_compression_ratio

from transept import Transcriber, TranscriptionOptions
from transept.core.jobs.job import Submit
from transept.speech.algorithms.decoding import DecodedWindow, compression_ratio, decode_window, divisor
from transept.speech.algorithms.source import Source

TOKENIZER = get_tokenizer(multilingual=False)


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def features(transcriber: Transcriber, speech_dir: Path) -> torch.Tensor:
    return transcriber.model.features(joined(speech_dir / "librivox", count=2))


def decode(
    transcriber: Transcriber, features: torch.Tensor, options: dict[str, Any], **given: Any
) -> tuple[DecodedWindow, list[Any]]:
    """The decoded window, and the (decoder prompt, parameters) of every request."""
    requests = []

    def job():
        source = Source(transcriber.model, TranscriptionOptions(**options), features, language="en")
        inner = decode_window(source, **given)
        answer = None
        while True:
            try:
                ask = inner.send(answer)
            except StopIteration as end:
                return end.value
            assert isinstance(ask, Submit)
            requests.extend(
                (each.prompt["decoder_prompt"]["prompt_tokens"], each.sampling_params) for each in ask.requests
            )
            answer = yield ask

    ((_, decoded),) = transcriber.engine.runner.run([job()], max_jobs=1)
    if isinstance(decoded, Exception):
        raise decoded
    return decoded, requests


def test_a_good_result_needs_one_attempt(transcriber: Transcriber, features: torch.Tensor) -> None:
    decoded, requests = decode(transcriber, features, {})
    assert decoded.temperature == 0.0
    assert len(requests) == 1
    assert decoded.text.startswith("And Mr. John Dashwood")


@pytest.mark.parametrize(
    ("threshold", "seconds"), [({"logprob_threshold": -0.01}, 3), ({"compression_ratio_threshold": 0.1}, 4)]
)
def test_every_temperature_is_tried_over_one_encoder_run(
    transcriber: Transcriber, features: torch.Tensor, threshold: dict[str, float], seconds: int
) -> None:
    features = features[:, : 100 * seconds]  # new to the engine
    runs = transcriber.engine.num_encoder_runs
    options = {"temperature": (0.0, 0.3, 0.6), "best_of": 2, "no_speech_threshold": None, **threshold}
    decoded, requests = decode(transcriber, features, options)
    assert [params.temperature for _, params in requests] == [0.0, 0.3, 0.6]
    assert [params.n for _, params in requests] == [1, 2, 2]
    assert decoded.temperature == 0.6
    assert transcriber.engine.num_encoder_runs == runs + 1


def test_likely_silence_is_no_reason_to_fall_back(transcriber: Transcriber, features: torch.Tensor) -> None:
    options = {"temperature": (0.0, 0.5), "logprob_threshold": -0.01, "no_speech_threshold": 0.0}
    decoded, requests = decode(transcriber, features, options)
    assert len(requests) == 1
    assert decoded.is_silent(TranscriptionOptions(**options))
    assert not decoded.is_silent(TranscriptionOptions(no_speech_threshold=0.0))
    assert decoded.is_silent(TranscriptionOptions(no_speech_threshold=0.0, logprob_threshold=None))
    assert not decoded.is_silent(TranscriptionOptions(no_speech_threshold=None))


def test_samples_are_reproducible(transcriber: Transcriber, features: torch.Tensor) -> None:
    options = {"temperature": 1.0, "best_of": 3, "logprob_threshold": None}
    first, again, other = (decode(transcriber, features, {**options, "seed": seed})[0] for seed in (1, 1, 2))
    assert first == again
    assert first.tokens != other.tokens


def test_beams_hear_the_same(transcriber: Transcriber, features: torch.Tensor) -> None:
    greedy, _ = decode(transcriber, features, {"temperature": 0.0})
    beams, ((_, params),) = decode(transcriber, features, {"temperature": 0.0, "beam_size": 5, "patience": 2.0})
    assert (params.num_beams, params.patience, params.early_stopping) == (5, 2.0, True)
    assert beams.text.split()[:4] == greedy.text.split()[:4]


def test_the_prompt_holds_the_end_of_what_was_said(transcriber: Transcriber, features: torch.Tensor) -> None:
    said = list(range(1000, 1300))
    _, ((prompt, params),) = decode(transcriber, features, {"temperature": 0.0}, previous_tokens=said)
    assert prompt == [TOKENIZER.sot_prev, *said[-223:], TOKENIZER.sot]
    assert params.max_tokens == 448 - len(prompt)
    _, ((prompt, params),) = decode(transcriber, features, {"temperature": 0.0, "max_new_tokens": 7})
    assert prompt == [TOKENIZER.sot]
    assert params.max_tokens == 7


def test_hotwords_stand_before_what_was_said(transcriber: Transcriber, features: torch.Tensor) -> None:
    hotwords = TOKENIZER.encode(" Dashwood, Norland")
    options = {"temperature": 0.0, "hotwords": "Dashwood, Norland"}
    said = list(range(1000, 1300))
    _, ((prompt, _),) = decode(transcriber, features, options, previous_tokens=said)
    assert prompt == [TOKENIZER.sot_prev, *hotwords, *said[len(hotwords) - 223 :], TOKENIZER.sot]
    _, ((prompt, _),) = decode(transcriber, features, options, prefix="And")
    assert TOKENIZER.sot_prev not in prompt


def test_a_prefix_is_part_of_the_transcript(transcriber: Transcriber, features: torch.Tensor) -> None:
    prefix = TOKENIZER.encode(" And Mr. John")
    decoded, ((prompt, _),) = decode(transcriber, features, {"temperature": 0.0}, prefix="And Mr. John")
    assert prompt == [TOKENIZER.sot, TOKENIZER.timestamp_begin, *prefix]
    assert decoded.tokens[: len(prefix) + 1] == prompt[1:]
    assert decoded.text.startswith("And Mr. John Dashwood")
    options = {"temperature": 0.0, "without_timestamps": True}
    _, ((prompt, _),) = decode(transcriber, features, options, prefix="And Mr. John")
    assert prompt == [TOKENIZER.sot, TOKENIZER.no_timestamps, *prefix]


def test_longest_prompt_and_prefix_leave_room(transcriber: Transcriber, features: torch.Tensor) -> None:
    given = {"previous_tokens": list(range(1000, 1300)), "prefix": "one two three " * 200}
    _, ((prompt, params),) = decode(transcriber, features, {"temperature": 0.0}, **given)
    assert len(prompt) + params.max_tokens <= 448


@given(st.text(max_size=300))
def test_compression_ratio_is_openai_whispers(text: str) -> None:
    assert compression_ratio(text) == openai_compression_ratio(text)


@pytest.mark.parametrize(
    ("options", "long", "short"),
    [
        ({}, 16.0, 4.0),  # the mean log probability
        ({"length_penalty": 1.0}, 16.0, 4.0),
        ({"length_penalty": 0.5}, 4.0, 2.0),
        ({"length_penalty": 0.0}, 1.0, 1.0),  # the whole log probability
        ({"length_penalty": -1.0}, 1 / 16, 1 / 4),
        ({"gnmt_length_penalty": 1.0}, 21 / 6, 9 / 6),
        ({"gnmt_length_penalty": 0.0}, 1.0, 1.0),
    ],
)
def test_texts_are_ranked_by_length(options: dict[str, float], long: float, short: float) -> None:
    checked = TranscriptionOptions(**options)
    assert (divisor(16, checked), divisor(4, checked)) == pytest.approx((long, short))
    assert divisor(0, checked) > 0
