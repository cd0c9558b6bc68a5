"""The Hugging Face reader on directories that transformers' save_pretrained wrote, and on broken and hostile ones."""

import json
import os
import pickle
import shutil

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from transept.core.checkpoints.formats import open_checkpoint
from transept.errors import CheckpointError

SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "vocab_size": 99,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}


@pytest.fixture(scope="module")
def bart():
    torch.manual_seed(0)
    return BartForConditionalGeneration(BartConfig(**SIZES, **SPECIAL, max_position_embeddings=20))


@pytest.fixture(scope="module")
def whisper():
    torch.manual_seed(0)
    config = WhisperConfig(**SIZES, **SPECIAL, suppress_tokens=None, begin_suppress_tokens=None)
    return WhisperForConditionalGeneration(config).half()


def save_bin(model, path, shards=1):
    """pytorch_model.bin as transformers wrote it before safetensors: tied weights under every name."""
    model.config.architectures = [type(model).__name__]  # as `save_pretrained` of a model writes it
    model.config.save_pretrained(path)
    state = model.state_dict()
    if shards == 1:
        torch.save(state, path / "pytorch_model.bin")
        return
    files = [f"pytorch_model-{shard + 1:05d}-of-{shards:05d}.bin" for shard in range(shards)]
    weight_map = {name: files[number % shards] for number, name in enumerate(state)}
    for file in files:
        torch.save({name: state[name] for name in state if weight_map[name] == file}, path / file)
    (path / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


WRITERS = {
    "safetensors": lambda model, path: model.save_pretrained(path),
    "sharded safetensors": lambda model, path: model.save_pretrained(path, max_shard_size="10KB"),
    "bin": save_bin,
    "sharded bin": lambda model, path: save_bin(model, path, shards=3),
}


@pytest.mark.parametrize("family", ["bart", "whisper"])
@pytest.mark.parametrize("writer", WRITERS)
def test_every_weight(family, writer, request, tmp_path):
    model = request.getfixturevalue(family)
    WRITERS[writer](model, tmp_path)
    assert len(list(tmp_path.glob("*model-0*"))) > 1 or "sharded" not in writer
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == "huggingface"
    assert checkpoint.architectures == (type(model).__name__,)
    assert checkpoint.config_dict["model_type"] == family
    tensors = list(checkpoint.tensors())
    read, expected = dict(tensors), model.state_dict()
    assert len(read) == len(tensors)
    assert {expected[name].data_ptr() for name in read} == {tensor.data_ptr() for tensor in expected.values()}
    for name, tensor in read.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name])


def test_bin_of_before_zip_archives(bart, tmp_path):
    bart.config.save_pretrained(tmp_path)
    state = bart.state_dict()
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    read = dict(open_checkpoint(tmp_path).tensors())
    assert all(torch.equal(read[name], state[name]) for name in state)


def test_hugging_face_is_preferred_where_both_are(bart, tmp_path, tiny_en_dir):
    bart.save_pretrained(tmp_path)
    (tmp_path / "model.bin").symlink_to(tiny_en_dir / "model.bin")
    assert open_checkpoint(tmp_path).format == "huggingface"


def test_neither_format(tmp_path):
    (tmp_path / "tf_model.h5").touch()
    with pytest.raises(
        CheckpointError, match=r"has tf_model.h5\. It must have one of model.safetensors, .* \(CTranslate2\)"
    ):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="no such directory"):
        open_checkpoint(tmp_path / "nowhere")


def test_no_config(bart, tmp_path):
    bart.save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"has model\.safetensors but no config\.json"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe"])
def test_corrupt_config(content, bart, tmp_path):
    bart.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r'config\.json"'):
        open_checkpoint(tmp_path)


def test_missing_shards_are_listed_at_once(bart, tmp_path):
    bart.save_pretrained(tmp_path, max_shard_size="10KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    shards[0].unlink()
    shards[1].unlink()
    with pytest.raises(
        CheckpointError, match=f"lacks 2 of the {len(shards)} shards .*: {shards[0].name}, {shards[1].name}"
    ):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("shard", ["../elsewhere.safetensors", "/etc/passwd", "sub/x.safetensors", "code.bin", ".."])
def test_index_may_not_point_elsewhere(shard, bart, tmp_path):
    bart.save_pretrained(tmp_path / "model", max_shard_size="10KB")
    shutil.copy(next((tmp_path / "model").glob("*.safetensors")), tmp_path / "elsewhere.safetensors")
    index = tmp_path / "model" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(CheckpointError, match="cannot be its shards"):
        open_checkpoint(tmp_path / "model")


@pytest.mark.parametrize("index", [{}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_corrupt_index(index, bart, tmp_path):
    bart.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match='has no "weight_map"'):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("writer", ["safetensors", "bin"])
@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.99])
def test_truncated_weights(writer, keep, bart, tmp_path):
    WRITERS[writer](bart, tmp_path)
    file = next(file for file in tmp_path.iterdir() if file.suffix in (".safetensors", ".bin"))
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(CheckpointError, match=f'{file.name}" is (truncated or )?corrupt'):
        list(open_checkpoint(tmp_path).tensors())


class Malice:
    def __init__(self, witness):
        self.witness = witness

    def __reduce__(self):
        return os.system, (f"touch {self.witness}",)


@pytest.mark.parametrize("zip_archive", [True, False])
def test_code_in_a_pickle_is_not_run(zip_archive, bart, tmp_path):
    bart.config.save_pretrained(tmp_path)
    witness = tmp_path / "witness"
    content = {"weight": torch.zeros(2), "more": Malice(witness)}
    if zip_archive:
        torch.save(content, tmp_path / "pytorch_model.bin")
    else:
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"more": Malice(witness)}, protocol=2))
    with pytest.raises(CheckpointError, match="contains code to run besides weights"):
        list(open_checkpoint(tmp_path).tensors())
    assert not witness.exists()


@pytest.mark.parametrize("content", [torch.zeros(3), {"weight": torch.zeros(3), "step": 7}])
def test_bin_with_other_than_weights(content, bart, tmp_path):
    bart.config.save_pretrained(tmp_path)
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"holds a Tensor, not names|has entries that are not weights: step"):
        list(open_checkpoint(tmp_path).tensors())
