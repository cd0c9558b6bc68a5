"""The tokens with which an output begins are those of transformers' generate, whatever a checkpoint's settings say.

One row a family and one column a kind of settings: a forced first token that is there, is not, or is an odd one; a
decoder start token that is BOS; a checkpoint without BOS; settings in config.json alone, as older checkpoints have.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from transept import Engine, SamplingParams

NUM_TOKENS = 5  # new ones, with the forced one; the last may be another, forced at the end
PROMPT = [7, 9, 11, 13, 2]
BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "init_std": 0.5,
}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 16, "d_ff": 48, "num_layers": 1, "num_heads": 2}
FAMILIES = {
    "Bart": BART,
    "MBart": BART,
    "Pegasus": BART,
    "BlenderbotSmall": BART,
    "M2M100": BART,
    "T5": T5,
    "MT5": T5,
    "UMT5": T5,
    "LongT5": {**T5, "encoder_attention_type": "local", "local_radius": 8},
}
TOKENS = {"decoder_start_token_id": 2, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
SETTINGS: dict[str, dict[str, Any]] = {
    "unset": {},
    "BOS": {"forced_bos_token_id": 0},
    "another token": {"forced_bos_token_id": 5},
    "DEC": {"forced_bos_token_id": 2},
    "unset, DEC is BOS": {"decoder_start_token_id": 0},
    "BOS, DEC is BOS": {"decoder_start_token_id": 0, "forced_bos_token_id": 0},
    "unset, without BOS": {"bos_token_id": None},
    "another token, without BOS": {"bos_token_id": None, "forced_bos_token_id": 5},
    "a beam search": {"num_beams": 2, "forced_bos_token_id": 0},
}


def save(directory: Path, family: str, settings: dict[str, Any], *, in_config: bool) -> Any:
    """A random checkpoint, and its model. in_config: the settings stand in config.json, and there is no other file."""
    torch.manual_seed(len(family))
    config = getattr(transformers, f"{family}Config")(**FAMILIES[family], **TOKENS)
    model = getattr(transformers, f"{family}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "embed_positions" not in parameter_name:  # Pegasus' are computed
                parameter.normal_(0.0, 0.4)
    model.generation_config = transformers.GenerationConfig(**{**TOKENS, **settings})
    model.save_pretrained(directory)
    file = directory / "config.json"
    as_saved = {"early_stopping": False, "num_beams": 1} if in_config else {}
    tokens = settings if in_config else {name: settings[name] for name in TOKENS if name in settings}
    file.write_text(json.dumps({**json.loads(file.read_text()), **TOKENS, **as_saved, **tokens}))
    if in_config:
        (directory / "generation_config.json").unlink()
    return type(model).from_pretrained(directory).eval()


ROWS = [
    pytest.param(family, name, in_config, id=f"{family}, {name}{', in config.json' * in_config}")
    for family in FAMILIES
    for name in SETTINGS
    for in_config in (False, True)
    if family in ("Bart", "MBart") or (name in ("unset", "BOS", "BOS, DEC is BOS") and not in_config)  # a rule each
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("family", "name", "in_config"), ROWS)
def test_outputs_begin_as_in_transformers(family: str, name: str, in_config: bool, tmp_path: Path) -> None:
    reference = save(tmp_path / "model", family, SETTINGS[name], in_config=in_config)
    with torch.inference_mode():
        expected = reference.generate(torch.tensor([PROMPT]), max_new_tokens=NUM_TOKENS)[0].tolist()
    engine = Engine(tmp_path / "model", kv_cache_bytes=1 << 20)
    prompt = {"encoder_prompt": {"prompt_tokens": PROMPT}, "decoder_prompt": None}
    (output,) = engine.generate([prompt], SamplingParams(max_tokens=NUM_TOKENS))
    found = [*output.prompt_token_ids, *output.outputs[0].token_ids]
    assert found[:NUM_TOKENS] == expected[:NUM_TOKENS]


def test_a_bart_without_any_settings_begins_with_dec_and_bos(tmp_path: Path) -> None:
    save(tmp_path / "model", "Bart", {}, in_config=True)
    file = tmp_path / "model" / "config.json"
    unset = ("early_stopping", "num_beams", "forced_eos_token_id")
    file.write_text(
        json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name not in unset})
    )
    prompt = {"encoder_prompt": {"prompt_tokens": PROMPT}, "decoder_prompt": None}
    (output,) = Engine(tmp_path / "model", kv_cache_bytes=1 << 20).generate([prompt], SamplingParams(max_tokens=1))
    assert output.prompt_token_ids == [2, 0]
