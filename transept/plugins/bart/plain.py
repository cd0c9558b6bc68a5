"""The contents of a BART checkpoint's config.json and tokenizer files, to read them without transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from transept.authoring import PlainFiles, PlainTokenizerFiles

_PLAIN_BPE = (
    "dropout",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "ignore_merges",
)  # settings that BART's tokenizer does not have


@dataclass(frozen=True)
class BartFields:
    """The fields of transformers' BartConfig with their types and defaults, which are bart-large's."""

    activation_dropout: float | int | None = 0.0
    activation_function: str | None = "gelu"
    attention_dropout: float | int | None = 0.0
    bos_token_id: int | None = 0
    classifier_dropout: float | int | None = 0.0
    d_model: int | None = 1024
    decoder_attention_heads: int | None = 16
    decoder_ffn_dim: int | None = 4096
    decoder_layerdrop: float | None = 0.0
    decoder_layers: int | None = 12
    decoder_start_token_id: int | None = 2
    dropout: float | int | None = 0.1
    encoder_attention_heads: int | None = 16
    encoder_ffn_dim: int | None = 4096
    encoder_layerdrop: float | None = 0.0
    encoder_layers: int | None = 12
    eos_token_id: int | list[int] | None = 2
    forced_eos_token_id: int | list[int] | None = 2
    init_std: float | None = 0.02
    is_decoder: bool | None = False
    is_encoder_decoder: bool | None = True
    max_position_embeddings: int = 1024
    pad_token_id: int | None = 1
    scale_embedding: bool | None = False
    tie_word_embeddings: bool = True
    use_cache: bool = True
    vocab_size: int = 50265


def build_tokenizer(
    tokenizer: Tokenizer, model: Mapping[str, Any], settings: Mapping[str, Any], named: Mapping[str, tuple[str, int]]
) -> list[str] | None:
    """Build the tokenizer like transformers' RobertaTokenizer: byte-level BPE, and ``<s>``, ``</s>`` around a text."""
    if not isinstance(tokenizer.model, models.BPE) or tokenizer.normalizer is not None:
        return None
    if any(model.get(name) for name in _PLAIN_BPE):
        return None
    tokenizer.model.unk_token, tokenizer.model.byte_fallback = None, False
    prefix_space = settings.get("add_prefix_space", False)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(
        named["sep_token"], named["cls_token"], add_prefix_space=prefix_space
    )
    return []


TOKENIZER = PlainTokenizerFiles(
    classes=("BartTokenizer", "BartTokenizerFast", "RobertaTokenizer", "RobertaTokenizerFast", None),
    named={
        "bos_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "cls_token": "<s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    settings={"add_prefix_space": (False, True), "trim_offsets": (False, True)},
    build=build_tokenizer,
)
PLAIN = PlainFiles(
    model_type="bart",
    config=BartFields,
    aliases=(
        ("hidden_size", "d_model"),
        ("num_attention_heads", "encoder_attention_heads"),
        ("num_hidden_layers", "encoder_layers"),
    ),
    extras=(  # in published checkpoints; most are unused
        "_num_labels",
        "add_bias_logits",
        "add_final_layer_norm",
        "classif_dropout",
        "extra_pos_embeddings",
        "force_bos_token_to_be_generated",
        "gradient_checkpointing",
        "normalize_before",
        "normalize_embedding",
        "output_past",
        "prefix",
        "save_step",
        "static_position_embeddings",
        "task_specific_params",
    ),
    tokenizer=TOKENIZER.read,
)
