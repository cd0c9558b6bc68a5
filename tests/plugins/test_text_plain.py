"""Configs of BART and T5 read without transformers, beside those that transformers makes of the same files."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from huggingface_whisper import write
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import ODD
from plain_configs import ITS_OWN, NOT_READ, both, same
from transformers import BartConfig, GenerationConfig, PretrainedConfig, T5Config

from transept import SamplingParams
from transept.authoring import PlainConfig, WeightMap
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config, load_generation_config
from transept.core.checkpoints.plain_files import DROPPED
from transept.core.request.generation_defaults import complete
from transept.plugins.bart.weights import BART
from transept.plugins.t5.weights import HUGGINGFACE as T5

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
SUMMARIES = {"early_stopping": True, "length_penalty": 2.0, "max_length": 142, "min_length": 56, "num_beams": 4}
SUMMARIES |= {"no_repeat_ngram_size": 3}
LABELS = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
BART_LARGE_CNN = {  # as facebook publishes it
    "_num_labels": 3,
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_final_layer_norm": False,
    "architectures": ["BartForConditionalGeneration"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 12,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 12,
    "eos_token_id": 2,
    "force_bos_token_to_be_generated": True,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "gradient_checkpointing": False,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "max_position_embeddings": 1024,
    "model_type": "bart",
    "normalize_before": False,
    "num_hidden_layers": 12,
    "output_past": True,
    "pad_token_id": 1,
    "prefix": " ",
    "scale_embedding": False,
    "static_position_embeddings": False,
    "task_specific_params": {"summarization": SUMMARIES},
    "transformers_version": "4.7.0.dev0",
    "use_cache": True,
    "vocab_size": 50264,
    **SUMMARIES,
    **LABELS,
}
DISTILBART = {"extra_pos_embeddings": 2, "normalize_embedding": True, "add_bias_logits": False, "save_step": 68}
T5_BASE = {  # as google publishes it
    "architectures": ["T5ForConditionalGeneration"],
    "d_ff": 3072,
    "d_kv": 64,
    "d_model": 768,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "num_heads": 12,
    "num_layers": 12,
    "output_past": True,
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "task_specific_params": {
        "summarization": {**SUMMARIES, "max_length": 200, "prefix": "summarize: "},
        "translation_en_to_de": {"early_stopping": True, "num_beams": 4, "prefix": "translate English to German: "},
    },
    "vocab_size": 32128,
}
FLAN_T5 = {
    **{name: value for name, value in T5_BASE.items() if name != "task_specific_params"},
    "dense_act_fn": "gelu_new",
    "feed_forward_proj": "gated-gelu",
    "is_gated_act": True,
    "num_decoder_layers": 12,
    "relative_attention_max_distance": 128,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.23.1",
    "use_cache": True,
}
GENERATION = {  # of bart-large-cnn
    "_from_model_config": True,
    "bos_token_id": 0,
    "decoder_start_token_id": 2,
    "eos_token_id": 2,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "pad_token_id": 1,
    "transformers_version": "4.27.0.dev0",
    **SUMMARIES,
}
OTHER_KEYS = [
    "id2label",
    "label2id",
    "layer_types",
    "name_or_path",
    "output_attentions",
    "to_dict",
    "zzz",
    "max_length",
]
VALUES = st.sampled_from([*ODD, 7, 400, [220], "relu", "gated-gelu", "gated-silu", "float16", {"1": "a"}, {"a": 1}])


@dataclasses.dataclass(frozen=True)
class Family:
    """Ours; and transformers' config class, whose values a weight map completes that declares nothing."""

    name: str
    ours: WeightMap
    theirs: type[PretrainedConfig]
    architecture: str

    @property
    def reference(self):
        return dataclasses.replace(self.ours, plain=None, config=None)

    @property
    def declared(self):
        return dataclasses.replace(self.ours, config=None)

    @property
    def least(self):
        return {"model_type": self.name, "architectures": [self.architecture]}

    def fields(self):
        files = self.ours.plain
        names = {*self.theirs().to_dict(), *dict(files.aliases), *files.extras, *DROPPED, "torch_dtype", *OTHER_KEYS}
        return sorted(names - {"architectures"})  # which is looked at before


