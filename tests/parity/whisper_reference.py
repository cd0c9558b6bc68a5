"""transformers' Whisper on the weights of a CTranslate2 directory: the reference that Transept is held against."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from transformers import (
    GenerationConfig,
    GenerationMixin,
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
)
from transformers import WhisperForConditionalGeneration as Reference

from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint
from transept.plugins.whisper.control_tokens import ControlTokens, decoder_prompt
from transept.registry.checkpoint_view import CheckpointView

WINDOW = 30 * 16_000  # samples
NORM = {"gamma": "weight", "beta": "bias"}


def reference_model(directory: Path) -> Reference:
    """The checkpoint as a transformers model in float32, with its generation config."""
    checkpoint = CTranslate2Checkpoint(directory)
    tensors = {name: tensor.float() for name, tensor in checkpoint.tensors()}
    vocab_size, d_model = tensors["decoder/embeddings/weight"].shape
    layers = 1 + max(int(found[1]) for found in (re.match(r"encoder/layer_(\d+)/", name) for name in tensors) if found)
    end_of_text = vocab_size - 1501 - 107  # control tokens and timestamps follow it
    config = WhisperConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=d_model // 64,
        decoder_attention_heads=d_model // 64,
        encoder_ffn_dim=4 * d_model,
        decoder_ffn_dim=4 * d_model,
        bos_token_id=end_of_text,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        decoder_start_token_id=end_of_text + 1,
    )
    model = Reference(config).eval()
    model.load_state_dict(_state_dict(tensors, layers, d_model))
    given = json.loads((directory / "config.json").read_text())
    tokens = ControlTokens(config)
    model.generation_config = GenerationConfig(
        **{key: getattr(config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        decoder_start_token_id=config.decoder_start_token_id,
        max_length=448,
        suppress_tokens=given["suppress_ids"],
        begin_suppress_tokens=given["suppress_ids_begin"],
        is_multilingual=tokens.multilingual,
        no_timestamps_token_id=tokens.no_timestamps,
        prev_sot_token_id=tokens.start_of_previous,
        return_timestamps=False,
    )
    if tokens.multilingual:  # English-only checkpoints declare neither
        model.generation_config.lang_to_id = {f"<|{code}|>": token for code, token in tokens.languages.items()}
        model.generation_config.task_to_id = {"transcribe": tokens.transcribe, "translate": tokens.translate}
    return model


def _state_dict(tensors: dict[str, torch.Tensor], layers: int, d_model: int) -> dict[str, torch.Tensor]:
    state = {
        "model.decoder.embed_tokens.weight": tensors["decoder/embeddings/weight"],
        "proj_out.weight": tensors["decoder/embeddings/weight"],
    }
    for conv in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            state[f"model.encoder.{conv}.{kind}"] = tensors[f"encoder/{conv}/{kind}"]
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = tensors[f"{side}/position_encodings/encodings"]
        _copy_norm(state, f"model.{side}.layer_norm", tensors, f"{side}/layer_norm")
        for layer in range(layers):
            ours, theirs = f"model.{side}.layers.{layer}", f"{side}/layer_{layer}"
            attentions = {"self_attention": "self_attn"} | ({"attention": "encoder_attn"} if side == "decoder" else {})
            for source, target in attentions.items():
                _copy_norm(state, f"{ours}.{target}_layer_norm", tensors, f"{theirs}/{source}/layer_norm")
                stacked = ["linear_0"] if source == "self_attention" else ["linear_0", "linear_1"]
                weight = torch.cat([tensors[f"{theirs}/{source}/{name}/weight"] for name in stacked])
                bias = torch.cat([tensors[f"{theirs}/{source}/{name}/bias"] for name in stacked])
                for letter, w, b in zip("qkv", weight.split(d_model), bias.split(d_model), strict=True):
                    state[f"{ours}.{target}.{letter}_proj.weight"] = w
                    if letter != "k":
                        state[f"{ours}.{target}.{letter}_proj.bias"] = b
                for kind in ("weight", "bias"):
                    state[f"{ours}.{target}.out_proj.{kind}"] = tensors[
                        f"{theirs}/{source}/linear_{len(stacked)}/{kind}"
                    ]
            _copy_norm(state, f"{ours}.final_layer_norm", tensors, f"{theirs}/ffn/layer_norm")
            for index, name in enumerate(("fc1", "fc2")):
                for kind in ("weight", "bias"):
                    state[f"{ours}.{name}.{kind}"] = tensors[f"{theirs}/ffn/linear_{index}/{kind}"]
    return state


def _copy_norm(state: dict[str, torch.Tensor], target: str, tensors: dict[str, torch.Tensor], source: str) -> None:
    for theirs, ours in NORM.items():
        state[f"{target}.{ours}"] = tensors[f"{source}/{theirs}"]


def windows(file: Path) -> list[np.ndarray]:
    """The file's consecutive windows of 30 s, the last one shorter: [samples] float32 each, at 16 kHz."""
    waveform, sample_rate = soundfile.read(file, dtype="float32")
    assert sample_rate == 16_000
    return [waveform[start : start + WINDOW] for start in range(0, len(waveform), WINDOW)]


def speech_windows(speech_dir: Path) -> list[np.ndarray]:
    """Every window of every recording."""
    files = [file for folder in ("librivox", "prompts-en") for file in sorted((speech_dir / folder).glob("*.flac"))]
    assert len(files) == 5 + 54
    return [window for file in files for window in windows(file)]


@torch.inference_mode()
def reference_token_ids(
    model: Reference,
    waveforms: list[np.ndarray],
    batch_size: int = 8,
    extractor: WhisperFeatureExtractor | None = None,
) -> list[list[int]]:
    """Greedy new tokens of each window by transformers' generate, up to the end-of-text token."""
    extractor = extractor or WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    multilingual = {"language": "en", "task": "transcribe"} if model.generation_config.is_multilingual else {}
    end = model.config.eos_token_id
    ids: list[list[int]] = []
    for start in range(0, len(waveforms), batch_size):
        batch = waveforms[start : start + batch_size]
        features = extractor(batch, sampling_rate=16_000, return_tensors="pt").input_features
        for row in model.generate(features, **multilingual).tolist():
            opened = row[0] == model.config.decoder_start_token_id  # some versions return the prompt, some do not
            new = row[row.index(model.generation_config.no_timestamps_token_id) + 1 :] if opened else row
            ids.append(new[: new.index(end)] if end in new else new)
    return ids


@torch.inference_mode()
def reference_beams(model: Reference, waveform: np.ndarray, **settings: Any) -> tuple[list[list[int]], list[float]]:
    """Hypotheses of transformers' beam search and their scores, best first; end-of-text included where it came."""
    extractor = WhisperFeatureExtractor(feature_size=model.config.num_mel_bins)
    features = extractor(waveform, sampling_rate=16_000, return_tensors="pt").input_features
    prompt = decoder_prompt(CheckpointView(Path(model.config.name_or_path), model.config))
    result = GenerationMixin.generate(  # Whisper's own would take the prompt off, and the scores with it
        model,
        features,
        decoder_input_ids=torch.tensor([prompt]),
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    end = model.config.eos_token_id
    rows = [row[len(prompt) :] for row in result.sequences.tolist()]
    return [row[: row.index(end) + 1] if end in row else row for row in rows], result.sequences_scores.tolist()


def reference_texts(directory: Path, ids: list[list[int]]) -> list[str]:
    """The tokens as text, by the checkpoint's tokenizer, without special tokens."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(directory / "tokenizer.json"))
    return [tokenizer.decode(row, skip_special_tokens=True) for row in ids]
