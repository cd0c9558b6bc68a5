"""openai-whisper on the weights of a CTranslate2 directory: the reference that transcription is held against."""

import json
import re
from pathlib import Path
from typing import Any

import torch
import whisper
from whisper.model import ModelDimensions, Whisper

from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint

PARTS = {  # CTranslate2's name of a layer's part -> openai-whisper's
    "self_attention/layer_norm": "attn_ln",
    "self_attention/linear_0": "attn.query+key+value",
    "self_attention/linear_1": "attn.out",
    "attention/layer_norm": "cross_attn_ln",
    "attention/linear_0": "cross_attn.query",
    "attention/linear_1": "cross_attn.key+value",
    "attention/linear_2": "cross_attn.out",
    "ffn/layer_norm": "mlp_ln",
    "ffn/linear_0": "mlp.0",
    "ffn/linear_1": "mlp.2",
}
WHOLE = {
    "encoder/conv1/weight": "encoder.conv1.weight",
    "encoder/conv1/bias": "encoder.conv1.bias",
    "encoder/conv2/weight": "encoder.conv2.weight",
    "encoder/conv2/bias": "encoder.conv2.bias",
    "encoder/position_encodings/encodings": "encoder.positional_embedding",
    "encoder/layer_norm/gamma": "encoder.ln_post.weight",
    "encoder/layer_norm/beta": "encoder.ln_post.bias",
    "decoder/embeddings/weight": "decoder.token_embedding.weight",
    "decoder/position_encodings/encodings": "decoder.positional_embedding",
    "decoder/layer_norm/gamma": "decoder.ln.weight",
    "decoder/layer_norm/beta": "decoder.ln.bias",
}
KINDS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


def openai_model(directory: Path) -> Whisper:
    """The checkpoint as an openai-whisper model in float32, with its alignment heads."""
    checkpoint = CTranslate2Checkpoint(directory)
    tensors = {name: tensor.float() for name, tensor in checkpoint.tensors()}
    state = {theirs: tensors[name] for name, theirs in WHOLE.items()}
    for name, tensor in tensors.items():
        found = re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(.+)/(\w+)", name)
        if found is None or found[4] not in KINDS:
            continue
        attention, _, stacked = PARTS[found[3]].rpartition(".")
        names = stacked.split("+")
        for part, rows in zip(names, tensor.chunk(len(names)), strict=True):
            if (part, found[4]) != ("key", "bias"):
                prefix = f"{attention}.{part}" if attention else part
                state[f"{found[1]}.blocks.{found[2]}.{prefix}.{KINDS[found[4]]}"] = rows
    vocab_size, width = tensors["decoder/embeddings/weight"].shape
    layers = 1 + max(int(each[1]) for each in (re.match(r"encoder\.blocks\.(\d+)", name) for name in state) if each)
    model = Whisper(ModelDimensions(80, 1500, width, width // 64, layers, vocab_size, 448, width, width // 64, layers))
    model.load_state_dict(state)
    heads = torch.zeros(layers, width // 64, dtype=torch.bool)
    for layer, head in json.loads((directory / "config.json").read_text())["alignment_heads"]:
        heads[layer, head] = True
    model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
    return model.eval()


def openai_result(model: Whisper, waveform: Any, **options: Any) -> dict[str, Any]:
    """What openai-whisper's transcribe() returns in float32. waveform: float32 [samples] at 16 kHz."""
    return whisper.transcribe(model, waveform, fp16=False, **options)


def before_the_end(segments: list[dict[str, Any]], seconds: float, clips: Any = ()) -> list[dict[str, Any]]:
    """openai-whisper's segments without what it hears after the sound's end, where ours differ from its.

    seconds: of the whole recording. clips: its clip_timestamps, as numbers.
    """
    frames = [round(100 * clip) for clip in clips] or [0]
    borders = [*frames, *([round(100 * seconds)] if len(frames) % 2 else [])]
    kept = []
    for segment in segments:
        begin, end = next(
            each for each in zip(borders[::2], borders[1::2], strict=True) if each[0] <= segment["seek"] < each[1]
        )
        last = min(end / 100, seconds)
        beyond = segment["end"] > last + 1.0
        room = last - segment["start"] if beyond else last - segment["seek"] / 100
        if segment["seek"] > begin and beyond and room <= 0:
            continue
        if segment["seek"] > begin and (beyond or room < 2.0) and len(segment["text"].strip()) > max(15, 40 * room):
            continue
        kept.append(segment | ({"end": round(last, 2)} if beyond and segment["start"] < last else {}))
    return kept
