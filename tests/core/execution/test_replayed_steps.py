"""New requests that take part in recorded steps get the tokens of steps made anew, kernel after kernel.

With a GPU steps are replayed CUDA graphs. Without one the recorded step is computed from the same buffers, by Triton's
interpreter.
"""

import logging
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
import torch
from one_head import with_one_head
from random_whisper import NO_TIMESTAMPS, SECONDS, START, save_random_whisper
from replaying import DEVICE, HERE, replaying

from transept import Engine, RequestOutput, SamplingParams
from transept.authoring import RelativeKeys, replayable
from transept.core.attention.backends.triton import TritonBackend
from transept.core.execution.decode_graphs import num_rows_recorded
from transept.core.execution.decoder_runner import DecoderRunner
from transept.core.execution.encoder_graphs import num_tokens_recorded
from transept.core.execution.encoder_runner import EncoderRunner
from transept.core.execution.kv_cache import block_bytes
from transept.plugins.bart.model import BartForConditionalGeneration
from transept.plugins.whisper.model import WhisperForConditionalGeneration

WORDS = ["grapheme", "ox", "transept", "a", "engine", "nave", "choir"]
COUNTS = [5, 2, 6, 3, 4, 1, 3]  # of new tokens: requests end, and others begin, at every other step
PARAMS = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in COUNTS]
NOISE = np.random.default_rng(0).normal(0.0, 0.3, size=(6, int(SECONDS * 16_000))).astype(np.float32)
GREEDY = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
pytestmark = [
    pytest.mark.skipif(
        bool(TritonBackend.reasons_against(torch.device(DEVICE), torch.float32, 64, 16)),
        reason="Triton is not installed",
    ),
    pytest.mark.usefixtures("triton_checks_no_overflow"),
]


