"""Draft models: drafts that a smaller model computes change the number of steps, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drafted import CHECKPOINTS, GREEDY, HERE, KINDS, WORDS, assert_nothing_is_held, assert_same
from random_whisper import save_random_whisper
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForSeq2SeqLM

from transept import Engine, ParameterError, RequestOutput, SamplingParams

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
SMALLER = {
    "bart-g2p": {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "decoder_attention_heads": 2},
    "t5-g2p": {"d_model": 64, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 2},
}
FEWER = {"bart-g2p": {"decoder_layers": 1}, "t5-g2p": {"num_decoder_layers": 1}}
SAMPLED = SamplingParams(temperature=1.0, seed=3, max_tokens=24, ignore_eos=True)
FAMILIES = ["bart-g2p", "t5-g2p"]


def save_draft(name: str, directory: Path, changes: dict[str, Any], from_target: bool = False) -> Path:
    """A random model of other sizes, or one with some of the target's weights."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(CHECKPOINTS / name, **changes)
    model = AutoModelForSeq2SeqLM.from_config(config)
    if from_target:
        target = AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINTS / name).state_dict()
        model.load_state_dict({key: target[key] for key in model.state_dict()})
    model.save_pretrained(directory)
    for file in TOKENIZER:
        shutil.copy(CHECKPOINTS / name / file, directory / file)
    return directory


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def drafts(name: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The model itself; one with its encoder and one decoder layer; and one of another size, with random weights."""
    folder = tmp_path_factory.mktemp("drafts")
    return {
        "itself": CHECKPOINTS / name,
        "fewer layers": save_draft(name, folder / "fewer", FEWER[name], from_target=True),
        "random": save_draft(name, folder / "random", SMALLER[name]),
    }


@pytest.fixture(scope="module")
def plain(name: str) -> tuple[list[str], list[SamplingParams], list[RequestOutput]]:
    """Requests of all kinds, and their outputs without drafts."""
    words, params = WORDS * 4, [*(KINDS * 3)]
    return words, params, Engine(CHECKPOINTS / name, **HERE).generate(words, params, progress=False)


def lengths(params: list[SamplingParams]) -> list[SamplingParams]:
    """The parameters with lengths of drafts, except for beam searches."""
    numbers = (None, 1, 3, 7)
    return [
        each if each.beam_search else dataclasses.replace(each, draft_length=numbers[index % 4])
        for index, each in enumerate(params)
    ]


def has_own_encoder(engine: Engine) -> bool:
    return engine.executor.worker.runner.drafts.encoder is not None  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["itself", "fewer layers", "random"])
def test_a_batch_of_all_kinds(name: str, drafts: dict[str, Path], plain: Any, kind: str) -> None:
    words, params, expected = plain
    engine = Engine(CHECKPOINTS / name, **HERE, draft_model=drafts[kind])
    assert has_own_encoder(engine) == (kind == "random")
    assert_same(engine.generate(words, lengths(params), progress=False), expected)
    statistics = engine.core.statistics
    assert statistics.num_draft_tokens > 50
    if kind == "itself":
        assert statistics.num_accepted_tokens > 0.8 * statistics.num_draft_tokens
    assert_nothing_is_held(engine)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_model_accepts_its_own_tokens(name: str, drafts: dict[str, Path], params: SamplingParams) -> None:
    """The draft model's draws are the target's, so nearly all are accepted; rounding may change one."""
    engine = Engine(CHECKPOINTS / name, **HERE, draft_model=drafts["itself"])
    (expected,) = Engine(CHECKPOINTS / name, **HERE).generate(WORDS[0], params)
    (ours,) = engine.generate(WORDS[0], dataclasses.replace(params, draft_length=4))
    assert_same([ours], [expected])
    statistics = engine.core.statistics
    assert statistics.num_accepted_tokens >= 0.9 * statistics.num_draft_tokens > 0
    assert statistics.num_steps <= 8  # the prompt's step draws one token, each further one up to five; of 24


@pytest.mark.parametrize("kind", ["fewer layers", "random"])
@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
def test_preempted_requests(name: str, drafts: dict[str, Path], plain: Any, kind: str, swap: bool) -> None:
    words, params, expected = plain
    roomy = Engine(CHECKPOINTS / name, **HERE, draft_model=drafts[kind])
    manager = roomy.block_manager
    room = 24 * 4 * (HERE["kv_cache_bytes"] // (manager.num_device_blocks * manager.block_size))
    sizes = {**HERE, "block_size": 4, "max_num_seqs": 8, "kv_cache_bytes": room, "swap_bytes": room if swap else 0}
    small, preempted = Engine(CHECKPOINTS / name, **sizes, draft_model=drafts[kind]), 0
    for index, request in enumerate(zip(words, lengths(params), strict=True)):
        small.add_request(str(index), *request)
    finished: dict[str, RequestOutput] = {}
    while small.has_unfinished_requests:
        finished |= {output.request_id: output for output in small.step() if output.finished}
        small.block_manager.check_integrity()
        preempted += any(group.seqs[0].output_token_ids for group in small.scheduler.queue)
    assert_same([finished[str(index)] for index in range(len(words))], expected)
    assert preempted
    assert small.core.statistics.num_draft_tokens
    assert_nothing_is_held(small)


def test_steps_issued_ahead(name: str, drafts: dict[str, Path], plain: Any) -> None:
    words, params, expected = plain
    ahead = Engine(CHECKPOINTS / name, **HERE, max_num_seqs=9, draft_model=drafts["random"])
    ahead.executor.capacity = dataclasses.replace(ahead.executor.capacity, asynchronous=True)
    assert_same(ahead.generate(words, lengths(params), progress=False), expected)
    assert ahead.core.statistics.num_draft_tokens
    assert_nothing_is_held(ahead)


def test_two_ranks(tmp_path: Path) -> None:
    draft = save_draft("t5-g2p", tmp_path, SMALLER["t5-g2p"])
    params = [dataclasses.replace(each, draft_length=3) for each in (GREEDY, SAMPLED)] * 2
    expected = Engine(CHECKPOINTS / "t5-g2p", **HERE).generate(WORDS[:4], [GREEDY, SAMPLED] * 2)
    options = {**HERE, "device": "cpu", "tensor_parallel_size": 2}
    with Engine(CHECKPOINTS / "t5-g2p", **options, draft_model=draft) as engine:
        assert_same(engine.generate(WORDS[:4], params), expected)
        assert engine.core.statistics.num_draft_tokens > 24


@pytest.mark.parametrize("shares", [True, False], ids=["shared encoder", "own encoder"])
def test_whisper(tmp_path: Path, shares: bool) -> None:
    """Beside a request's own draft, which comes first."""
    target = save_random_whisper(tmp_path / "target")
    draft = target if shares else save_random_whisper(tmp_path / "draft", seed=1, heads=2)
    rng = np.random.default_rng(0)
    sounds = [(rng.normal(0, 0.1, 16_000).astype(np.float32), 16_000) for _ in range(4)]
    prompts = [{"multi_modal_data": {"audio": sound}} for sound in sounds]
    params = [dataclasses.replace(each, max_tokens=16) for each in (GREEDY, SAMPLED)] * 2
    expected = Engine(target, **HERE).generate(prompts, params, progress=False)
    engine = Engine(target, **HERE, draft_model=draft)
    assert has_own_encoder(engine) != shares
    asked = [dataclasses.replace(each, draft_length=4) for each in params]
    asked[3] = dataclasses.replace(asked[3], draft_tokens=expected[3].outputs[0].token_ids)
    assert_same(engine.generate(prompts, asked, progress=False), expected)
    statistics = engine.core.statistics
    assert statistics.num_accepted_tokens >= (0.9 * statistics.num_draft_tokens if shares else 12)


def test_a_draft_model_with_fewer_positions(tmp_path: Path) -> None:
    """It drafts neither for inputs that are too long for it, nor beyond its last position."""
    name = "bart-g2p"
    draft = save_draft(name, tmp_path, SMALLER[name] | {"max_position_embeddings": 12})
    words = ["ox", "transept" * 4, "nave"]
    expected = Engine(CHECKPOINTS / name, **HERE).generate(words, GREEDY)
    engine = Engine(CHECKPOINTS / name, **HERE, draft_model=draft)
    assert_same(engine.generate(words, dataclasses.replace(GREEDY, draft_length=4)), expected)
    assert 0 < engine.core.statistics.num_draft_tokens < 3 * 4 * 12


def test_a_draft_model_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, params = CHECKPOINTS / "bart-g2p", dataclasses.replace(GREEDY, draft_length=3)
    expected = Engine(directory, **HERE).generate(WORDS[:3], GREEDY)
    engine = Engine(directory, **HERE, draft_model=directory)
    runner, calls = engine.executor.worker.runner.drafts, []  # type: ignore[attr-defined]
    decode = runner.decoder._model.model.decode

    def failing(*given: Any) -> Any:
        calls.append(given)
        if len(calls) % 3 == 0:
            raise ValueError("this model is broken")
        return decode(*given)

    monkeypatch.setattr(runner.decoder._model.model, "decode", failing)
    assert_same(engine.generate(WORDS[:3], params), expected)
    assert len(calls) > 5


def write_config(directory: Path, **settings: Any) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(settings))
    save_file({"wte.weight": torch.zeros(4, 4)}, directory / "model.safetensors")
    return directory


