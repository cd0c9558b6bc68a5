"""Whisper's configs read without transformers, beside those that transformers makes of the same files."""

import json
from pathlib import Path

import pytest
from huggingface_whisper import AS_OPENAI_SAVES, edit, write
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import ODD
from plain_configs import ITS_OWN, NOT_READ, both, same
from random_whisper import save_random_whisper
from transformers import GenerationConfig, WhisperConfig

from transept import Engine, SamplingParams
from transept.authoring import PlainConfig, WeightMap
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config, load_generation_config
from transept.core.request.generation_defaults import complete
from transept.plugins.whisper.plain import PLAIN
from transept.plugins.whisper.weights import HUGGINGFACE

TRANSFORMERS = WeightMap(rules=())  # declares nothing
AS_IN_A_MODEL = {"model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"]}
GENERATION = {  # of a multilingual checkpoint
    "alignment_heads": [[3, 1], [4, 2]],
    "begin_suppress_tokens": [220, 50257],
    "bos_token_id": 50257,
    "decoder_start_token_id": 50258,
    "eos_token_id": 50257,
    "forced_decoder_ids": [[1, None], [2, 50359]],
    "is_multilingual": True,
    "lang_to_id": {"<|en|>": 50259},
    "max_initial_timestamp_index": 50,
    "max_length": 448,
    "no_timestamps_token_id": 50363,
    "pad_token_id": 50257,
    "prev_sot_token_id": 50361,
    "return_timestamps": False,
    "suppress_tokens": [1, 2, 50358],
    "task_to_id": {"transcribe": 50359},
    "transformers_version": "4.31.0.dev0",
}
OTHER_KEYS = ["id2label", "layer_types", "name_or_path", "num_beams", "output_attentions", "to_dict", "zzz"]
VALUES = st.sampled_from([*ODD, 7, 400, [220], "relu", "float16", {"1": "a"}, [[1, 2]]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_random_whisper(tmp_path_factory.mktemp("whisper") / "model")


def configs(folder, **values):
    write(folder / "config.json", values)
    checkpoint = open_checkpoint(folder)
    return both(lambda weight_map: load_config(checkpoint, weight_map), HUGGINGFACE, TRANSFORMERS)


def generation_configs(folder, values):
    write(folder / "config.json", AS_IN_A_MODEL)
    write(folder / "generation_config.json", values)
    checkpoint = open_checkpoint(folder)
    return both(
        lambda weight_map: load_generation_config(checkpoint, weight_map, load_config(checkpoint, weight_map)),
        HUGGINGFACE,
        TRANSFORMERS,
    )


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"d_model": 64, "eos_token_id": [3, 4], "dropout": 0, "bos_token_id": None},
        AS_OPENAI_SAVES,
        {"dtype": "bfloat16", "torch_dtype": "float32"},
        {"num_hidden_layers": 7, "encoder_layers": 5},
        {"num_key_value_heads": 3, "num_attention_heads": 2},
    ],
)
def test_a_config_is_a_whisper_config(folder, values):
    ours, theirs = configs(folder, **AS_IN_A_MODEL, **values)
    assert (type(ours), type(theirs)) == (PlainConfig, WhisperConfig)
    assert same(ours, theirs, NOT_READ)
    assert all(getattr(ours, name) == getattr(theirs, name) for name in WhisperConfig.attribute_map)


def test_a_config_as_transformers_saves_it(folder):
    WhisperConfig(vocab_size=99, max_target_positions=20, decoder_layers=3).save_pretrained(folder)
    ours, theirs = configs(folder, **json.loads((folder / "config.json").read_text()))
    assert isinstance(ours, PlainConfig)
    assert same(ours, theirs, NOT_READ)


FIELDS = {*WhisperConfig().to_dict(), *dict(PLAIN.aliases), *PLAIN.extras, "max_length", "torch_dtype", *OTHER_KEYS}
FIELDS -= {"architectures"}  # which is looked at before


@settings(max_examples=200)
@given(values=st.dictionaries(st.sampled_from(sorted(FIELDS)), VALUES, max_size=3))
def test_any_value_of_a_config_is_taken_or_refused_as_by_transformers(folder, values):
    ours, theirs = configs(folder, **{**AS_IN_A_MODEL, **values})
    assert same(ours, theirs, NOT_READ)


@pytest.mark.parametrize(
    "values", [GENERATION, {}, {"_from_model_config": True, "max_length": 20}, {"do_sample": True, "num_beams": 1}]
)
def test_a_generation_config_is_one_of_transformers(folder, values):
    ours, theirs = generation_configs(folder, values)
    assert (type(ours), type(theirs)) == (PlainConfig, GenerationConfig)
    assert same(ours, theirs, ITS_OWN)
    shape = {"prompt_token_ids": [5, 6], "max_positions": 448, "vocab_size": 51865, "eos_token_ids": (50257,)}
    params = SamplingParams(seed=1)
    assert complete(params, ours, **shape) == complete(params, theirs, **shape)


SETTINGS = sorted({*GenerationConfig().to_dict(), *PLAIN.generation_extras, "_from_model_config", "streamer", "update"})


@pytest.mark.filterwarnings("ignore:Passing ContinuousBatchingConfig")
@settings(max_examples=200)
@given(values=st.dictionaries(st.sampled_from(SETTINGS), VALUES, max_size=3))
def test_any_setting_is_taken_or_refused_as_by_transformers(folder, values):
    ours, theirs = generation_configs(folder, {**GENERATION, **values})
    assert same(ours, theirs, ITS_OWN)


def test_generation_keys_of_an_old_config(folder):
    (folder / "generation_config.json").unlink(missing_ok=True)
    of_generation = {"suppress_tokens": [5, 6], "begin_suppress_tokens": [7], "eos_token_id": 9, "num_beams": 3}
    old = {**AS_IN_A_MODEL, **AS_OPENAI_SAVES, **of_generation}
    write(folder / "config.json", old)
    checkpoint = open_checkpoint(folder)
    ours, theirs = both(
        lambda weight_map: load_generation_config(checkpoint, weight_map, load_config(checkpoint, weight_map)),
        HUGGINGFACE,
        TRANSFORMERS,
    )
    assert ours == theirs
    assert (ours.max_length, ours.num_beams, ours.suppress_tokens) == (448, 3, [5, 6])


def test_an_engine_by_plain_configs_generates_what_one_by_transformers_does(folder, tmp_path):
    plain, read = (save_random_whisper(tmp_path / name) for name in ("plain", "read by transformers"))
    edit(read / "config.json", unknown=1)
    edit(read / "generation_config.json", unknown=1)
    prompt = {
        "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": ([0.0, 0.1] * 8000, 16_000)}},
        "decoder_prompt": {"prompt_tokens": [401, 506]},
    }
    tokens = []
    for path, kinds in ((plain, (PlainConfig, PlainConfig)), (read, (WhisperConfig, GenerationConfig))):
        engine = Engine(path, kv_cache_bytes=1 << 22)
        assert (type(engine.model_config), type(engine.generation_config)) == kinds
        tokens.append(engine.generate(prompt, SamplingParams(max_tokens=20))[0].outputs[0].token_ids)
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == 20
