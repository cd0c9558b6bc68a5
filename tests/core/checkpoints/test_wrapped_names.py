"""Checkpoints saved with a wrapper around the model: the same tokens as without; an adapter alone is refused."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from random_whisper import save_random_whisper
from safetensors.torch import load_file, save_file

from transept import Engine, SamplingParams
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.model_description import describe_model
from transept.core.checkpoints.wrapped_names import unwrapped
from transept.errors import CheckpointError

CMUDICT = Path(__file__).parents[2] / "data" / "cmudict"
SMALL = {"device": "cpu", "kv_cache_bytes": 1 << 20}
PREFIXES = [
    *("_orig_mod.", "module.", "base_model.model.", "module._orig_mod.", "_orig_mod.module.base_model.model."),
    *("model.", "bart.", "net.model."),
]


def within(name: str) -> str:
    """As torch.compile and FSDP name the weights of layers that were wrapped one by one."""
    return re.sub(r"(layers?|block)\.(\d+)\.", r"\1.\2._fsdp_wrapped_module._orig_mod.", name)


def rename(directory: Path, form: str, change) -> Path:
    """The checkpoint with other names of weights, as one file, in shards or as a pickle."""
    state = {change(name): tensor for name, tensor in load_file(directory / "model.safetensors").items()}
    (directory / "model.safetensors").unlink()
    if form == "safetensors":
        save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
    elif form == "bin":
        torch.save(state, directory / "pytorch_model.bin")
    else:
        files = {name: f"model-{number % 2 + 1:05d}-of-00002.safetensors" for number, name in enumerate(state)}
        for file in set(files.values()):
            part = {name: tensor for name, tensor in state.items() if files[name] == file}
            save_file(part, directory / file, metadata={"format": "pt"})
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return directory


@pytest.mark.parametrize("form", ["safetensors", "shards", "bin"])
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_tokens_are_those_of_the_model_without_wrappers(family: str, form: str, tmp_path: Path) -> None:
    published = CMUDICT / f"{family}-g2p"
    params = SamplingParams(max_tokens=8)

    def tokens(directory: Path) -> list[list[int]]:
        outputs = Engine(directory, **SMALL).generate(["window", "table"], params)
        return [output.outputs[0].token_ids for output in outputs]

    expected = tokens(published)
    changes = [within, *(lambda name, prefix=prefix: prefix + name for prefix in PREFIXES)]
    for number, change in enumerate(changes):
        directory = Path(shutil.copytree(published, tmp_path / str(number)))
        assert tokens(rename(directory, form, change)) == expected


@pytest.mark.parametrize("form", ["safetensors", "shards", "bin"])
@pytest.mark.parametrize("prefix", ["whisper.", "model.", "net.model."])
def test_a_module_may_hold_a_whisper_by_any_name(prefix: str, form: str, tmp_path: Path) -> None:
    directory = save_random_whisper(tmp_path / "model")
    expected = {name for name, _ in open_checkpoint(directory).shapes()}
    rename(directory, form, lambda name: f"{prefix}{name}")
    assert {name for name, _ in describe_model(directory, "model", None).checkpoint.shapes()} == expected
    Engine(directory, **SMALL)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_a_checkpoint_without_architectures_is_loaded_by_its_model_type(family: str, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(CMUDICT / f"{family}-g2p", tmp_path / "model"))
    config = json.loads((directory / "config.json").read_text())
    del config["architectures"]
    (directory / "config.json").write_text(json.dumps(config))
    outputs = [Engine(path, **SMALL).generate(["window"]) for path in (CMUDICT / f"{family}-g2p", directory)]
    assert outputs[0][0].outputs[0].token_ids == outputs[1][0].outputs[0].token_ids


def test_a_whisper_in_a_wrapper_has_the_weights_of_the_one_without(tmp_path: Path) -> None:
    directory = save_random_whisper(tmp_path / "model")
    expected = dict(open_checkpoint(directory).tensors())
    expected = {name: tensor.clone() for name, tensor in expected.items()}
    checkpoint = open_checkpoint(rename(directory, "bin", lambda name: f"module._orig_mod.{name}"))
    found = dict(checkpoint.tensors())
    assert found.keys() == expected.keys() == {name for name, _ in checkpoint.shapes()}
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_part_of_a_model_may_be_called_as_a_wrapper_is() -> None:
    names = ["module.weight", "encoder.module.bias"]
    assert unwrapped(names) == names
    assert unwrapped([f"module.{name}" for name in names]) == names
    assert unwrapped(["x_orig_mod.weight", "_orig_mod.y"]) == ["x_orig_mod.weight", "y"]
    assert unwrapped([]) == []


@pytest.mark.parametrize("prefix", ["", "base_model.model."])
@pytest.mark.parametrize("alone", [False, True], ids=["beside what it adapts", "alone"])
def test_an_adapter_that_is_not_merged_is_refused_in_one_line(alone: bool, prefix: str, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(CMUDICT / "bart-g2p", tmp_path / "model"))
    state = load_file(directory / "model.safetensors")
    adapted = [name for name in state if name.endswith("q_proj.weight")]
    low_rank = {
        name.replace("q_proj.", f"q_proj.lora_{letter}.default."): torch.zeros(2, 128)
        for name in adapted
        for letter in "AB"
    }
    whole = {name.replace("q_proj.", "q_proj.base_layer."): tensor for name, tensor in state.items()}
    state = {prefix + name: tensor for name, tensor in ({} if alone else whole | low_rank).items()}
    state |= {prefix + name: tensor for name, tensor in low_rank.items()}
    save_file(state, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError) as raised:
        Engine(directory, **SMALL)
    message = str(raised.value)
    assert "\n" not in message
    assert re.search(r"of them are a PEFT adapter's, such as \S+\. Merge .* merge_and_unload\(\)", message)
