"""Whisper checkpoints whose vocabulary has further tokens after the timestamps, as fine-tuned and padded ones have."""

import json
import shutil
import struct
from pathlib import Path

import torch
from huggingface_whisper import TIMESTAMPS, edit, save_huggingface_whisper
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer

from transept.core.checkpoints.ctranslate2 import CTranslate2Checkpoint

EMBEDDING = "decoder/embeddings/weight"
LOUDER = 1.05  # an added token in place of another: the same row, and more likely wherever that one is likely


def grow_ctranslate2(source: Path, directory: Path, words: dict[str, str]) -> Path:
    """A CTranslate2 folder with more tokens: word -> the token in whose place the model says it, "" for none."""
    directory.mkdir(parents=True)
    for file in source.iterdir():
        if file.name != "model.bin":
            shutil.copy(file, directory)
    checkpoint = CTranslate2Checkpoint(source)
    rows = grown_rows(checkpoint.tensor(EMBEDDING).float(), source, words)
    variable = checkpoint.variables[EMBEDDING]
    content, stored = (source / "model.bin").read_bytes(), rows.to(variable.dtype)
    before = variable.offset - struct.calcsize("<IIBI")  # the shape, the dtype and the size stand before the data
    old_size = variable.shape[0] * variable.shape[1] * variable.dtype.itemsize
    type_id = content[variable.offset - 5]
    header = struct.pack("<IIBI", *stored.shape, type_id, stored.nbytes)
    data = stored.view(torch.uint8).numpy().tobytes()
    (directory / "model.bin").write_bytes(content[:before] + header + data + content[variable.offset + old_size :])
    with (directory / "vocabulary.txt").open("a", encoding="utf-8") as vocabulary:
        vocabulary.write("".join(f"{word}\n" for word in words))
    add_words(directory / "tokenizer.json", words)
    return directory


def grow_huggingface(source: Path, directory: Path, words: dict[str, str], *, multiple: int = 1) -> Path:
    """A Hugging Face folder of a CTranslate2 one, grown alike and padded to a multiple, with few settings."""
    save_huggingface_whisper(source, directory)
    weights = load_file(directory / "model.safetensors")
    name = "model.decoder.embed_tokens.weight"
    rows = grown_rows(weights[name], source, words)
    padding = torch.zeros(-len(rows) % multiple, rows.shape[1])
    weights[name] = torch.cat([rows, padding]).contiguous()
    weights.pop("proj_out.weight", None)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    edit(directory / "config.json", vocab_size=len(weights[name]))
    if words:
        first = len(rows) - len(words)
        file = directory / "tokenizer_config.json"
        added = json.loads(file.read_text(encoding="utf-8"))["added_tokens_decoder"]
        flags = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": False, "special": False}
        added |= {str(first + number): {"content": word, **flags} for number, word in enumerate(words)}
        edit(file, added_tokens_decoder=added)
        add_words(directory / "tokenizer.json", words)
    forget = ("no_timestamps_token_id", "is_multilingual", "lang_to_id", "task_to_id", "prev_sot_token_id")
    edit(directory / "generation_config.json", **dict.fromkeys(forget))
    return directory


def grown_rows(rows: torch.Tensor, source: Path, words: dict[str, str]) -> torch.Tensor:
    """The embeddings with those of the words."""
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    added = [
        LOUDER * rows[tokenizer.encode(said, add_special_tokens=False).ids[0]] if said else torch.zeros(rows.shape[1])
        for said in words.values()
    ]
    return torch.cat([rows, torch.stack(added)]) if added else rows


def add_words(file: Path, words: dict[str, str]) -> None:
    """Add tokens to a tokenizer.json, with timestamps before them where it has none."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.add_tokens([AddedToken(text, normalized=True) for text in TIMESTAMPS])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    tokenizer.save(str(file))
