"""Reader of CTranslate2 checkpoints: one model.bin, memory mapped, with every variable in a single table.

Layout (CTranslate2, python/ctranslate2/specs/model_spec.py and src/models/model.cc), little-endian::

    u32 binary version, string spec name, u32 spec revision
    u32 count, then per variable: string name, u8 rank, u32 dims[rank], u8 dtype, u32 bytes, data
    u32 count, then per alias: string alias, string name of the variable that it stands for

A string is a u16 length, which counts a final NUL, and its bytes.

Weights in int8 or int16 were multiplied by a scale before they were rounded, one for each row or one for all rows. The
scale is another variable, with ``_scale`` after the name.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from transept.core.checkpoints.checkpoint import Checkpoint, check_pointer
from transept.errors import CheckpointError, suggest
from transept.json_files import MOST_JSON_BYTES, check_file, read_json, read_json_value
from transept.system import drop_pages

MODEL_BIN = "model.bin"
VERSIONS = range(4, 7)  # older files have a variable's item size instead of its dtype
MAX_RANK = 8  # of variables; weights have 3 at most
COPIED_AT_ONCE = 4 << 20  # bytes of unaligned data that are copied at a time
SCALE = "_scale"
VARIABLE_DTYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)  # by type id


@dataclass(frozen=True)
class Variable:
    """Shape and dtype of a variable, and the offset of its data in the file, in bytes."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int