FAMILIES = [
    Family("bart", BART, BartConfig, "BartForConditionalGeneration"),
    Family("t5", T5, T5Config, "T5ForConditionalGeneration"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Small weights, beside which configs are written."""
    path = tmp_path_factory.mktemp("text")
    shutil.copy(CMUDICT / "t5-g2p" / "model.safetensors", path)
    return path


def configs(folder, family, **values):
    write(folder / "config.json", values)
    checkpoint = open_checkpoint(folder)
    return both(lambda weight_map: load_config(checkpoint, weight_map), family.declared, family.reference)


def generation_configs(folder, family, values):
    write(folder / "config.json", family.least)
    write(folder / "generation_config.json", values)
    checkpoint = open_checkpoint(folder)
    return both(
        lambda weight_map: load_generation_config(checkpoint, weight_map, load_config(checkpoint, weight_map)),
        family.declared,
        family.reference,
    )


@pytest.fixture(params=FAMILIES, ids=lambda family: family.name)
def family(request):
    return request.param


@pytest.mark.parametrize(
    "values",
    [
        {"model_type": "bart"},
        BART_LARGE_CNN,
        BART_LARGE_CNN | DISTILBART,
        {"model_type": "bart", "hidden_size": 64, "encoder_layers": 5, "num_hidden_layers": 7, "dtype": "bfloat16"},
        {"model_type": "t5"},
        T5_BASE,
        FLAN_T5,
        {"model_type": "t5", "feed_forward_proj": "gated-gelu", "num_layers": 3, "eos_token_id": [1, 2]},
        {"model_type": "t5", "dense_act_fn": "silu", "is_gated_act": True, "scale_decoder_outputs": False},
        {"model_type": "t5", "num_layers": 3, "num_hidden_layers": 4, "head_dim": 8},
    ],
    ids=lambda values: f"{values['model_type']}-{len(values)}",
)
def test_a_config_is_the_one_of_transformers(folder, values):
    family = next(each for each in FAMILIES if each.name == values["model_type"])
    ours, theirs = configs(folder, family, **family.least, **{k: v for k, v in values.items() if k not in family.least})
    assert (type(ours), type(theirs)) == (PlainConfig, family.theirs)
    assert same(ours, theirs, NOT_READ)
    assert all(getattr(ours, name) == getattr(theirs, name) for name in family.theirs.attribute_map)


def test_a_config_as_transformers_saves_it(folder, family):
    family.theirs(vocab_size=99, d_model=32, num_hidden_layers=3).save_pretrained(folder)
    ours, theirs = configs(folder, family, **json.loads((folder / "config.json").read_text()))
    assert isinstance(ours, PlainConfig)
    assert same(ours, theirs, NOT_READ)


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_a_checkpoint_has_the_config_that_its_weights_complete(name):
    family = next(each for each in FAMILIES if each.name == name)
    checkpoint = open_checkpoint(CMUDICT / f"{name}-g2p")
    completed = dataclasses.replace(family.ours, plain=None)
    ours, theirs = both(lambda weight_map: load_config(checkpoint, weight_map), family.ours, completed)
    assert isinstance(ours, PlainConfig)
    assert same(ours, theirs, NOT_READ)


@settings(max_examples=150)
@given(data=st.data())
def test_any_value_of_a_config_is_taken_or_refused_as_by_transformers(folder, data):
    family = data.draw(st.sampled_from(FAMILIES))
    values = data.draw(st.dictionaries(st.sampled_from(family.fields()), VALUES, max_size=3))
    ours, theirs = configs(folder, family, **{**family.least, **values})
    assert same(ours, theirs, NOT_READ)


@pytest.mark.parametrize(
    "values",
    [GENERATION, {}, {"_from_model_config": True, "decoder_start_token_id": 0}, {"num_beams": 1, "length_penalty": 2}],
)
def test_a_generation_config_is_one_of_transformers(folder, family, values):
    ours, theirs = generation_configs(folder, family, values)
    assert (type(ours), type(theirs)) == (PlainConfig, GenerationConfig)
    assert same(ours, theirs, ITS_OWN)
    shape = {"prompt_token_ids": [2, 0], "max_positions": 1024, "vocab_size": 50264, "eos_token_ids": (2,)}
    params = SamplingParams(seed=1)
    assert complete(params, ours, **shape) == complete(params, theirs, **shape)


SETTINGS = sorted({*GenerationConfig().to_dict(), "_from_model_config", "streamer", "update"})


@pytest.mark.filterwarnings("ignore:Passing ContinuousBatchingConfig")
@settings(max_examples=150)
@given(values=st.dictionaries(st.sampled_from(SETTINGS), VALUES | st.sampled_from([[0, 2], [2], 2]), max_size=3))
def test_any_setting_is_taken_or_refused_as_by_transformers(folder, values):
    ours, theirs = generation_configs(folder, FAMILIES[0], {**GENERATION, **values})
    assert same(ours, theirs, ITS_OWN)
