"""The rows of test_text_models.py: small models in the configurations of published checkpoints, and two trained ones.

Random weights are drawn wide and seeded, so that logits are far from tied and outputs depend on the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    BigBirdPegasusConfig,
    BigBirdPegasusForConditionalGeneration,
    BlenderbotSmallConfig,
    BlenderbotSmallForConditionalGeneration,
    ByT5Tokenizer,
    LongT5Config,
    LongT5ForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PegasusXConfig,
    PegasusXForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from transept.testing import Parity

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
VOCABULARY = 320
BART_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": 150,
    "init_std": 0.3,
}
T5_SIZES = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "d_kv": 8,  # 3 heads of 8: not d_model
    "d_ff": 96,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "decoder_start_token_id": 0,
}
# Standard deviations by parts of T5's names. Its own initialisation, which init_std does not reach, leaves attention
# nearly uniform and the relative bias weak; much wider weights, without a scale in attention, magnify rounding.
T5_WIDTHS = {"layer_norm": 0.3, "relative_attention_bias": 2.0, "shared": 0.3, "lm_head": 0.5, ".wo.": 0.1}
BART_BASE = {
    "num_beams": 4,
    "no_repeat_ngram_size": 3,
    "early_stopping": True,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
}
SUMMARY = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "early_stopping": True}
REPLY = {"num_beams": 10, "length_penalty": 0.65, "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 3}
LANGUAGE = VOCABULARY - 10  # the code of one, in mBART's range
PADDING = VOCABULARY - 1  # Marian's, which starts its decoder


def by_init_std(model: Any) -> None:
    """Weights as the config says, but for embeddings that are scaled: else every token predicts itself."""
    if model.config.scale_embedding:
        for side in (model.model.encoder, model.model.decoder):
            torch.nn.init.normal_(side.embed_tokens.weight, std=0.1)


def wide(model: Any, width: float = 0.14) -> None:
    """T5's weights anew, the head being the embedding. width: of those that T5_WIDTHS does not name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            mean = 1.0 if "layer_norm" in name else 0.0
            parameter.normal_(mean, next((each for part, each in T5_WIDTHS.items() if part in name), width))


def wide_with_own_head(model: Any) -> None:
    """T5's weights anew, the head being a matrix of its own."""
    model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    wide(model, 0.12)


def as_trained(model: Any) -> None:
    """The weights stay as they are."""


def nothing(model: Any, directory: Path) -> None:
    """The checkpoint stays as transformers saved it."""


def in_float64(model: Any, directory: Path) -> None:
    """The reference, for a checkpoint with which transformers is up to 0.7e-4 away from it in float32."""
    model.double()


def without_head(model: Any, directory: Path) -> None:
    """The checkpoint of the bare model, which has no bias for the head."""
    model.final_logits_bias.zero_()
    model.model.save_pretrained(directory)


def with_byte_tokenizer(model: Any, directory: Path) -> None:
    ByT5Tokenizer().save_pretrained(directory)


def embedding_by_the_decoders_name(model: Any, directory: Path) -> None:
    """As google/madlad400-3b-mt was saved."""
    file = directory / "model.safetensors"
    weights = load_file(file)
    weights["decoder.embed_tokens.weight"] = weights.pop("shared.weight")
    save_file(weights, file, metadata={"format": "pt"})


def sparse_again(model: Any, directory: Path) -> None:
    """BigBird's encoder, whose attention transformers leaves full after a short text."""

    def reset(encoder: Any, args: Any, keywords: Any) -> None:
        encoder.set_attention_type("block_sparse")

    model.model.encoder.register_forward_pre_hook(reset, with_kwargs=True)


def unscale(model: Any, directory: Path) -> None:
    """transformers 5 scales a UMT5 head of its own too, which neither training nor transformers 4 does."""
    with torch.no_grad():
        model.lm_head.weight *= model.config.d_model**0.5


@dataclass(frozen=True)
class Row:
    """One configuration.

    model_class: makes a model of the config. settings: of generation, as in the published checkpoint, but for a shorter
        max_length.
    draw: (model) its weights, before it is saved. edit: (model, directory) either of them, after it is saved.
    tolerance: see Parity.
    """

    model_class: Callable[[Any], Any]
    config: Any
    settings: dict[str, Any] = field(default_factory=dict)
    draw: Callable[[Any], None] = wide
    edit: Callable[[Any, Path], None] = nothing
    tolerance: float = 1e-4

    def parity(self, directory: Path, device: str = "cpu", encoder_lengths: Sequence[int] | None = None) -> Parity:
        torch.manual_seed(0)
        model = self.model_class(self.config)
        self.draw(model)
        model.generation_config.update(**self.settings)
        parity = Parity(model, directory, device=device, encoder_lengths=encoder_lengths, tolerance=self.tolerance)
        self.edit(model, directory)
        return parity


def bart(settings: dict[str, Any], edit: Callable[[Any, Path], None] = nothing, **config: Any) -> Row:
    return Row(BartForConditionalGeneration, BartConfig(**BART_SIZES, **config), settings, by_init_std, edit)


def mbart(settings: dict[str, Any], start: int) -> Row:
    config = MBartConfig(**BART_SIZES, scale_embedding=True, decoder_start_token_id=start)
    return Row(MBartForConditionalGeneration, config, settings, by_init_std)


def m2m100(settings: dict[str, Any]) -> Row:
    return Row(M2M100ForConditionalGeneration, M2M100Config(**BART_SIZES), settings, by_init_std)