class CTranslate2Checkpoint(Checkpoint):
    """A directory with a CTranslate2 model.bin.

    version, revision: of the binary layout and of the model's spec.
    variables: name -> Variable. An alias is an entry like any other, with its variable's offset.
    """

    format = "ctranslate2"

    def __init__(self, path: Path) -> None:
        """Read config.json, if there is one, and the table of variables.

        Raises CheckpointError for a version that cannot be read, and for a truncated or corrupt file.
        """
        self.path = path
        self.config_dict: dict[str, Any] = read_json(path / "config.json") if (path / "config.json").exists() else {}
        self._data = _map(path / MODEL_BIN)
        # Copies of unaligned data that are in use, by offset.
        self._copies: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        table = _Table(self._data, path / MODEL_BIN)
        self.version, spec_name, self.revision = table.header()
        self.architectures = (spec_name,)
        self.variables = table.variables()
        drop_pages(self._data)  # frees the pages that reading the table has mapped
        # by the scaled variable's offset, since an alias has no separate scale
        self._scales = {
            variable.offset: name + SCALE for name, variable in self.variables.items() if name + SCALE in self.variables
        }
        if any(
            variable.dtype is torch.int8 and variable.offset in self._scales for variable in self.variables.values()
        ):
            self.quantization = "int8"

    @property
    def config_file(self) -> Path:
        """See Checkpoint.config_file: weight maps derive the config from the shapes of weights."""
        return self.path / MODEL_BIN

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """See Checkpoint.shapes."""
        return ((name, self.shape_of(name)) for name in self._weights())

    def _weights(self) -> list[str]:
        """Return names of variables and aliases, without the scales."""
        return [
            name for name in self.variables if not (name.endswith(SCALE) and name.removesuffix(SCALE) in self.variables)
        ]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """See Checkpoint.tensors. Rounded weights are divided by their scale; scalars have shape []."""
        for name in self._weights():
            yield name, self.tensor(name)
            drop_pages(self._data)  # frees the pages that were read

    def tensor(self, name: str) -> Tensor:
        """Return a variable, divided by its scale if it was rounded.

        Raises CheckpointError if the variable is missing, or if its scale has a wrong shape.
        """
        tensor, scale_name = self._stored(name), self._scales.get(self._variable(name).offset)
        if scale_name is None:
            return tensor
        scale = self._stored(scale_name).float()
        if scale.numel() not in (1, *tensor.shape[:1]):
            raise CheckpointError(
                f'"{scale_name}" in "{self.path / MODEL_BIN}" has shape {list(scale.shape)}, which does not fit '
                f"{list(tensor.shape)} of {name}"
            )
        return tensor.float() / scale.view(-1, *[1] * (tensor.dim() - 1))

    def _stored(self, name: str) -> Tensor:
        """Return a variable with the numbers in the file."""
        variable = self._variable(name)
        count = prod(variable.shape)
        if count == 0:
            return torch.empty(variable.shape, dtype=variable.dtype)
        size = variable.dtype.itemsize
        if variable.offset % size == 0:
            flat = torch.frombuffer(self._data, dtype=variable.dtype, count=count, offset=variable.offset)
            return flat.view(variable.shape)
        copied = self._copies.get(variable.offset)  # under another name of the variable
        if copied is None:
            copied = self._copied(variable.offset, count * size).view(variable.dtype).view(variable.shape)
            self._copies[variable.offset] = copied
        return copied

    def _copied(self, offset: int, size: int) -> Tensor:
        """Copy bytes of the file to aligned memory; the format does not align its data."""
        copy = torch.empty(size, dtype=torch.uint8)
        for first in range(0, size, COPIED_AT_ONCE):
            count = min(COPIED_AT_ONCE, size - first)
            mapped = torch.frombuffer(self._data, dtype=torch.uint8, count=count, offset=offset + first)
            copy[first : first + count] = mapped
            drop_pages(self._data)  # frees the copied pages
        return copy

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable. Raises CheckpointError if the variable is missing."""
        return self._variable(name).shape

    def scalar(self, name: str) -> int | float:
        """Return a scalar such as ``"decoder/num_heads"``. Raises CheckpointError if the scalar is missing."""
        if shape := self.shape_of(name):
            raise CheckpointError(f'"{name}" in "{self.path / MODEL_BIN}" has shape {list(shape)}; it must be a scalar')
        return self.tensor(name).item()

    def vocabulary(self) -> list[str]:
        """Return the tokens in the order of their ids, as the converter wrote them; empty without such a file.

        Raises CheckpointError for a file that cannot be read.
        """
        file = self.path / "vocabulary.json"
        if file.is_file():
            tokens = read_json_value(file)
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise CheckpointError(f'"{file}" is not a list of tokens; convert the model again to have one')
            return tokens
        file = self.path / "vocabulary.txt"  # of older converters
        if not file.is_file():
            return []
        check_file(file, MOST_JSON_BYTES)
        return file.read_text(encoding="utf-8", errors="replace").split("\n")

    def _variable(self, name: str) -> Variable:
        try:
            return self.variables[name]
        except KeyError:
            hint = suggest(name, self.variables)
            raise CheckpointError(f'"{self.path / MODEL_BIN}" has no variable "{name}".{hint}') from None


def _map(file: Path) -> mmap.mmap:
    """Map the whole file, copy-on-write, because torch expects writable memory."""
    try:
        with file.open("rb") as opened:
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:  # ValueError: an empty file
        raise CheckpointError(f'cannot read "{file}": {error}') from None


class _Table:
    """Reads a model.bin from its first byte to its last. Every error names the part that was being read."""

    def __init__(self, data: mmap.mmap, file: Path) -> None:
        self.data, self.file, self.position, self.reading = data, file, 0, "header"

    def header(self) -> tuple[int, str, int]:
        """Read the binary version, the spec name and the spec revision."""
        version = self._number("I")
        if version not in VERSIONS:
            check_pointer(self.file)
            known = f"{VERSIONS[0]} to {VERSIONS[-1]}"
            raise CheckpointError(
                f'"{self.file}" is not a supported CTranslate2 file: its first number is {version}, and supported '
                f"versions are {known}. Convert the original model again with ct2-transformers-converter"
            )
        return version, self._string(), self._number("I")

    def variables(self) -> dict[str, Variable]:
        """Read all variables and then all aliases, with which the file must end."""
        variables: dict[str, Variable] = {}
        count = self._number("I")
        for index in range(count):
            after = f', after "{next(reversed(variables))}"' if variables else ""
            self.reading = f"variable {index + 1} of {count}{after}"
            name = self._string()
            self.reading = f'variable "{name}" ({index + 1} of {count})'
            if name in variables:
                raise self._corrupt("it is listed twice")
            variables[name] = self._variable()
        self.reading = "the list of aliases"
        for _ in range(self._number("I")):
            alias, name = self._string(), self._string()
            if name not in variables or alias in variables:
                raise self._corrupt(f'"{alias}" cannot stand for "{name}"')
            variables[alias] = variables[name]
        if self.position != len(self.data):
            raise self._corrupt(f"{len(self.data) - self.position} bytes follow it")
        return variables

    def _variable(self) -> Variable:
        rank = self._number("B")
        if rank > MAX_RANK:
            raise self._corrupt(f"it has {rank} dimensions")
        shape = tuple(self._number("I") for _ in range(rank))
        type_id, size = self._number("B"), self._number("I")
        if type_id >= len(VARIABLE_DTYPES):
            raise self._corrupt(f"its type id is {type_id}, beyond {len(VARIABLE_DTYPES) - 1}")
        dtype = VARIABLE_DTYPES[type_id]
        if prod(shape) * dtype.itemsize != size or prod(max(1, dim) for dim in shape) >= 1 << 62:
            raise self._corrupt(f"shape {list(shape)} of {dtype} does not take {size} bytes")
        return Variable(shape, dtype, self._advance(size))

    def _string(self) -> str:
        length = self._number("H")
        start = self._advance(length)
        raw = self.data[start : start + length]
        if not raw.endswith(b"\0"):
            raise self._corrupt("a name does not end in NUL")
        try:
            return raw[:-1].decode("utf-8")
        except UnicodeDecodeError:
            raise self._corrupt("a name is not UTF-8") from None

    def _number(self, code: str) -> int:
        start = self._advance(struct.calcsize("<" + code))
        return int(struct.unpack_from("<" + code, self.data, start)[0])

    def _advance(self, size: int) -> int:
        start, self.position = self.position, self.position + size
        if self.position > len(self.data):
            raise self._corrupt(f"the file ends at byte {len(self.data)}, {self.position - len(self.data)} too early")
        return start

    def _corrupt(self, why: str) -> CheckpointError:
        return CheckpointError(f'"{self.file}" is truncated or corrupt at {self.reading}: {why}')
