"""Configs and tokenizers beside the weights, as save_pretrained and the tokenizers library write them."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BartConfig, GenerationConfig, PreTrainedTokenizerFast, WhisperConfig

from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config, load_generation_config, load_tokenizer
from transept.core.checkpoints.weight_map import WeightMap
from transept.errors import CheckpointError, PluginError

PLAIN = WeightMap(rules=())


def checkpoint_with(path, config):
    save_file({"weight": torch.zeros(1)}, path / "model.safetensors")
    if isinstance(config, dict):
        (path / "config.json").write_text(json.dumps(config))
    else:
        config.save_pretrained(path)
    return open_checkpoint(path)


def test_config_of_a_known_model_type(tmp_path):
    checkpoint = checkpoint_with(tmp_path, BartConfig(d_model=24, encoder_layers=5))
    config = load_config(checkpoint, PLAIN)
    assert isinstance(config, BartConfig)
    assert (config.d_model, config.encoder_layers, config.hidden_size) == (24, 5, 24)


def test_config_of_an_unknown_model_type(tmp_path):
    hostile = {"AutoConfig": "configuration_code.Config"}  # code beside the weights is never run
    (tmp_path / "configuration_code.py").write_text("raise SystemExit('ran')")
    checkpoint = checkpoint_with(
        tmp_path,
        {"model_type": "two-towers", "architectures": ["Towers"], "height": 3, "eos_token_id": 2, "auto_map": hostile},
    )
    config = load_config(checkpoint, PLAIN)
    assert (config.height, config.architectures, config.eos_token_id) == (3, ["Towers"], 2)
    assert load_generation_config(checkpoint, PLAIN, config).eos_token_id == 2


def test_config_without_a_model_type(tmp_path):
    config = load_config(checkpoint_with(tmp_path, {"architectures": ["Towers"], "height": 3}), PLAIN)
    assert config.height == 3


def test_config_that_its_class_refuses(tmp_path):
    checkpoint = checkpoint_with(tmp_path, {"model_type": "bart", "d_model": "wide"})
    with pytest.raises(CheckpointError, match=r"cannot make a config of .*config\.json"):
        load_config(checkpoint, PLAIN)


def test_config_from_the_weight_map(tiny_en_dir):
    checkpoint = open_checkpoint(tiny_en_dir)
    weight_map = WeightMap(
        rules=(),
        config=lambda checkpoint: WhisperConfig(d_model=checkpoint.shape_of("encoder/conv1/weight")[0]),
        generation_config=lambda checkpoint, config: GenerationConfig(max_length=config.d_model),
    )
    config = load_config(checkpoint, weight_map)
    assert config.d_model == 384
    assert load_generation_config(checkpoint, weight_map, config).max_length == 384
    with pytest.raises(PluginError, match="ctranslate2 checkpoint has no config; its weight map must derive one"):
        load_config(checkpoint, PLAIN)


def test_generation_config_of_its_own_file(tmp_path):
    checkpoint = checkpoint_with(tmp_path, BartConfig())
    GenerationConfig(num_beams=4, forced_bos_token_id=0, lang_to_id={"<|en|>": 7}).save_pretrained(tmp_path)
    generation = load_generation_config(checkpoint, PLAIN, load_config(checkpoint, PLAIN))
    assert (generation.num_beams, generation.forced_bos_token_id, generation.lang_to_id) == (4, 0, {"<|en|>": 7})
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"cannot read .*generation_config\.json"):
        load_generation_config(checkpoint, PLAIN, BartConfig())


@pytest.mark.parametrize("model_type", ["bart", "two-towers"])
def test_generation_keys_of_an_old_config(model_type, tmp_path):
    old = {"model_type": model_type, "num_beams": 4, "max_length": 142, "no_repeat_ngram_size": 3, "eos_token_id": 2}
    checkpoint = checkpoint_with(tmp_path, old)
    generation = load_generation_config(checkpoint, PLAIN, load_config(checkpoint, PLAIN))
    assert (generation.num_beams, generation.max_length, generation.no_repeat_ngram_size) == (4, 142, 3)
    assert generation.eos_token_id == 2


TEXT = "The rain in Spain , falls mainly."


@pytest.fixture(scope="module")
def bpe():
    """A byte-level BPE tokenizer with two special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [TEXT] * 3, trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    )
    return tokenizer


def test_lone_tokenizer_json(bpe, tmp_path):
    bpe.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(TEXT) == bpe.encode(TEXT).ids
    assert tokenizer.decode(bpe.encode(TEXT).ids) == TEXT
    assert tokenizer.encode("<s>rain</s>") == bpe.encode("<s>rain</s>").ids
    assert tokenizer.decode(tokenizer.encode("<s>rain</s>"), skip_special_tokens=True) == "rain"


@pytest.mark.parametrize("model_type", ["bart", "two-towers"])
def test_tokenizer_config(model_type, bpe, tmp_path):
    checkpoint_with(tmp_path, {"model_type": model_type})
    PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>").save_pretrained(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1)
    assert tokenizer.encode(TEXT) == bpe.encode(TEXT).ids
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT


def test_tokenizer_of_a_real_checkpoint(tiny_en_dir):
    tokenizer = load_tokenizer(tiny_en_dir)
    control = "<|startoftranscript|><|notimestamps|>"
    assert tokenizer.encode(control, add_special_tokens=False) == [50257, 50362]
    assert tokenizer.decode([50257, 50362, 383, 6290], skip_special_tokens=True) == " The rain"


def test_no_tokenizer(tmp_path):
    assert load_tokenizer(tmp_path) is None


def test_corrupt_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match="cannot read the tokenizer in"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot read the tokenizer in"):
        load_tokenizer(tmp_path)


def test_readers_do_not_import_transformers():
    script = (
        "import sys, transept.core.checkpoints.load_weights, transept.core.checkpoints.source, "
        "transept.core.checkpoints.ctranslate2, transept.core.checkpoints.hf_configs\n"
        "assert not {'transformers', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
