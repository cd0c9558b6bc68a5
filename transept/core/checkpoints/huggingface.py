"""Reader of Hugging Face checkpoints: safetensors or PyTorch's .bin, in one file or in shards.

A .bin file is a pickle. Only ``torch.load(weights_only=True)`` reads it, which runs no code in the file.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transept.core.checkpoints.checkpoint import Checkpoint, cause_of, check_pointer
from transept.core.checkpoints.wrapped_names import unwrapped
from transept.errors import CheckpointError
from transept.json_files import read_json

IsKnown = Callable[[str], bool] | None  # see Checkpoint.is_known
READ_AT_ONCE = 32 << 20  # bytes of a file's pages that stay in memory until it is opened again
WEIGHTS = (  # in order of preference
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def find_weights(path: Path) -> Path | None:
    """Return the directory's file of weights, or the index of their shards; None if it has neither."""
    return next((path / name for name in WEIGHTS if (path / name).is_file()), None)


class HuggingFaceCheckpoint(Checkpoint):
    """A directory as ``save_pretrained`` writes it.

    files: the files with the weights; all exist.
    """

    format = "huggingface"

    def __init__(self, path: Path) -> None:
        """Read config.json and the index of shards, if there is one.

        Raises CheckpointError if config.json or shards are missing, if config.json's architectures are not a list of
        names, and if the index is corrupt or names files elsewhere.
        """
        self.path = path
        weights = find_weights(path)
        if weights is None:
            raise CheckpointError(f'no Hugging Face checkpoint in "{path}": it has none of {", ".join(WEIGHTS)}')
        if not (path / "config.json").is_file():
            raise CheckpointError(f'"{path}" has {weights.name} but no config.json, which says what model it is')
        self.config_dict: dict[str, Any] = read_json(path / "config.json")
        named = self.config_dict.get("architectures") or []
        if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
            raise CheckpointError(f'"architectures" in "{path}/config.json" must be a list of names, not {named!r}')
        self.architectures = tuple(named)
        self.files = _shards(weights) if weights.suffix == ".json" else [weights]

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """See Checkpoint.shapes."""
        for file in self.files:
            if file.suffix == ".safetensors":
                yield from _safetensors_shapes(file, self.is_known)
            else:
                yield from ((name, tuple(tensor.shape)) for name, tensor in _pickled(file, self.is_known))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every weight by its name without wrapper prefixes, file by file."""
        for file in self.files:
            yield from read_tensors(file, self.is_known)


def read_tensors(file: Path, is_known: IsKnown = None) -> Iterator[tuple[str, Tensor]]:
    """Iterate over a file's tensors, by their names without wrapper prefixes. is_known: see Checkpoint.

    Raises CheckpointError for a file that is corrupt, or that contains anything but tensors.
    """
    return _safetensors(file, is_known) if file.suffix == ".safetensors" else _pickled(file, is_known)


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names, in order. Raises CheckpointError that lists all missing files."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CheckpointError(f'"{index}" has no "weight_map" from names of weights to names of files')
    names = sorted(set(weight_map.values()))
    suffix = ".safetensors" if ".safetensors" in index.name else ".bin"
    if elsewhere := [name for name in names if "/" in name or "\\" in name or not name.endswith(suffix)]:
        listed = ", ".join(elsewhere)
        raise CheckpointError(f'"{index}" names files that cannot be its shards ({suffix}, beside it): {listed}')
    there = {entry.name for entry in index.parent.iterdir() if entry.is_file()}
    if missing := [name for name in names if name not in there]:
        raise CheckpointError(
            f'"{index.parent}" lacks {len(missing)} of the {len(names)} shards in {index.name}: {", ".join(missing)}'
        )
    return [index.parent / name for name in names]


def _safetensors(file: Path, is_known: IsKnown) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    with _reading(file), safe_open(file, framework="pt") as header:
        names = list(header.keys())
    num_bytes = READ_AT_ONCE
    for name, plain in zip(names, unwrapped(names, is_known), strict=True):
        with _reading(file):
            if num_bytes >= READ_AT_ONCE:  # opening it again frees the pages that were read
                opened, num_bytes = safe_open(file, framework="pt"), 0
            tensor: Tensor = opened.get_tensor(name)  # type: ignore[no-untyped-call]
        num_bytes += tensor.nbytes
        yield plain, tensor


def _safetensors_shapes(file: Path, is_known: IsKnown) -> list[tuple[str, tuple[int, ...]]]:
    from safetensors import safe_open

    with _reading(file), safe_open(file, framework="pt") as opened:
        names = list(opened.keys())
        shapes = [tuple(opened.get_slice(name).get_shape()) for name in names]
    return [*zip(unwrapped(names, is_known), shapes, strict=True)]


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Raise any error of a reader as a CheckpointError: readers check little, so a corrupt file may raise anything."""
    try:
        yield
    except pickle.UnpicklingError as error:
        check_pointer(file)
        raise CheckpointError(
            f'"{file}" is corrupt, or contains code to run besides weights: {cause_of(error)}'
        ) from None
    except Exception as error:
        check_pointer(file)
        raise CheckpointError(f'"{file}" is truncated or corrupt: {cause_of(error)}') from error


def _pickled(file: Path, is_known: IsKnown) -> Iterator[tuple[str, Tensor]]:
    with _reading(file):
        # Before torch 1.6, files were not zip archives; they cannot be memory mapped.
        with file.open("rb") as opened:
            is_zip = opened.read(4) == b"PK\x03\x04"
        if is_zip:
            _check_archive(file)
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=is_zip)
    if not isinstance(content, dict):
        raise CheckpointError(f'"{file}" holds a {type(content).__name__}, not names and weights')
    if others := [name for name, weight in content.items() if not _is_weight(name, weight)]:
        shown = (name if isinstance(name, str) else f"a {type(name).__name__} for a name" for name in others)
        raise CheckpointError(f'"{file}" has entries that are not weights: {", ".join(shown)}')
    yield from zip(unwrapped([*content], is_known), content.values(), strict=True)


def _check_archive(file: Path) -> None:
    """Raise ValueError for an archive with compressed content; torch does not compress."""
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > file.stat().st_size:
        raise ValueError(f"it would unpack to {unpacked} bytes, more than the size of the file")


def _is_weight(name: object, value: object) -> bool:
    """True for a name and a dense tensor on the CPU that is not quantized."""
    if not isinstance(name, str) or not isinstance(value, Tensor):
        return False
    return value.layout is torch.strided and value.device.type == "cpu" and not value.is_quantized
