"""Configs within configs, as transformers makes them: tokens and vocabularies are found where they are."""

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    BartConfig,
    BertConfig,
    EncoderDecoderConfig,
    Florence2Config,
    GenerationConfig,
    VisionEncoderDecoderConfig,
    ViTConfig,
)
from views import preprocessor_of

from transept.authoring import CheckpointView, ModelSpec, dec_bos_prompt, dec_prompt, prepend_dec
from transept.errors import PromptError

DECODER = {"decoder_start_token_id": 7, "bos_token_id": 8, "eos_token_id": 9}
NESTED = {
    "decoder": VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(), BartConfig(**DECODER)),
    "text_config": Florence2Config(text_config={"model_type": "bart", **DECODER}),
    "flat": BartConfig(**DECODER),
}


def view(config: Any, **settings: Any) -> CheckpointView:
    return CheckpointView(Path(), config, load_generation_config=lambda: GenerationConfig(**settings))


@pytest.mark.parametrize("config", NESTED.values(), ids=NESTED)
def test_tokens_of_a_nested_config_are_found(config: Any) -> None:
    assert dec_prompt(view(config)) == [7]
    assert dec_bos_prompt(view(config)) == [7, 8]
    assert prepend_dec([30], view(config)) == [7, 30]
    assert prepend_dec([7, 30], view(config)) == [7, 30]


@pytest.mark.parametrize("config", NESTED.values(), ids=NESTED)
def test_the_generation_config_comes_first(config: Any) -> None:
    settings = view(config, decoder_start_token_id=3)
    assert dec_bos_prompt(settings) == [3, 8]
    assert prepend_dec([7], settings) == [3, 7]


def test_a_token_that_is_nowhere_is_none() -> None:
    config = EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(), BertConfig())
    assert dec_prompt(view(config)) == [None]


def test_each_side_of_a_nested_config_has_its_own_vocabulary() -> None:
    sides = BertConfig(vocab_size=50), BertConfig(vocab_size=20)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(*sides)
    spec = ModelSpec("nested", ("Nested",), "nested:Nested")
    preprocess = preprocessor_of(spec, view(config, decoder_start_token_id=1), vocab_size=20)
    prompt = {"encoder_prompt": {"prompt_tokens": [49]}, "decoder_prompt": {"prompt_tokens": [19]}}
    assert preprocess(prompt).encoder.token_ids == [49]
    for side, token in (("encoder_prompt", 50), ("decoder_prompt", 20)):
        with pytest.raises(PromptError, match=f"token id {token} is outside of the vocabulary, 0 to {token - 1}"):
            preprocess({**prompt, side: {"prompt_tokens": [token]}})