def marian(decoder_vocab_size: int, shared: bool) -> Row:
    config = MarianConfig(
        **BART_SIZES,
        decoder_vocab_size=decoder_vocab_size,
        share_encoder_decoder_embeddings=shared,
        scale_embedding=True,
        activation_function="swish",
        pad_token_id=decoder_vocab_size - 1,
        decoder_start_token_id=decoder_vocab_size - 1,
        eos_token_id=0,
    )
    settings = {
        "num_beams": 6,
        "max_length": 60,
        "bad_words_ids": [[decoder_vocab_size - 1]],
        "forced_eos_token_id": 0,
    }
    return Row(MarianMTModel, config, settings, by_init_std)


PEGASUS = PegasusConfig(**BART_SIZES, scale_embedding=True, activation_function="relu")
PEGASUS_X = PegasusXConfig(**BART_SIZES, num_global_tokens=4, block_size=16)
BIG_BIRD = BigBirdPegasusConfig(**BART_SIZES, block_size=8, num_random_blocks=1)  # sparse in texts of over 56 tokens
LONG_SUMMARY = {"num_beams": 4, "length_penalty": 0.8, "max_length": 50}
T5_1_1 = T5Config(**T5_SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
BYT5 = T5Config(**{**T5_SIZES, "vocab_size": 384}, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
LONG = {"feed_forward_proj": "gated-gelu", "local_radius": 11, "global_block_size": 4}  # in texts of up to 150 tokens
LONG_LOCAL = LongT5Config(**T5_SIZES, **LONG, tie_word_embeddings=False)
LONG_GLOBAL = LongT5Config(**T5_SIZES, **LONG, encoder_attention_type="transient-global")
FEW_BUCKETS = {"relative_attention_num_buckets": 12, "relative_attention_max_distance": 30}
GATED_SILU = T5Config(**T5_SIZES, **FEW_BUCKETS, feed_forward_proj="gated-silu")

ROWS = {
    "bart-base": bart({**BART_BASE, "max_length": 60}),
    "bart-large-cnn": bart({**BART_BASE, "length_penalty": 2.0, "min_length": 56, "max_length": 142}),
    "bart, bare": bart({**BART_BASE, "max_length": 60}, edit=without_head),
    "bart, scaled, ReLU": bart({**BART_BASE, "max_length": 40}, scale_embedding=True, activation_function="relu"),
    "mbart-large-en-ro": mbart({"num_beams": 5, "max_length": 60}, start=LANGUAGE),
    "mbart-large-50": mbart(
        {"num_beams": 5, "max_length": 60, "early_stopping": True, "forced_bos_token_id": LANGUAGE}, start=2
    ),
    "pegasus-xsum": Row(
        PegasusForConditionalGeneration,
        PEGASUS,
        {"num_beams": 8, "length_penalty": 0.6, "max_length": 64, "forced_eos_token_id": 1},
        by_init_std,
    ),
    "pegasus-x": Row(PegasusXForConditionalGeneration, PEGASUS_X, LONG_SUMMARY, by_init_std),
    "bigbird-pegasus": Row(BigBirdPegasusForConditionalGeneration, BIG_BIRD, LONG_SUMMARY, by_init_std, sparse_again),
    "blenderbot_small-90M": Row(
        BlenderbotSmallForConditionalGeneration,
        BlenderbotSmallConfig(**BART_SIZES),
        {**REPLY, "min_length": 20, "max_length": 40, "forced_eos_token_id": 2},
        by_init_std,
    ),
    "nllb-200": m2m100({"max_length": 60, "forced_bos_token_id": LANGUAGE}),
    "m2m100": m2m100({"num_beams": 5, "max_length": 60, "early_stopping": True}),
    "opus-mt": marian(VOCABULARY, shared=True),
    "opus-mt, two vocabularies": marian(VOCABULARY - 60, shared=False),
    "t5": Row(T5ForConditionalGeneration, T5Config(**T5_SIZES), {**SUMMARY, "min_length": 30, "max_length": 80}),
    "t5 1.1": Row(T5ForConditionalGeneration, T5_1_1, {"max_length": 60}, wide_with_own_head),
    "mt5": Row(MT5ForConditionalGeneration, MT5Config(**T5_SIZES), {"max_length": 60}, wide_with_own_head),
    "umt5": Row(UMT5ForConditionalGeneration, UMT5Config(**T5_SIZES), {"max_length": 60}, wide_with_own_head, unscale),
    "long-t5-tglobal": Row(LongT5ForConditionalGeneration, LONG_GLOBAL, {"max_length": 40}),
    "byt5": Row(T5ForConditionalGeneration, BYT5, {"max_length": 60}, wide_with_own_head, with_byte_tokenizer),
}
TRAINED = {
    name: Row(AutoModelForSeq2SeqLM.from_pretrained, CMUDICT / name, draw=as_trained, edit=edit, tolerance=tolerance)
    # T5's logits, of prompts that mean nothing to it, are up to 1.1e-4 from those in float64, by the processor.
    for name, edit, tolerance in (("bart-g2p", nothing, 1e-4), ("t5-g2p", in_float64, 2e-4))
}
VARIANTS = {  # what differs is in the weights or in one formula, so logits tell
    "t5, gated SiLU, few buckets": Row(T5ForConditionalGeneration, GATED_SILU),
    "t5 1.1, tied": Row(T5ForConditionalGeneration, T5_1_1),
    "madlad400": Row(T5ForConditionalGeneration, T5_1_1, draw=wide_with_own_head, edit=embedding_by_the_decoders_name),
    "long-t5-local": Row(LongT5ForConditionalGeneration, LONG_LOCAL, draw=wide_with_own_head),
    "mt5, tied": Row(MT5ForConditionalGeneration, MT5Config(**T5_SIZES)),
    "umt5, tied": Row(UMT5ForConditionalGeneration, UMT5Config(**T5_SIZES)),
}
