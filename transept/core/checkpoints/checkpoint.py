"""Checkpoint: the common face of the formats that a model's weights come in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from transept.errors import CheckpointError

LFS_POINTER = b"version https://git-lfs.github.com/spec"  # what a clone without Git LFS has in place of a large file


class Checkpoint(ABC):
    """A directory with weights and a config.json, opened for reading.

    path: the directory.
    format: the key into ModelSpec.weight_maps, ``"huggingface"`` or ``"ctranslate2"``.
    architectures: names by which the checkpoint asks for a model family: config.json's ``architectures``, or the spec
        name of a CTranslate2 model.bin, such as ``("WhisperSpec",)``.
    config_dict: config.json as read; empty when there is none.
    quantization: what its weights were rounded to, as EngineConfig says it.
    """

    path: Path
    format: str
    architectures: tuple[str, ...]
    config_dict: dict[str, Any]
    quantization: Literal["int8"] | None = None

    @property
    def config_file(self) -> Path:
        """What its model's config comes from."""
        return self.path / "config.json"

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight's name and shape. Formats that tell them apart from the weights read no weight for it.

        Raises CheckpointError when a file is missing or corrupt.
        """
        return ((name, tuple(tensor.shape)) for name, tensor in self.tensors())

    @abstractmethod
    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by its name, memory mapped: pages are read when a tensor is, and must not be written.

        Raises CheckpointError when a file is missing or corrupt.
        """


def cause_of(error: BaseException) -> str:
    """An error's kind and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def check_pointer(file: Path) -> None:
    """Raise CheckpointError if Git LFS has left a pointer where the weights would be."""
    with file.open("rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise CheckpointError(f'"{file}" is a Git LFS pointer, not the weights: run `git lfs pull`')
