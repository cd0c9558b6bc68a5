"""The contents of a Whisper checkpoint's small files, to read them without transformers."""

from __future__ import annotations

from dataclasses import dataclass

from transept.authoring import PlainFiles
from transept.plugins.whisper.tokenizer import TOKENIZER


@dataclass(frozen=True)
class WhisperFields:
    """The fields of transformers' WhisperConfig with their types and defaults, which are whisper-tiny.en's."""

    activation_dropout: float | int = 0.0
    activation_function: str = "gelu"
    apply_spec_augment: bool = False
    attention_dropout: float | int = 0.0
    begin_suppress_tokens: list[int] | tuple[int, ...] | None = (220, 50256)
    bos_token_id: int | None = 50256
    classifier_proj_size: int = 256
    d_model: int = 384
    decoder_attention_heads: int = 6
    decoder_ffn_dim: int = 1536
    decoder_layerdrop: float | int = 0.0
    decoder_layers: int = 4
    decoder_start_token_id: int = 50257
    dropout: float | int = 0.0
    encoder_attention_heads: int = 6
    encoder_ffn_dim: int = 1536
    encoder_layerdrop: float | int = 0.0
    encoder_layers: int = 4
    eos_token_id: int | list[int] | None = 50256
    init_std: float = 0.02
    is_encoder_decoder: bool = True
    mask_feature_length: int = 10
    mask_feature_min_masks: int = 0
    mask_feature_prob: float | int = 0.0
    mask_time_length: int = 10
    mask_time_min_masks: int = 2
    mask_time_prob: float | int = 0.05
    max_source_positions: int = 1500
    max_target_positions: int = 448
    median_filter_width: int = 7
    num_mel_bins: int = 80
    pad_token_id: int | None = 50256
    scale_embedding: bool = False
    suppress_tokens: list[int] | None = None
    tie_word_embeddings: bool = True
    use_cache: bool = True
    use_weighted_layer_sum: bool = False
    vocab_size: int = 51865


PLAIN = PlainFiles(
    model_type="whisper",
    config=WhisperFields,
    aliases=(
        ("hidden_size", "d_model"),
        ("num_attention_heads", "encoder_attention_heads"),
        ("num_hidden_layers", "encoder_layers"),
        ("num_key_value_heads", "encoder_attention_heads"),
    ),
    extras=("forced_decoder_ids",),
    generation_extras=(
        "alignment_heads",
        "forced_decoder_ids",
        "is_multilingual",
        "lang_to_id",
        "language",
        "max_initial_timestamp_index",
        "no_timestamps_token_id",
        "prev_sot_token_id",
        "return_timestamps",
        "task",
        "task_to_id",
    ),
    tokenizer=TOKENIZER.read,
)
