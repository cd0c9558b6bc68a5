"""Whisper for whisper.cpp: python -m benchmarks.peers.exporters.ggml_whisper FOLDER

FOLDER/huggingface -> FOLDER/ggml/f16.bin, and q8_0.bin with blocks of 32 weights in int8. The format is that of
whisper.cpp's models/convert-pt-to-ggml.py, little-endian: magic, eleven sizes, mel filters, vocabulary, tensors.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import load_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers import WhisperFeatureExtractor

MAGIC = 0x67676D6C  # "ggml"
F32, F16, Q8_0 = 0, 1, 8  # types of tensors
# the types of a whole file: 1 is f16; 7 is q8_0, and 2000 stands for the version of quantisation
FILE_TYPES = {"f16": 1, "q8_0": 2007}
BLOCK = 32  # weights of q8_0 that share a scale
# Hugging Face's names -> OpenAI's, in this order
NAMES = (
    (r"^model\.", ""),
    (r"\.layers\.", ".blocks."),
    (r"self_attn_layer_norm", "attn_ln"),
    (r"encoder_attn_layer_norm", "cross_attn_ln"),
    (r"final_layer_norm", "mlp_ln"),
    (r"self_attn", "attn"),
    (r"encoder_attn", "cross_attn"),
    (r"q_proj", "query"),
    (r"k_proj", "key"),
    (r"v_proj", "value"),
    (r"out_proj", "out"),
    (r"fc1", "mlp.0"),
    (r"fc2", "mlp.2"),
    (r"encoder\.layer_norm", "encoder.ln_post"),
    (r"decoder\.layer_norm", "decoder.ln"),
    (r"embed_positions\.weight", "positional_embedding"),
    (r"embed_tokens", "token_embedding"),
)
ALWAYS_F32 = (
    "encoder.conv1.bias",
    "encoder.conv2.bias",
    "encoder.positional_embedding",
    "decoder.positional_embedding",
)


def main(folder: Path) -> None:
    """Write both files where they are not there."""
    source = folder / "huggingface"
    for kind, file_type in FILE_TYPES.items():
        target = folder / "ggml" / f"{kind}.bin"
        if target.exists():
            continue
        target.parent.mkdir(exist_ok=True)
        partial = target.with_suffix(".partial")
        with partial.open("wb") as file:
            write_head(file, source, file_type)
            for name, tensor in load_file(source / "model.safetensors").items():
                if name != "proj_out.weight":
                    write_tensor(file, openai_name(name), tensor, kind)
        partial.rename(target)


def write_head(file: BinaryIO, source: Path, file_type: int) -> None:
    """All before the tensors."""
    config: dict[str, Any] = json.loads((source / "config.json").read_text())
    sizes = [config["vocab_size"]]
    for side, length in (("encoder", "max_source_positions"), ("decoder", "max_target_positions")):
        sizes += [config[length], config["d_model"], config[f"{side}_attention_heads"], config[f"{side}_layers"]]
    file.write(struct.pack("<12i", MAGIC, *sizes, config["num_mel_bins"], file_type))
    filters = WhisperFeatureExtractor.from_pretrained(source).mel_filters.T.astype("<f4")  # [mels, 201 frequencies]
    file.write(struct.pack("<2i", *filters.shape) + filters.tobytes())
    tokens = vocabulary(source)
    file.write(struct.pack("<i", len(tokens)))
    for token in tokens:
        file.write(struct.pack("<i", len(token)) + token)


def vocabulary(source: Path) -> list[bytes]:
    """The tokens that stand for text, in the order of their ids; whisper.cpp names the others itself."""
    tokenizer: dict[str, Any] = json.loads((source / "tokenizer.json").read_text())
    special = {token["id"] for token in tokenizer["added_tokens"]}
    byte_of = bytes_of_characters()
    ids = {number: token for token, number in tokenizer["model"]["vocab"].items() if number not in special}
    assert sorted(ids) == list(range(len(ids)))
    return [bytes(byte_of[character] for character in ids[number]) for number in range(len(ids))]


def bytes_of_characters() -> dict[str, int]:
    """GPT-2's byte-level alphabet: printable bytes stand for themselves, the others for characters from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    found = {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}
    assert set(found) == set(ByteLevel.alphabet())
    return found


def openai_name(name: str) -> str:
    for theirs, ours in NAMES:
        name = re.sub(theirs, ours, name)
    return name


def write_tensor(file: BinaryIO, name: str, tensor: np.ndarray, kind: str) -> None:
    """One tensor: number of dimensions, length of its name, type, dimensions from the last, name, data."""
    if re.fullmatch(r"encoder\.conv\d\.bias", name):
        tensor = tensor[:, None]
    if tensor.ndim == 1 or name in ALWAYS_F32:
        tensor_type, data = F32, tensor.astype("<f4").tobytes()
    elif kind == "q8_0" and tensor.ndim == 2:
        tensor_type, data = Q8_0, q8_0(tensor)
    else:
        tensor_type, data = F16, tensor.astype("<f2").tobytes()
    encoded = name.encode()
    file.write(struct.pack("<3i", tensor.ndim, len(encoded), tensor_type))
    file.write(struct.pack(f"<{tensor.ndim}i", *reversed(tensor.shape)) + encoded + data)


def q8_0(tensor: np.ndarray) -> bytes:
    """Blocks of a scale in float16 and 32 numbers in int8, as ggml's quantize_row_q8_0_ref rounds them."""
    blocks = tensor.astype(np.float32).reshape(-1, BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    scaled = blocks * inverse
    rounded = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int8)
    packed = np.empty(len(blocks), dtype=[("scale", "<f2"), ("values", "i1", BLOCK)])
    packed["scale"], packed["values"] = scales[:, 0], rounded
    return packed.tobytes()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
