"""Whisper's folder as openai publishes it on the hub: weights, configs, and every file of the tokenizer."""

import json
from pathlib import Path

from parity.whisper_reference import reference_model
from transformers import WhisperFeatureExtractor

END = "<|endoftext|>"
TIMESTAMPS = [f"<|{0.02 * number:.2f}|>" for number in range(1501)]


def save_huggingface_whisper(source: Path, directory: Path) -> Path:
    """The weights and the tokenizer of a CTranslate2 folder as such a folder."""
    model = reference_model(source)
    model.save_pretrained(directory)
    edit(directory / "config.json", **{**AS_OPENAI_SAVES, "num_hidden_layers": model.config.encoder_layers})
    WhisperFeatureExtractor().save_pretrained(directory)
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    for name, content in tokenizer_files(tokenizer).items():
        write(directory / name, content)
    return directory


AS_OPENAI_SAVES = {  # what transformers 4 wrote besides what 5 writes
    "_name_or_path": "openai/whisper-tiny.en",
    "dtype": None,
    "forced_decoder_ids": [[1, 50362]],
    "max_length": 448,
    "num_hidden_layers": 4,
    "torch_dtype": "float32",
    "transformers_version": "4.27.0.dev0",
}


def tokenizer_files(tokenizer: dict) -> dict[str, object]:
    """Name -> content of a tokenizer.json and the files beside it, of which tokenizer_config.json has timestamps."""
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    added = [dict(token) for token in tokenizer["added_tokens"]]
    special = [token["content"] for token in added if token["special"]]
    flags = {"lstrip": False, "rstrip": False, "single_word": False}
    if TIMESTAMPS[0] not in [token["content"] for token in added]:
        first = added[-1]["id"] + 1
        of_timestamps = {"normalized": True, "special": False, **flags}
        added += [{"id": first + number, "content": text, **of_timestamps} for number, text in enumerate(TIMESTAMPS)]
    named = {f"{name}_token": END for name in ("bos", "eos", "pad", "unk")}
    return {
        "tokenizer.json": tokenizer,
        "vocab.json": vocabulary,
        "merges.txt": "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in map(_pair, merges)),
        "normalizer.json": {"colour": "color"},
        "added_tokens.json": {token["content"]: token["id"] for token in added if token["content"] not in vocabulary},
        "special_tokens_map.json": {
            "additional_special_tokens": special,
            **{name: {"content": text, "normalized": False, **flags} for name, text in named.items()},
        },
        "tokenizer_config.json": {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {str(token.pop("id")): token for token in added},
            "additional_special_tokens": special,
            **named,
            "clean_up_tokenization_spaces": True,
            "errors": "replace",
            "model_max_length": 1024,
            "processor_class": "WhisperProcessor",
            "return_attention_mask": False,
            "tokenizer_class": "WhisperTokenizer",
        },
    }


def _pair(merge: str | list[str]) -> list[str]:
    return merge.split(" ") if isinstance(merge, str) else merge


def write(file: Path, content: object) -> None:
    """A file of text or of JSON."""
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def edit(file: Path, **values: object) -> None:
    """Other values in a JSON file; those that are None are left out."""
    content = {**json.loads(file.read_text(encoding="utf-8")), **values}
    write(file, {name: value for name, value in content.items() if value is not None})
