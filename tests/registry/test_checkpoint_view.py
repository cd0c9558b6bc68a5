"""What plugins' functions are given of a checkpoint: read on first use, once, and not to be changed."""

from __future__ import annotations

import gc
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
import torch
from ragged_whisper import frames_of, ragged_engine
from random_whisper import save_random_whisper
from transformers import GenerationConfig

from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint
from transept.core.checkpoints.model_description import describe_model
from transept.core.engine import Engine
from transept.core.request.sampling_params import SamplingParams
from transept.errors import CheckpointError
from transept.multimodal import MappedInput
from transept.registry.checkpoint_view import CheckpointView

SETTINGS = ("preprocessor_config", "processor_config")
THREADS = 8
GREEDY = SamplingParams(temperature=0.0, max_tokens=6)


def test_nothing_is_read_before_it_is_asked_for_and_then_once() -> None:
    calls, at_once = [], Barrier(THREADS)

    def load(what: str) -> object:
        calls.append(what)
        return object()

    view = CheckpointView(
        Path("nowhere"),
        SimpleNamespace(vocab_size=3),
        load_generation_config=lambda: load("generation config"),
        load_tokenizer=lambda: load("tokenizer"),
    )
    assert view.config.vocab_size == 3
    assert calls == []

    def ask(_: int) -> object:
        at_once.wait()
        return view.tokenizer

    with ThreadPoolExecutor(THREADS) as threads:
        assert len(set(threads.map(ask, range(THREADS)))) == 1
    assert calls == ["tokenizer"]
    assert view.with_config(None).generation_config is view.generation_config
    assert calls == ["tokenizer", "generation config"]


def test_what_could_not_be_read_is_tried_again() -> None:
    left = [RuntimeError("not yet")]

    def load() -> str:
        if left:
            raise left.pop()
        return "read"

    view = CheckpointView(Path("nowhere"), None, load_tokenizer=load)
    with pytest.raises(RuntimeError, match="not yet"):
        _ = view.tokenizer
    assert view.tokenizer == "read"


@pytest.mark.parametrize("name", SETTINGS)
def test_processor_settings(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.json"
    assert getattr(CheckpointView(tmp_path, None), name) == {}
    file.write_text(json.dumps({"size": {"height": 3}}))
    view = CheckpointView(tmp_path, None)
    settings = getattr(view, name)
    assert settings == {"size": {"height": 3}}
    with pytest.raises(TypeError):
        settings["size"] = 4
    file.write_text("[")
    assert getattr(view, name) is settings
    with pytest.raises(CheckpointError, match=f'cannot read "{file}"'):
        getattr(CheckpointView(tmp_path, None), name)


@pytest.mark.parametrize("name", ["path", "config", "generation_config", "tokenizer", *SETTINGS])
def test_it_is_read_only(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(CheckpointView(Path("nowhere"), None), name, None)


def test_the_engine_and_the_plugin_look_at_the_same(tiny_en_dir: Path) -> None:
    engine = Engine(tiny_en_dir, kv_cache_bytes=1 << 22)
    view = engine.view
    assert view.path == tiny_en_dir
    assert view.config is engine.model_config
    assert view.tokenizer is engine.tokenizer
    assert view.generation_config is engine.generation_config
    assert view.processor_config == {}


def test_an_engine_does_not_keep_its_weights_file_mapped(tiny_en_dir: Path) -> None:
    def opened() -> set[int]:
        gc.collect()
        return {id(each) for each in gc.get_objects() if type(each) is CTranslate2Checkpoint}

    others = opened()
    engine = Engine(tiny_en_dir, kv_cache_bytes=1 << 22)
    assert opened() <= others
    assert engine.view.tokenizer is not None


def test_a_worker_reads_no_more_than_the_config(tmp_path: Path) -> None:
    """It describes the model, too, and calls no function that is given a view."""
    save_random_whisper(tmp_path)
    for name in ("generation_config.json", "tokenizer.json", "preprocessor_config.json"):
        (tmp_path / name).write_text("[")
    described = describe_model(tmp_path, str(tmp_path), None)
    for name in ("generation_config", "tokenizer", "preprocessor_config"):
        with pytest.raises(CheckpointError, match="cannot read"):
            getattr(described.view, name)


def test_a_mapper_reads_the_checkpoints_settings_and_files(tmp_path: Path) -> None:
    save_random_whisper(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"gain": 2.0}')
    torch.save(frames_of(32, seed=1), tmp_path / "offsets.pt")

    def louder(frames: torch.Tensor, view: CheckpointView) -> MappedInput:
        offsets = torch.load(view.path / "offsets.pt")
        features = frames * view.preprocessor_config["gain"] + offsets
        return MappedInput({"input_features": features}, num_tokens=features.shape[1] // 2)

    def tokens(engine: Engine, frames: torch.Tensor) -> list[int]:
        (output,) = engine.generate({"multi_modal_data": {"audio_features": frames}}, GREEDY)
        return output.outputs[0].token_ids

    mapped = tokens(ragged_engine(tmp_path, louder), frames_of(32))
    assert mapped == tokens(ragged_engine(tmp_path), frames_of(32) * 2.0 + frames_of(32, seed=1))
    assert mapped != tokens(ragged_engine(tmp_path), frames_of(32))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (None, r'generation_config\.json" lacks codes: there is no such file; copy'),
        ({"_from_model_config": True}, r'generation_config\.json" lacks codes: it names none; copy'),
        (
            {"codes": {"de": 5}, "_from_model_config": True},
            'has codes, but says "_from_model_config": true.* set it to f',
        ),
    ],
)
def test_a_setting_that_is_missing_says_why(tmp_path: Path, settings: dict | None, why: str) -> None:
    if settings is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(settings))
        assert not hasattr(GenerationConfig.from_dict(settings), "codes")  # which transformers leaves out
        assert GenerationConfig.from_dict({"codes": {"de": 5}, "_from_model_config": False}).codes == {"de": 5}
    view = CheckpointView(tmp_path, SimpleNamespace())
    with pytest.raises(CheckpointError, match=why):
        raise view.lacks("codes")
