"""BART's bound on positions. What it computes is compared with transformers in tests/parity/test_text_models.py."""

from pathlib import Path

import pytest
from transformers import BartConfig, BartForConditionalGeneration

from transept import Engine, SamplingParams
from transept.errors import PromptError


def test_a_document_beyond_the_positions_is_refused_with_both_numbers(tmp_path: Path) -> None:
    config = BartConfig(
        vocab_size=320,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=200,
    )
    BartForConditionalGeneration(config).save_pretrained(tmp_path)
    engine = Engine(tmp_path)
    with pytest.raises(PromptError, match="201 tokens; this model reads 200"):
        engine.generate({"prompt_tokens": [5] * 201})
    (output,) = engine.generate({"prompt_tokens": [5] * 200}, SamplingParams(temperature=0.0, ignore_eos=True))
    assert len(output.prompt_token_ids + output.outputs[0].token_ids) == 200
