"""Checkpoint: the common interface of the checkpoint formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from transept.errors import CheckpointError

LFS_POINTER = b"version https://git-lfs.github.com/spec"  # the first bytes of a large file in a clone without Git LFS


class Checkpoint(ABC):
    """A directory with weights and a config.json, opened for reading.

    path: the directory.
    format: the key into ModelSpec.weight_maps, ``"huggingface"`` or ``"ctranslate2"``.
    architectures: names of the model family in the checkpoint: config.json's ``architectures``, or the spec name of a
        CTranslate2 model.bin, such as ``("WhisperSpec",)``.
    config_dict: the content of config.json; empty without such a file.
    quantization: rounding of its weights, as in EngineConfig.
    is_known: returns True for a weight's name that the family's weight map knows; set by `describe_model`.

    CTranslate2's checkpoints also have ``shape_of(name)``, the shape of one weight.
    """

    path: Path
    format: str
    architectures: tuple[str, ...]
    config_dict: dict[str, Any]
    quantization: Literal["int8"] | None = None
    is_known: Callable[[str], bool] | None = None

    @property
    def config_file(self) -> Path:
        """The file from which the model's config is read, for messages."""
        return self.path / "config.json"

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Iterate over names and shapes of all weights. Formats with a separate table of shapes read no weights.

        Raises CheckpointError if a file is missing or corrupt.
        """
        return ((name, tuple(tensor.shape)) for name, tensor in self.tensors())

    @abstractmethod
    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over names and tensors of all weights. Tensors are memory-mapped, and must not be written.

        Raises CheckpointError if a file is missing or corrupt.
        """


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def cause_of(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error)}"


def check_pointer(file: Path) -> None:
    """Raise CheckpointError if Git LFS has left a pointer where the weights would be."""
    with file.open("rb") as opened:
        if opened.read(len(LFS_POINTER)) == LFS_POINTER:
            raise CheckpointError(f'"{file}" is a Git LFS pointer, not the weights: run `git lfs pull`')
