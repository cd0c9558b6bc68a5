"""Whisper's weight names in Hugging Face and CTranslate2 checkpoints, and configs for the latter."""

from __future__ import annotations

import re
from typing import Any

from transept.authoring import CheckpointError, PlainConfig, WeightMap, bart_layer_rules
from transept.plugins.whisper.control_tokens import MULTILINGUAL_VOCABULARY, ControlTokens
from transept.plugins.whisper.plain import PLAIN
from transept.plugins.whisper.token_names import names_of_ctranslate2

HUGGINGFACE = WeightMap(
    rules=(
        (r"(?:model\.)?(encoder|decoder)\.embed_positions\.weight", r"\1.embed_positions"),
        *bart_layer_rules(r"(?:model\.)?((?:encoder|decoder)\..*)", r"\1"),
        (r"(?:model\.)?((?:encoder|decoder)\..*)", r"\1"),
    ),
    tied=((r"proj_out\.weight", "decoder.embed_tokens.weight"),),
    zeros=(r".*\.qkv_proj\.bias#k",),
    plain=PLAIN,
)

_NORM = {"gamma": "weight", "beta": "bias"}


def _ctranslate2_rules() -> tuple[tuple[str, str], ...]:
    layer = r"(encoder|decoder)/layer_(\d+)"
    norms = (
        (rf"{layer}/self_attention/layer_norm", r"\1.layers.\2.self_attn_norm"),
        (rf"{layer}/attention/layer_norm", r"\1.layers.\2.cross_attn_norm"),
        (rf"{layer}/ffn/layer_norm", r"\1.layers.\2.ffn_norm"),
        (r"(encoder|decoder)/layer_norm", r"\1.layer_norm"),
    )
    return (
        *((f"{name}/{theirs}", f"{target}.{ours}") for name, target in norms for theirs, ours in _NORM.items()),
        (rf"{layer}/self_attention/linear_0/(weight|bias)", r"\1.layers.\2.self_attn.qkv_proj.\3"),
        (rf"{layer}/self_attention/linear_1/(weight|bias)", r"\1.layers.\2.self_attn.out_proj.\3"),
        (rf"{layer}/attention/linear_0/(weight|bias)", r"\1.layers.\2.cross_attn.qkv_proj.\3#q"),
        (rf"{layer}/attention/linear_1/(weight|bias)", r"\1.layers.\2.cross_attn.qkv_proj.\3#k+v"),
        (rf"{layer}/attention/linear_2/(weight|bias)", r"\1.layers.\2.cross_attn.out_proj.\3"),
        (rf"{layer}/ffn/linear_0/(weight|bias)", r"\1.layers.\2.ffn.fc1.\3"),
        (rf"{layer}/ffn/linear_1/(weight|bias)", r"\1.layers.\2.ffn.fc2.\3"),
        (r"encoder/(conv[12])/(weight|bias)", r"encoder.\1.\2"),
        (r"(encoder|decoder)/position_encodings/encodings", r"\1.embed_positions"),
        (r"decoder/embeddings/weight", "decoder.embed_tokens.weight"),
    )


def whisper_config(checkpoint: Any) -> PlainConfig:
    """Return the config of a CTranslate2 checkpoint, from the shapes of its weights, with WhisperConfig's names."""
    vocab_size, d_model = checkpoint.shape_of("decoder/embeddings/weight")
    start = names_of_ctranslate2(checkpoint)("<|startoftranscript|>")
    if start is None:
        start = 50258 if vocab_size >= MULTILINGUAL_VOCABULARY else 50257
    end_of_text = start - 1
    encoder_layers, decoder_layers = (_count_layers(checkpoint, side) for side in ("encoder", "decoder"))
    return PlainConfig(
        activation_function="gelu",
        vocab_size=vocab_size,
        d_model=d_model,
        num_mel_bins=checkpoint.shape_of("encoder/conv1/weight")[1],
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_attention_heads=int(checkpoint.scalar("encoder/num_heads")),
        decoder_attention_heads=int(checkpoint.scalar("decoder/num_heads")),
        encoder_ffn_dim=checkpoint.shape_of("encoder/layer_0/ffn/linear_0/weight")[0],
        decoder_ffn_dim=checkpoint.shape_of("decoder/layer_0/ffn/linear_0/weight")[0],
        max_source_positions=checkpoint.shape_of("encoder/position_encodings/encodings")[0],
        max_target_positions=checkpoint.shape_of("decoder/position_encodings/encodings")[0],
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        decoder_start_token_id=start,
        architectures=["WhisperForConditionalGeneration"],
    )


def whisper_generation_config(checkpoint: Any, config: Any) -> PlainConfig:
    """Return the generation config of a CTranslate2 checkpoint, with transformers' names."""
    given = checkpoint.config_dict
    tokens = ControlTokens(config, token_id=names_of_ctranslate2(checkpoint))
    return PlainConfig(
        eos_token_id=config.eos_token_id,
        pad_token_id=config.pad_token_id,
        decoder_start_token_id=config.decoder_start_token_id,
        max_length=config.max_target_positions,
        suppress_tokens=given.get("suppress_ids"),
        begin_suppress_tokens=given.get("suppress_ids_begin"),
        alignment_heads=given.get("alignment_heads"),
        is_multilingual=tokens.multilingual,
        no_timestamps_token_id=tokens.no_timestamps,
        prev_sot_token_id=tokens.start_of_previous,
        lang_to_id={f"<|{code}|>": token for code, token in tokens.languages.items()},
        task_to_id={"transcribe": tokens.transcribe, "translate": tokens.translate},
    )


def _count_layers(checkpoint: Any, side: str) -> int:
    layers = {name.split("/")[1] for name in checkpoint.variables if re.match(rf"{side}/layer_\d+/", name)}
    if not layers:
        raise CheckpointError(f'"{checkpoint.path}" has no {side} layers')
    return len(layers)


CTRANSLATE2 = WeightMap(
    rules=_ctranslate2_rules(),
    ignored=(
        r"(encoder|decoder)/(num_heads|pre_norm|activation|alibi|scale_alibi|alibi_use_positive_positions)",
        r"decoder/(start_from_zero_embedding|scale_embeddings|alignment_layer|alignment_heads)",
        r"encoder/scale_embeddings",
    ),
    tied=((r"decoder/projection/weight", "decoder.embed_tokens.weight"),),
    config=whisper_config,
    generation_config=whisper_generation_config,
    plain=PLAIN,
)