@pytest.fixture(autouse=True)
def _float32_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # by default convolutions round it on a GPU


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_one_head("bart-g2p", tmp_path_factory.mktemp("bart"))


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_one_head("t5-g2p", tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("whisper"), heads=1)  # programs are slow in the interpreter


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often requests were computed, and encoded, kernel after kernel."""
    counts: Counter[str] = Counter()
    for runner, name in ((DecoderRunner, "launch"), (EncoderRunner, "encode")):
        original = getattr(runner, name)

        def counted(*arguments: Any, name: str = name, original: Any = original) -> Any:
            counts[name] += 1
            return original(*arguments)

        monkeypatch.setattr(runner, name, counted)
    return counts


def token_ids(outputs: list[RequestOutput]) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in outputs]


def fresh(directory: Path, prompts: list[Any], params: Any) -> list[list[int]]:
    return token_ids(Engine(directory, attention_backend="torch", **HERE).generate(prompts, params, progress=False))


def test_short_prompts_are_rows_of_the_steps_of_others(bart: Path, calls: Counter[str]) -> None:
    expected = fresh(bart, WORDS, PARAMS)
    calls.clear()
    engine = replaying(bart, max_num_seqs=3)
    assert token_ids(engine.generate(WORDS, PARAMS, progress=False)) == expected
    assert not calls["launch"]
    assert not engine.executor.worker.runner.decoder.graphs.failed_shapes
    engine.block_manager.check_integrity()


def test_long_prompts_are_computed_apart_and_their_encoder_s_output_is_shared(bart: Path, calls: Counter[str]) -> None:
    long = [2, 0, *range(5, 17)]
    prompts = [
        {"encoder_prompt": word, "decoder_prompt": {"prompt_tokens": start}}
        for word in WORDS[:3]
        for start in (long, [2, 0], [2, 0, 9])  # the first encodes, in the step in which the others read it
    ]
    params = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
    expected = fresh(bart, prompts, params)
    engine = replaying(bart, max_num_seqs=3)
    engine.generate("transom", params, progress=False)
    calls.clear()
    assert token_ids(engine.generate(prompts, params, progress=False)) == expected
    assert calls["launch"] == 3
    assert not calls["encode"]  # the text before was the first of that shape
    assert engine.num_encoder_hits == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", "t5"])
def test_texts_are_filled_up_to_what_is_recorded(
    name: str, calls: Counter[str], request: pytest.FixtureRequest
) -> None:
    directory = request.getfixturevalue(name)
    letters = random.Random(0)
    lengths = [5, 30, 20, 33, 60, 1, 58, 12, 60, 3, 41, 55]  # alone, or in twos
    texts = ["".join(letters.choices(ascii_lowercase, k=length)) for length in lengths]
    params = [SamplingParams(temperature=0.0, max_tokens=2 + place % 3, ignore_eos=True) for place in range(len(texts))]
    expected = fresh(directory, texts, params)
    calls.clear()
    engine = replaying(directory, max_num_seqs=2)
    assert token_ids(engine.generate(texts, params, progress=False)) == expected
    assert not calls["launch"]
    assert calls["encode"] <= 3  # the first time of each number of tokens
    engine.block_manager.check_integrity()


def test_an_encode_that_overrides_a_replayable_one_is_not_recorded(bart: Path, calls: Counter[str]) -> None:
    class ReadsLengths(BartForConditionalGeneration):
        def encode(self, ids: Any, positions: Any, metadata: Any, **features: Any) -> torch.Tensor:
            hidden = super().encode(ids, positions, metadata, **features)
            return torch.cat([rows / len(rows) for rows in hidden.split(metadata.encoder_lens)])

    outputs = []
    for engine in (Engine(bart, attention_backend="torch", **HERE), replaying(bart, max_num_seqs=3)):
        engine.executor.worker.runner.model.__class__ = ReadsLengths
        calls.clear()
        outputs.append(token_ids(engine.generate(WORDS, PARAMS, progress=False)))
    assert not calls["launch"]
    assert calls["encode"] > 2
    assert outputs[0] == outputs[1] != fresh(bart, WORDS, PARAMS)


def test_what_reads_a_list_of_the_metadata_is_not_recorded(bart: Path, calls: Counter[str]) -> None:
    class ReadsRows(BartForConditionalGeneration):
        def decode(self, ids: torch.Tensor, positions: Any, *rest: Any) -> torch.Tensor:
            hidden, starts = super().decode(ids, positions, *rest), rest[-1].query_start_loc
            return torch.cat([rows * len(rows) for rows in hidden.split([b - a for a, b in pairwise(starts)])])

        @replayable
        def encode(self, *inputs: Any, **features: Any) -> torch.Tensor:
            return super().encode(*inputs, **features) * (1 + len(inputs[2].encoder_lens) / 1000)

    outputs = []
    for engine in (Engine(bart, attention_backend="torch", **HERE), replaying(bart, max_num_seqs=1)):
        engine.executor.worker.runner.model.__class__ = ReadsRows
        outputs.append(token_ids(engine.generate(WORDS, PARAMS, progress=False)))
    assert outputs[0] == outputs[1]
    assert engine.executor.worker.runner.decoder.graphs.failed_shapes
    assert calls["encode"] == 1 + len(WORDS)  # the first engine all at once


@pytest.mark.parametrize("kind", ["bias by positions", "relative keys"])
def test_a_text_encoder_with_such_attention_is_launched(kind: str, bart: Path, calls: Counter[str]) -> None:
    torch.manual_seed(0)
    bias = torch.randn(1, 64, 64, device=DEVICE)
    keys = RelativeKeys(torch.randn(9, 128, device=DEVICE), 4)  # one head of 128 dimensions

    class Biased(BartForConditionalGeneration):
        @replayable
        def encode(self, ids: Any, positions: Any, metadata: Any, **features: Any) -> torch.Tensor:
            x = self.encoder.embedding(ids, positions)
            for layer in self.encoder.layers:
                x = layer(x, metadata, bias if kind == "bias by positions" else keys)
            return x

    outputs = []
    for engine in (Engine(bart, attention_backend="torch", **HERE), replaying(bart, max_num_seqs=2)):
        engine.executor.worker.runner.model.__class__ = Biased
        calls.clear()
        outputs.append(token_ids(engine.generate(WORDS, PARAMS, progress=False)))
    assert outputs[0] == outputs[1]
    assert calls["encode"] > 3
    assert not calls["launch"]


def test_a_swapped_request_finds_what_another_one_encodes_anew(bart: Path) -> None:
    """It comes back in the step whose encoder writes the table that both read."""
    words, counts = ["grapheme", "nave", "nave", "nave", "ox"], [28, 23, 14, 19, 7]
    params = [SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True) for count in counts]
    whole = Engine(bart, attention_backend="torch", **HERE)
    size = block_bytes(whole.shape, 4, torch.float32)
    short = replaying(bart, block_size=4, kv_cache_bytes=11 * size, swap_bytes=6 * size)
    outputs = [token_ids(engine.generate(words, params, progress=False)) for engine in (whole, short)]
    assert outputs[0] == outputs[1]


def sounds(count: int) -> list[Any]:
    return [
        {
            "encoder_prompt": {"multi_modal_data": {"audio": (noise, 16_000)}},
            "decoder_prompt": {"prompt_tokens": [START, NO_TIMESTAMPS]},
        }
        for noise in NOISE[:count]
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("together", [2, 1])
def test_encoders_of_one_shape_are_recorded(together: int, whisper: Path, calls: Counter[str]) -> None:
    prompts = sounds(6)
    expected = fresh(whisper, prompts, GREEDY)
    calls.clear()
    engine = replaying(whisper, max_num_seqs=together)
    assert token_ids(engine.generate(prompts, GREEDY, progress=False)) == expected
    assert calls == {"encode": 1}  # a shape's first time
    engine.block_manager.check_integrity()


def test_an_encoder_that_cannot_be_recorded_is_launched(
    whisper: Path, calls: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    class FailsAtSecond(WhisperForConditionalGeneration):
        times = 0

        def encode(self, *inputs: Any, **features: Any) -> torch.Tensor:
            FailsAtSecond.times += 1
            if FailsAtSecond.times == 2:
                raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
            return super().encode(*inputs, **features)

    expected = fresh(whisper, sounds(5), GREEDY)
    engine = replaying(whisper, max_num_seqs=1)
    engine.executor.worker.runner.model.__class__ = FailsAtSecond
    calls.clear()
    with caplog.at_level(logging.WARNING, logger="transept"):
        assert token_ids(engine.generate(sounds(5), GREEDY, progress=False)) == expected
    assert calls == {"encode": 5}
    (line,) = caplog.messages
    assert line.startswith("FailsAtSecond encodes 50 tokens without CUDA graphs")


def test_steps_are_filled_up_to_few_sizes() -> None:
    sizes = [num_rows_recorded(count) for count in range(1, 200)]
    assert sorted({*sizes}) == [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256]
    assert all(size >= count for count, size in enumerate(sizes, 1))
    texts = [num_tokens_recorded(count) for count in range(1, 2049)]
    assert sorted({*texts}) == [*range(64, 1025, 64), *range(1152, 2049, 128)]
    assert all(0 <= size - count < max(64, count / 8) for count, size in enumerate(texts, 1))
