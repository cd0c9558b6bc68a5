"""Real weights, real speech: the same tokens as transformers, whatever the batch."""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import jiwer
import numpy as np
import pytest
from record_tokens import recorded_tokens
from whisper.normalizers import EnglishTextNormalizer
from whisper_reference import (
    reference_beams,
    reference_model,
    reference_texts,
    reference_token_ids,
    speech_windows,
    windows,
)

from transept import Engine, RequestOutput, SamplingParams

GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True)
class Case:
    directory: Path
    every: int  # 1: each window of every clip is one of the waveforms; 20: each twentieth
    num_beam_windows: int
    waveforms: list[np.ndarray]
    expected: list[list[int]]  # transformers' tokens, without end-of-text


@pytest.fixture(scope="module")
def waveforms(speech_dir: Path) -> list[np.ndarray]:
    return speech_windows(speech_dir)


@pytest.fixture(
    scope="module",
    params=[
        ("tiny_en", 6, 2),
        ("base", 20, 1),
        pytest.param(("tiny_en", 1, 4), marks=pytest.mark.slow),
        pytest.param(("base", 1, 4), marks=pytest.mark.slow),
    ],
    ids=["tiny.en", "base", "tiny.en, every window", "base, every window"],
)
def case(request: pytest.FixtureRequest, waveforms: list[np.ndarray]) -> Case:
    """What transformers decoded before: see record_tokens.py. The encoder of base takes seconds a window."""
    model, every, num_beam_windows = request.param
    expected = recorded_tokens(model)
    assert len(expected) == len(waveforms)
    directory = request.getfixturevalue(f"{model}_dir")
    return Case(directory, every, num_beam_windows, waveforms[::every], expected[::every])


def prompt(waveform: np.ndarray) -> dict:
    return {"multi_modal_data": {"audio": (waveform, 16_000)}}


@pytest.fixture(scope="module")
def engine(case: Case) -> Engine:
    """With room for the encoder's outputs of all windows."""
    return Engine(case.directory, kv_cache_bytes=5 << 29)


@pytest.fixture(scope="module")
def batch(case: Case, engine: Engine) -> list[RequestOutput]:
    """Every window, all in one batch."""
    return engine.generate([prompt(waveform) for waveform in case.waveforms], GREEDY)


def tokens(output: RequestOutput) -> list[int]:
    """What was decoded before end-of-text, which must have come."""
    completion = output.outputs[0]
    assert completion.finish_reason == "stop"
    return completion.token_ids[:-1]


@pytest.mark.sampled(2)
def test_greedy_tokens_in_one_batch_equal_transformers(case: Case, batch: list[RequestOutput]) -> None:
    assert [tokens(output) for output in batch] == case.expected


@pytest.mark.sampled(2)
def test_greedy_tokens_alone_equal_transformers(case: Case, engine: Engine, batch: list[RequestOutput]) -> None:
    """Of the first windows the encoder runs alone, too; of the others its output is still in the cache."""
    fresh = Engine(case.directory)
    for index, (waveform, expected) in enumerate(zip(case.waveforms, case.expected, strict=True)):
        alone = fresh if index < 4 else engine
        assert tokens(alone.generate(prompt(waveform), GREEDY)[0]) == expected
    assert (fresh.num_encoder_runs, engine.num_encoder_hits) == (4, len(case.waveforms) - 4)


@pytest.mark.slow
@pytest.mark.parametrize("every", [20, 1])
@pytest.mark.parametrize("model", ["tiny_en", "base"])
def test_the_recorded_tokens_are_those_of_transformers(
    model: str, every: int, waveforms: list[np.ndarray], request: pytest.FixtureRequest
) -> None:
    reference = reference_model(request.getfixturevalue(f"{model}_dir"))
    assert reference_token_ids(reference, waveforms[::every]) == recorded_tokens(model)[::every]


@pytest.mark.sampled(2)
def test_beam_search_equals_transformers_alone_and_beside_greedy_requests(case: Case) -> None:
    chosen = [index % len(case.waveforms) for index in (0, 7, 18, 41)][: case.num_beam_windows]
    prompts = [prompt(case.waveforms[index]) for index in chosen]
    settings = {"num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.8}
    engine = Engine(case.directory)
    alone = [engine.generate(each, SamplingParams(**settings))[0] for each in prompts]
    params = [SamplingParams(**settings), GREEDY] * len(chosen)
    mixed = engine.generate([each for each in prompts for _ in range(2)], params)
    model = reference_model(case.directory)
    for position, index in enumerate(chosen):
        hypotheses, scores = reference_beams(model, case.waveforms[index], **settings)
        for output in (alone[position], mixed[2 * position]):
            assert [each.token_ids for each in output.outputs] == hypotheses
            assert [each.score for each in output.outputs] == pytest.approx(scores, abs=1e-4)
        assert tokens(mixed[2 * position + 1]) == case.expected[index]


def test_word_error_rate_equals_transformers(case: Case, batch: list[RequestOutput], speech_dir: Path) -> None:
    folder = speech_dir / "prompts-en"
    entries = sorted(json.loads((folder / "transcripts.json").read_text()), key=lambda entry: entry["audio"])
    normalize = EnglishTextNormalizer()
    spoken = [normalize(entry["text"]) for entry in entries]

    owners = [None] * 5  # of each window the entry; the LibriVox clips come first
    owners += [index for index, entry in enumerate(entries) for _ in windows(folder / entry["audio"])]

    chosen = owners[:: case.every]
    whole = [index for index in range(len(entries)) if chosen.count(index) == owners.count(index)]

    def word_error_rate(window_texts: list[str]) -> float:
        texts: dict[int | None, str] = defaultdict(str)
        for owner, text in zip(chosen, window_texts, strict=True):
            texts[owner] += text
        return jiwer.wer([spoken[index] for index in whole], [normalize(texts[index]) for index in whole])

    our_rate = word_error_rate([output.outputs[0].text for output in batch])
    their_rate = word_error_rate(reference_texts(case.directory, case.expected))
    assert our_rate == their_rate
    assert our_rate < 0.15  # both read the recordings, not noise
