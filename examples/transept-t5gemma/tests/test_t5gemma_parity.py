"""T5GemmaForConditionalGeneration beside transformers on small random weights: sides of one width and of two."""

import pytest
import torch
from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration

from transept.testing import CHECKS, Parity

WINDOW = 20  # tokens; prompts have up to 150, outputs up to 140
SIDE = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,  # the first has a window, the second has none
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "query_pre_attn_scalar": 20,
    "max_position_embeddings": 160,
    "sliding_window": WINDOW,
    "attn_logit_softcapping": 3.0,  # in the midst of the scores, where 50 would hardly change them
    "final_logit_softcapping": 30.0,
    "initializer_range": 0.15,
}
CONFIGURATIONS = {
    "one width": {"encoder": SIDE, "decoder": SIDE},
    "a wider encoder, no tied head": {
        "encoder": {**SIDE, "hidden_size": 80, "num_attention_heads": 2, "num_hidden_layers": 3},
        "decoder": {**SIDE, "sliding_window": 9, "layer_types": ["full_attention", "sliding_attention"]},
        "tie_word_embeddings": False,
    },
    "a window everywhere": {  # so that blocks outside it are freed
        "encoder": {**SIDE, "layer_types": ["sliding_attention"] * 2},
        "decoder": {**SIDE, "sliding_window": 70, "layer_types": ["sliding_attention"] * 2},
    },
}


@pytest.fixture(scope="module", params=CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """A random model, of layers with a window and without.

    It never writes the padding token, which the decoder of transformers would hide where it runs without a cache.
    """
    torch.manual_seed(0)
    config = T5GemmaConfig(**request.param, vocab_size=SIDE["vocab_size"])
    reference = T5GemmaForConditionalGeneration(config)
    reference.lm_head.out_proj.weight.data[config.pad_token_id] = 0.0  # a logit far from the highest
    reference.generation_config.decoder_start_token_id = config.decoder.bos_token_id
    return Parity(reference, tmp_path_factory.mktemp("t5gemma"))


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)
