"""Small SeamlessM4T checkpoints with seeded random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import SeamlessM4TFeatureExtractor, SeamlessM4TProcessor, SeamlessM4TTokenizer

LANGUAGES = ("eng", "fra", "deu", "cmn_Hant")
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
SMALL = {
    "hidden_size": 48,
    "speech_encoder_layers": 2,
    "speech_encoder_attention_heads": 4,
    "speech_encoder_intermediate_size": 64,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 60,
    "initializer_range": 0.3,
}
# Of what reads text, writes units and speaks, which is in a checkpoint of the whole model.
UNHEARD = {
    "encoder_layers": 1,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "t2u_vocab_size": 40,
    "t2u_encoder_layers": 1,
    "t2u_decoder_layers": 1,
    "t2u_encoder_attention_heads": 4,
    "t2u_decoder_attention_heads": 4,
    "t2u_encoder_ffn_dim": 32,
    "t2u_decoder_ffn_dim": 32,
    "char_vocab_size": 40,
    "t2u_variance_predictor_embed_dim": 48,
    "t2u_variance_predictor_hidden_dim": 16,
    "unit_hifi_gan_vocab_size": 40,
    "unit_embed_dim": 16,
    "lang_embed_dim": 8,
    "spkr_embed_dim": 8,
    "upsample_initial_channel": 32,
    "vocoder_num_langs": 4,
    "vocoder_num_spkrs": 4,
}


def save_seamless(directory: Path, config_class: Any, model_class: Any, **sizes: Any) -> Path:
    """A small random model with its tokenizer, of made-up words, and its settings."""
    words = [f"▁{a}{b}" for a in "bdfgklmnprst" for b in ("a", "ei", "i", "o", "ou", "u", "an", "er")]
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *words])}
    named = [f"__{language}__" for language in LANGUAGES]
    tokenizer = SeamlessM4TTokenizer(vocabulary, [], additional_special_tokens=named)
    SeamlessM4TProcessor(SeamlessM4TFeatureExtractor(), tokenizer).save_pretrained(directory)
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=len(tokenizer), **SMALL, **sizes))
    codes = tokenizer.convert_tokens_to_ids(named)
    model.generation_config._from_model_config = False  # else transformers leaves out what is added
    model.generation_config.text_decoder_lang_to_code_id = dict(zip(LANGUAGES, codes, strict=True))
    model.save_pretrained(directory)
    return directory
