"""The model.bin reader against a loop that walks the same bytes with struct and numpy alone."""

import gc
import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from transept.core.checkpoints.formats import open_checkpoint
from transept.errors import CheckpointError

NUMPY_DTYPES = [np.float32, np.int8, np.int16, np.int32, np.float16]


def read_by_hand(file):
    """(spec name, variables, aliases) of a model.bin."""
    content, at = file.read_bytes(), 0

    def take(code):
        nonlocal at
        (value,) = struct.unpack_from("<" + code, content, at)
        at += struct.calcsize("<" + code)
        return value

    def string():
        length = take("H")
        return take(f"{length}s").rstrip(b"\0").decode()

    take("I")
    spec, _ = string(), take("I")
    variables = {}
    for _ in range(take("I")):
        name, shape = string(), [take("I") for _ in range(take("B"))]
        dtype, size = NUMPY_DTYPES[take("B")], take("I")
        variables[name] = np.frombuffer(take(f"{size}s"), dtype).reshape(shape)
    aliases = {string(): string() for _ in range(take("I"))}
    assert at == len(content)
    return spec, variables, aliases


@pytest.mark.parametrize("directory", ["tiny_en_dir", "base_dir"])
def test_every_variable_of_a_real_checkpoint(directory, request):
    path = request.getfixturevalue(directory)
    spec, variables, aliases = read_by_hand(path / "model.bin")
    checkpoint = open_checkpoint(path)
    assert (checkpoint.format, checkpoint.architectures, checkpoint.path) == ("ctranslate2", (spec,), path)
    read = dict(checkpoint.tensors())
    assert list(read) == [*variables, *aliases]
    for name, tensor in read.items():
        expected = variables[aliases.get(name, name)]
        assert tuple(tensor.shape) == expected.shape == checkpoint.shape_of(name)
        assert tensor.numpy().dtype == expected.dtype
        assert np.array_equal(tensor.numpy(), expected)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is mapped")
def test_the_table_of_variables_stays_mapped_no_longer_than_it_is_read(tiny_en_dir):
    file = tiny_en_dir / "model.bin"
    name = re.escape(str(file.resolve()))

    def mapped():  # address -> KiB in memory, of this file, which other tests may have mapped, too
        smaps = Path("/proc/self/smaps").read_text()
        return dict(re.findall(rf"^(\S+) .* {name}\n(?:\w+: .*\n)*?Rss: +(\d+) kB", smaps, re.MULTILINE))

    gc.collect()  # so that no mapping of other tests ends now, whose place the new one would take
    before = mapped()
    checkpoint = open_checkpoint(tiny_en_dir)
    assert checkpoint.config_file == file
    assert [size for address, size in mapped().items() if address not in before] == ["0"]


def test_scalars(tiny_en_dir):
    checkpoint = open_checkpoint(tiny_en_dir)
    assert checkpoint.scalar("decoder/num_heads") == 6
    assert checkpoint.scalar("decoder/alignment_layer") == -1
    assert checkpoint.config_dict["alignment_heads"][0] == [1, 0]
    with pytest.raises(CheckpointError, match=r"has no variable .* Did you mean 'decoder/num_heads'"):
        checkpoint.scalar("decoder/num_head")
    with pytest.raises(CheckpointError, match=r"shape \[51864, 384\]; it must be a scalar"):
        checkpoint.scalar("decoder/embeddings/weight")


def string(text):
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def variable(name, shape, type_id, data, size=None):
    dims = struct.pack(f"<B{len(shape)}I", len(shape), *shape)
    return string(name) + dims + struct.pack("<BI", type_id, len(data) if size is None else size) + data


def model_bin(*variables, aliases=(), version=6):
    header = struct.pack("<I", version) + string("SomeSpec") + struct.pack("<II", 1, len(variables))
    pairs = b"".join(string(alias) + string(name) for alias, name in aliases)
    return header + b"".join(variables) + struct.pack("<I", len(aliases)) + pairs


A = variable("a", [2, 3], 0, np.arange(6, dtype=np.float32).tobytes())
B = variable("b", [2], 5, torch.tensor([1.5, -2.0]).bfloat16().view(torch.int16).numpy().tobytes())
EMPTY = variable("empty", [0, 3], 0, b"")


def write(tmp_path, content):
    (tmp_path / "model.bin").write_bytes(content)
    return tmp_path


def test_small_file_with_every_case(tmp_path):
    checkpoint = open_checkpoint(write(tmp_path, model_bin(A, B, EMPTY, aliases=[("c", "a")])))
    read = dict(checkpoint.tensors())
    assert checkpoint.architectures == ("SomeSpec",)
    assert checkpoint.config_dict == {}  # no config.json
    assert torch.equal(read["a"], torch.arange(6.0).view(2, 3))
    assert torch.equal(read["b"], torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert torch.equal(read["c"], read["a"])
    assert read["empty"].shape == (0, 3)


def test_writing_to_a_tensor_leaves_the_file_alone(tmp_path):
    content = model_bin(A, B)
    for _, tensor in open_checkpoint(write(tmp_path, content)).tensors():
        tensor.zero_()
    assert (tmp_path / "model.bin").read_bytes() == content


def test_every_truncation_is_an_error_that_says_where(tmp_path):
    content = model_bin(A, B, aliases=[("c", "a")])
    for length in range(len(content)):
        with pytest.raises(CheckpointError, match=r"truncated or corrupt at|cannot read"):
            open_checkpoint(write(tmp_path, content[:length]))
    cut = content.index(B) + len(B) - 1
    with pytest.raises(CheckpointError, match=r'at variable "b" \(2 of 2\): the file ends at byte \d+, 1 too early'):
        open_checkpoint(write(tmp_path, content[:cut]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (model_bin(A, B, version=3), "first number is 3, and supported versions are 4 to 6"),
        (model_bin(A, version=7), "first number is 7"),
        (b"PK\x03\x04" + bytes(100), "is not a supported CTranslate2 file"),
        (model_bin(A, variable("b", [2], 6, bytes(4))), 'at variable "b" .*: its type id is 6'),
        (model_bin(A, variable("b", [2], 4, bytes(6))), r'at variable "b" .*: shape \[2\] of torch.float16 .* 6 bytes'),
        (model_bin(A, A), 'at variable "a" .*: it is listed twice'),
        (model_bin(A, aliases=[("c", "nothing")]), 'at the list of aliases: "c" cannot stand for "nothing"'),
        (model_bin(A) + b"!", "1 bytes follow it"),
        (model_bin(struct.pack("<H", 2) + b"ab"), "a name does not end in NUL"),
        (model_bin(struct.pack("<H", 2) + b"\xff\0"), "a name is not UTF-8"),
        (b"", "cannot read"),
    ],
)
def test_corrupt_files(tmp_path, content, message):
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(write(tmp_path, content))
