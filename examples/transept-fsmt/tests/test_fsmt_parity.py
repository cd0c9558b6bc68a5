"""FSMTForConditionalGeneration beside transformers on small random weights: a vocabulary for each side, and one."""

from typing import Any

import pytest
import torch
import transformers
from transformers import FSMTConfig

from transept.testing import CHECKS, Parity

SOURCE, TARGET = 320, 250  # tokens of the vocabularies
SIZES = {
    "langs": ["en", "de"],
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 150,
    "init_std": 0.15,  # wide, since embeddings are scaled
}
CONFIGURATIONS = {
    "two vocabularies": FSMTConfig(**SIZES, src_vocab_size=SOURCE, tgt_vocab_size=TARGET),
    "fewer source tokens": FSMTConfig(**SIZES, src_vocab_size=TARGET, tgt_vocab_size=SOURCE),
    "one vocabulary": FSMTConfig(**SIZES, src_vocab_size=SOURCE, tgt_vocab_size=SOURCE, tie_word_embeddings=True),
}
SETTINGS = {"num_beams": 5, "max_length": 60, "forced_eos_token_id": 2, "length_penalty": 1.1}


class FSMTForConditionalGeneration(transformers.FSMTForConditionalGeneration):
    """The reference. Without a cache, it masks later tokens only if it also gets encoder ids."""

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        """Call transformers' forward, with placeholder ids for an encoder that has run."""
        if not keywords.get("use_cache") and keywords.get("input_ids") is None:
            keywords["input_ids"] = keywords["decoder_input_ids"]
        return super().forward(*arguments, **keywords)


@pytest.fixture(scope="module", params=CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """A random model, under the settings of facebook/wmt19-*, that never writes padding: transformers skips that."""
    torch.manual_seed(0)
    reference = FSMTForConditionalGeneration(request.param)
    with torch.no_grad():
        reference.model.decoder.output_projection.weight[request.param.pad_token_id] = 0.0
    reference.generation_config.update(**SETTINGS)
    return Parity(reference, tmp_path_factory.mktemp("fsmt"))


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)