def test_models_that_cannot_draft(tmp_path: Path) -> None:
    bart, options = CHECKPOINTS / "bart-g2p", HERE
    gpt = write_config(tmp_path / "gpt", architectures=["GPT2LMHeadModel"], model_type="gpt2")
    with pytest.raises(ParameterError, match=r"draft_model .*gpt' cannot be read: .*GPT2LMHeadModel"):
        Engine(bart, **options, draft_model=gpt)
    with pytest.raises(ParameterError, match=r"cannot draft for model: its vocabulary has 128 tokens, .* has 127\. "):
        Engine(bart, **options, draft_model=CHECKPOINTS / "t5-g2p")
    whisper = save_random_whisper(tmp_path / "whisper")
    other = save_draft("bart-g2p", tmp_path / "other", SMALLER["bart-g2p"] | {"vocab_size": 2008})
    with pytest.raises(ParameterError, match="its encoder takes text, and the model's takes other input"):
        Engine(whisper, **options, draft_model=other)
    swapped = save_draft("bart-g2p", tmp_path / "swapped", SMALLER["bart-g2p"])
    tokenizer = json.loads((swapped / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second, *_ = (token for token, number in vocabulary.items() if number > 10)
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (swapped / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ParameterError, match="its encoder's tokenizer has other tokens"):
        Engine(bart, **options, draft_model=swapped)
    with pytest.raises(ParameterError, match="does not work with pipeline_parallel_size; leave out one of them"):
        Engine(bart, **options, draft_model=bart, pipeline_parallel_size=2)
