"""MarianMTModel beside transformers on small random weights: one vocabulary, and one for each side."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from transept.testing import CHECKS, Parity

VOCABULARY = 320
SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 150,
    "activation_function": "swish",
    "scale_embedding": True,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
    "init_std": 0.15,  # wide, since embeddings are scaled
}
LAST = VOCABULARY - 1  # Marian's padding token, which starts the decoder
CONFIGURATIONS = {
    "one vocabulary": MarianConfig(**SIZES, pad_token_id=LAST, decoder_start_token_id=LAST),
    "two vocabularies": MarianConfig(
        **SIZES,
        decoder_vocab_size=250,
        share_encoder_decoder_embeddings=False,
        pad_token_id=249,
        decoder_start_token_id=249,
    ),
}


@pytest.fixture(scope="module", params=CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """A random model, under the settings of Helsinki-NLP/opus-mt-*: the padding token is never written."""
    torch.manual_seed(0)
    reference = MarianMTModel(request.param)
    reference.final_logits_bias.normal_()
    reference.generation_config.bad_words_ids = [[request.param.pad_token_id]]
    return Parity(reference, tmp_path_factory.mktemp("marian"))


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)
