"""The contents of a T5 checkpoint's config.json and tokenizer files, to read them without transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from transept.authoring import PlainFiles, PlainTokenizerFiles

# feed_forward_proj -> (dense_act_fn, is_gated_act); transformers parses others
_FEED_FORWARD = {"relu": ("relu", False), "gated-gelu": ("gelu_new", True)}
_UNKNOWN = 2  # the id of <unk> in every T5 vocabulary


@dataclass(frozen=True)
class T5Fields:
    """The fields of transformers' T5Config with their types and defaults, which are t5-small's."""

    classifier_dropout: float | int = 0.0
    d_ff: int = 2048
    d_kv: int = 64
    d_model: int = 512
    dropout_rate: float | int = 0.1
    eos_token_id: int | list[int] | None = 1
    feed_forward_proj: str = "relu"
    initializer_factor: float = 1.0
    is_decoder: bool = False
    is_encoder_decoder: bool = True
    layer_norm_epsilon: float = 1e-6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    num_layers: int = 6
    pad_token_id: int | None = 0
    relative_attention_max_distance: int = 128
    relative_attention_num_buckets: int = 32
    use_cache: bool = True
    vocab_size: int = 32128


def derive(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values that T5Config computes, unless a file has them; None for an unknown feed_forward_proj."""
    if values["feed_forward_proj"] not in _FEED_FORWARD:
        return None
    activation, gated = _FEED_FORWARD[values["feed_forward_proj"]]
    layers = values["num_decoder_layers"]
    return {
        "dense_act_fn": values.get("dense_act_fn", activation),
        "is_gated_act": values.get("is_gated_act", gated),
        "num_decoder_layers": values["num_layers"] if layers is None else layers,
        "scale_decoder_outputs": values.get("scale_decoder_outputs", values.get("tie_word_embeddings") is not False),
        "tie_word_embeddings": True,  # corrected by the weights, see `t5_config`
    }


def build_tokenizer(
    tokenizer: Tokenizer, model: Mapping[str, Any], settings: Mapping[str, Any], named: Mapping[str, tuple[str, int]]
) -> list[str] | None:
    """Build the tokenizer like transformers' T5Tokenizer: unigrams of words, and ``</s>`` after a text."""
    if not isinstance(tokenizer.model, models.Unigram) or model.get("unk_id") != _UNKNOWN or model.get("byte_fallback"):
        return None
    if not isinstance(tokenizer.normalizer, normalizers.Precompiled | None):
        return None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # Metaspace puts ▁ before every word by default
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    end = named["eos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(single=["$A", end[0]], special_tokens=[end])
    return _sentinels(settings, tokenizer.get_vocab_size())


def _sentinels(settings: Mapping[str, Any], most: int) -> list[str] | None:
    """Return T5's sentinel tokens if the files do not list them; None if the class would refuse or add some."""
    count = settings.get("extra_ids", 100)
    if type(count) is not int or count > most:
        return None
    if "extra_special_tokens" in settings:
        return []
    if "additional_special_tokens" in settings:
        listed = [token for token in settings["additional_special_tokens"] or () if "<extra_id_" in str(token)]
        return [] if len(listed) == count > 0 else None
    return [f"<extra_id_{number}>" for number in range(count)]


TOKENIZER = PlainTokenizerFiles(
    classes=("T5Tokenizer", "T5TokenizerFast", None),
    named={"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"},
    settings={"extra_ids": None, "legacy": (False, True), "sp_model_kwargs": ({},)},
    build=build_tokenizer,
)
PLAIN = PlainFiles(
    model_type="t5",
    config=T5Fields,
    aliases=(
        ("head_dim", "d_kv"),
        ("hidden_size", "d_model"),
        ("num_attention_heads", "num_heads"),
        ("num_hidden_layers", "num_layers"),
    ),
    extras=(
        "decoder_start_token_id",
        "dense_act_fn",
        "gradient_checkpointing",
        "is_gated_act",
        "n_positions",
        "output_past",
        "prefix",
        "scale_decoder_outputs",
        "task_specific_params",
        "tie_word_embeddings",
    ),
    derived=derive,
    tokenizer=TOKENIZER.read,
)
