"""Config values of which no model, request or task can be made: BART's, T5's and Whisper's.

test_config_values.py goes through every size and every wrong type; here are the mistakes that people make.
"""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_whisper import save_random_whisper
from refusal import refused

from transept import Engine, SamplingParams, TextGenerator

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
SMALL = {"device": "cpu", "kv_cache_bytes": 1 << 22}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each family, which is not to be broken."""
    made = {family: CMUDICT / f"{family}-g2p" for family in ("bart", "t5")}
    made["whisper"] = save_random_whisper(tmp_path_factory.mktemp("whisper"))
    for path in made.values():
        Engine(path, **SMALL)
    return made


@pytest.fixture
def copy(sound: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda family: Path(shutil.copytree(sound[family], tmp_path / "model"))


def edit(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


CONFIGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "bart of another width": ("bart", {"d_model": 64}, "shared.weight"),
    "bart of a width that its heads do not share": (
        "bart",
        {"decoder_attention_heads": 7},
        "[126, 128] in the model",
    ),
    "bart of more heads than width": ("bart", {"encoder_attention_heads": 999}, "encoder_attention_heads=999"),
    "bart of a layer more": ("bart", {"decoder_layers": 3}, "missing"),
    "bart of a layer less": ("bart", {"encoder_layers": 1}, "unexpected"),
    "bart of a layer in words": ("bart", {"decoder_layers": "two"}, "decoder_layers"),
    "bart of a billion layers": ("bart", {"decoder_layers": 10**9}, "decoder_layers=1000000000"),
    "bart of a width below 0": ("bart", {"d_model": -64}, "d_model"),
    "bart of another vocabulary": ("bart", {"vocab_size": 64}, "shared.weight"),
    "bart of a vocabulary of a trillion": ("bart", {"vocab_size": 10**12}, "vocab_size=1000000000000"),
    "bart of a vocabulary in text": ("bart", {"vocab_size": "127"}, "vocab_size"),
    "bart of no positions": ("bart", {"max_position_embeddings": 0}, "max_position_embeddings"),
    "bart of other positions": ("bart", {"max_position_embeddings": 20}, "embed_positions"),
    "bart of an activation that is misspelt": ("bart", {"activation_function": "gelo"}, "gelo"),
    "bart of an activation in a list": ("bart", {"activation_function": ["gelu"]}, "activation_function"),
    "bart that starts with text": ("bart", {"decoder_start_token_id": "</s>"}, "decoder_start_token_id"),
    "bart that starts beyond its vocabulary": ("bart", {"decoder_start_token_id": 50_000}, "50000"),
    "bart that ends with a dict": ("bart", {"eos_token_id": {"id": 2}}, "eos_token_id"),
    "bart that scales by text": ("bart", {"scale_embedding": "true"}, "scale_embedding"),
    "bart of a dtype that nobody has": ("bart", {"dtype": "float7"}, "float7"),
    "t5 of another width": ("t5", {"d_model": 64}, "shared.weight"),
    "t5 of heads in text": ("t5", {"num_heads": "8"}, "num_heads"),
    "t5 of no heads": ("t5", {"num_heads": 0}, "num_heads"),
    "t5 of half a head": ("t5", {"num_heads": 2.5}, "num_heads"),
    "t5 of heads of no width": ("t5", {"d_kv": 0}, "d_kv"),
    "t5 of a layer more": ("t5", {"num_layers": 9}, "missing"),
    "t5 of a billion layers": ("t5", {"num_layers": 10**9}, "num_layers=1000000000"),
    "t5 of a gated layer that it lacks": ("t5", {"is_gated_act": True}, "ffn.gate.weight"),
    "t5 of an activation that is misspelt": ("t5", {"dense_act_fn": "gelo"}, "gelo"),
    "t5 of buckets below 0": ("t5", {"relative_attention_num_buckets": -32}, "relative_attention_num_buckets"),
    "t5 of other buckets": ("t5", {"relative_attention_num_buckets": 64}, "relative"),
    "t5 of a distance of 0": ("t5", {"relative_attention_max_distance": 0}, "relative_attention_max_distance"),
    "t5 of an epsilon of NaN": ("t5", {"layer_norm_epsilon": math.nan}, "layer_norm_epsilon"),
    "t5 that starts nowhere": ("t5", {"decoder_start_token_id": -5}, "-5"),
    "whisper of another number of mels": ("whisper", {"num_mel_bins": 128}, "conv1"),
    "whisper of mels in text": ("whisper", {"num_mel_bins": "80"}, "num_mel_bins"),
    "whisper of no window": ("whisper", {"max_source_positions": 0}, "max_source_positions"),
    "whisper of another window": ("whisper", {"max_source_positions": 1500}, "embed_positions"),
    "whisper of other positions": ("whisper", {"max_target_positions": 100}, "embed_positions"),
    "whisper of positions of null": ("whisper", {"max_target_positions": None}, "max_target_positions"),
    "whisper of too few tokens for its control tokens": ("whisper", {"vocab_size": 100}, "vocab_size"),
    "whisper of tokens below 0": ("whisper", {"vocab_size": -1}, "vocab_size"),
    "whisper of heads that do not share its width": (
        "whisper",
        {"decoder_attention_heads": 3},
        "[63, 64] in the model",
    ),
    "whisper of layers in a list": ("whisper", {"decoder_layers": [2]}, "decoder_layers"),
    "whisper that starts with text": ("whisper", {"decoder_start_token_id": "<|sot|>"}, "decoder_start_token_id"),
}


@pytest.mark.parametrize(("family", "values", "names"), CONFIGS.values(), ids=list(CONFIGS))
def test_config(family, values, names, copy):
    path = copy(family)
    edit(path / "config.json", values)
    settings = path / "generation_config.json"
    if settings.exists():  # what stands there comes before the config
        kept = {name: value for name, value in json.loads(settings.read_text()).items() if name not in values}
        settings.write_text(json.dumps(kept))
    refused(lambda: Engine(path, **SMALL), names)


SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "beams in text": ({"num_beams": "5"}, "num_beams"),
    "lengths in text": ({"max_length": "long"}, "max_length"),
    "a penalty below 0": ({"repetition_penalty": -1.0}, "repetition_penalty"),
    "sampling in text": ({"do_sample": "true"}, "do_sample"),
    "a temperature of heat": ({"do_sample": True, "temperature": "hot"}, "temperature"),
    "forced tokens by name": ({"forced_bos_token_id": "<s>"}, "forced_bos_token_id"),
    "bad words as words": ({"bad_words_ids": ["damn"]}, "bad_words_ids"),
}


@pytest.mark.parametrize(("values", "names"), SETTINGS.values(), ids=list(SETTINGS))
def test_generation_settings(values, names, copy):
    path = copy("bart")
    edit(path / "generation_config.json", values)
    refused(lambda: Engine(path, **SMALL), names)


TASKS: dict[str, tuple[Any, str]] = {
    "a list of tasks": (["summarization"], "task_specific_params"),
    "tasks in text": ("summarization", "task_specific_params"),
    "a task of text": ({"summarization": "fast"}, "task_specific_params"),
    "a prefix that is a number": ({"summarization": {"prefix": 5}}, "prefix"),
    "beams of a task in text": ({"summarization": {"num_beams": "4"}}, "num_beams"),
    "a length of a task below 0": ({"summarization": {"max_length": -4}}, "max_length"),
    "a length of a task in a list": ({"summarization": {"min_length": [4]}}, "min_length"),
}


@pytest.mark.parametrize(("tasks", "names"), TASKS.values(), ids=list(TASKS))
def test_tasks_of_a_config(tasks, names, copy):
    path = copy("t5")
    edit(path / "config.json", {"task_specific_params": tasks})
    refused(lambda: TextGenerator(path, **SMALL).summarize("ox", max_tokens=2), names)


GIVEN: dict[str, tuple[dict[str, Any], str]] = {
    "a length in text": ({"max_length": "20"}, "max_length"),
    "beams that are no number": ({"num_beams": np.nan}, "num_beams"),
    "ends in text": ({"eos_token_id": ["</s>"]}, "eos_token_id"),
}


@pytest.mark.parametrize(("values", "names"), GIVEN.values(), ids=list(GIVEN))
def test_generation_config_of_a_request(values, names, sound):
    engine = Engine(sound["bart"], **SMALL)
    config = type(engine.generation_config)()
    for name, value in values.items():
        setattr(config, name, value)
    refused(lambda: engine.generate("ox", SamplingParams(), generation_config=config), names)
