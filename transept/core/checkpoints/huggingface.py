"""Reader of Hugging Face checkpoints: safetensors or PyTorch's .bin, in one file or in shards.

A .bin file is a pickle: it is read by ``torch.load(weights_only=True)`` alone, which runs no code of the file's.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transept.core.checkpoints.checkpoint import Checkpoint, read_json
from transept.errors import CheckpointError

WEIGHTS = (  # in order of preference
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def find_weights(path: Path) -> Path | None:
    """The file that a checkpoint's weights start from, or None when the directory holds none."""
    return next((path / name for name in WEIGHTS if (path / name).is_file()), None)


class HuggingFaceCheckpoint(Checkpoint):
    """A directory as ``save_pretrained`` writes it.

    files: the files that hold the weights, each existing.
    """

    format = "huggingface"

    def __init__(self, path: Path) -> None:
        """Read config.json and the index of shards, if there is one.

        Raises CheckpointError when config.json or shards are missing, or the index is corrupt or points elsewhere.
        """
        self.path = path
        weights = find_weights(path)
        if weights is None:
            raise CheckpointError(f'no Hugging Face checkpoint in "{path}": it has none of {", ".join(WEIGHTS)}')
        if not (path / "config.json").is_file():
            raise CheckpointError(f'"{path}" has {weights.name} but no config.json, which says what model it is')
        self.config_dict: dict[str, Any] = read_json(path / "config.json")
        named = self.config_dict.get("architectures") or ()
        self.architectures = tuple(name for name in named if isinstance(name, str))
        self.files = _shards(weights) if weights.suffix == ".json" else [weights]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by its name, one file after the other."""
        for file in self.files:
            yield from _safetensors(file) if file.suffix == ".safetensors" else _pickled(file)


def _shards(index: Path) -> list[Path]:
    """The files that an index names, in order. Raises CheckpointError that lists all that are missing."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f'"{index}" has no "weight_map" from names of weights to names of files')
    names = sorted(set(weight_map.values()))
    suffix = ".safetensors" if ".safetensors" in index.name else ".bin"
    if elsewhere := [name for name in names if "/" in name or "\\" in name or not name.endswith(suffix)]:
        listed = ", ".join(elsewhere)
        raise CheckpointError(f'"{index}" names files that cannot be its shards ({suffix}, beside it): {listed}')
    if missing := [name for name in names if not (index.parent / name).is_file()]:
        raise CheckpointError(
            f'"{index.parent}" lacks {len(missing)} of the {len(names)} shards in {index.name}: {", ".join(missing)}'
        )
    return [index.parent / name for name in names]


def _safetensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            names = list(opened.keys())
        for name in names:
            with safe_open(file, framework="pt") as opened:  # anew, so that pages that were read are given back
                yield name, opened.get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f'"{file}" is truncated or corrupt: {error}') from None


def _pickled(file: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        # Files older than torch 1.6 are no zip archives, and cannot be memory mapped.
        with file.open("rb") as opened:
            is_zip = opened.read(4) == b"PK\x03\x04"
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError as error:
        cause = str(error).partition("\n")[0]
        raise CheckpointError(
            f'"{file}" is corrupt, or holds more than weights, and that would be code to run: {cause}'
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise CheckpointError(f'"{file}" is truncated or corrupt: {str(error).partition(chr(10))[0]}') from None
    if not isinstance(content, dict):
        raise CheckpointError(f'"{file}" holds a {type(content).__name__}, not names and weights')
    if strangers := [str(name) for name, weight in content.items() if not isinstance(weight, Tensor)]:
        raise CheckpointError(f'"{file}" holds what is no weight: {", ".join(strangers)}')
    yield from content.items()
