"""Every reader on files broken at random: each is read or refused with a TranseptError, at once, without much memory.

The mutations are seeded: what fails here fails again. JSON files are broken byte by byte, and value by value, since
hardly any survives the first.
"""

import copy
import io
import json
import random
import shutil
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from json_values import values_changed
from peak_memory import grows_by_less_than
from transformers import BartConfig, BartForConditionalGeneration

from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config, load_generation_config, load_tokenizer
from transept.core.checkpoints.load_weights import load_weights
from transept.core.checkpoints.weight_map import WeightMap
from transept.errors import CheckpointError, TranseptError

CMUDICT = Path(__file__).parents[2] / "data" / "cmudict"
MUTATIONS = 400
MORE_MEMORY = 128  # MiB that a corrupt file may take
SIZES = {
    "d_model": 4,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 4,
    "decoder_ffn_dim": 4,
    "vocab_size": 9,
    "max_position_embeddings": 6,
}
BY_NAME = WeightMap(
    rules=((r"(.*)", r"\1"),), tied=((r"lm_head\.weight|model\..*\.embed_tokens\.weight", "model.shared.weight"),)
)

# ---------------------------------------------------------------------------------------------------------- mutations


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    """Bits flipped, bytes replaced, inserted or left out, or the end cut off."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(changed) + 1)
        few = rng.randrange(1, 9)
        match rng.randrange(5):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(changed):
                changed[at] = rng.randrange(256)
            case 2:
                del changed[at:]
            case 3:
                changed[at:at] = rng.randbytes(few)
            case 4:
                del changed[at : at + few]
    return bytes(changed)


def pickle_changed(content: bytes, rng: random.Random) -> bytes:
    """A zip archive of torch's, sound but for the bytes of its pickle."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as before, zipfile.ZipFile(changed, "w") as after:
        for entry in before.infolist():
            inside = before.read(entry)
            broken = bytes_changed(inside, rng) if entry.filename.endswith("data.pkl") else inside
            after.writestr(entry.filename, broken)
    return changed.getvalue()


def header_changed(content: bytes, rng: random.Random) -> bytes:
    """A safetensors file with odd values in its header, whose length is right."""
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header = values_changed(content[8:end], rng)
    return struct.pack("<Q", len(header)) + header + content[end:]


# -------------------------------------------------------------------------------------------------------- checkpoints


@pytest.fixture(scope="module")
def bart() -> BartForConditionalGeneration:
    torch.manual_seed(0)
    return BartForConditionalGeneration(BartConfig(**SIZES)).requires_grad_(False)


def save(kind: str, bart: BartForConditionalGeneration, path: Path) -> Path:
    """A checkpoint of one kind; returns the file to break."""
    if kind == "model.bin":
        path.mkdir()
        (path / kind).write_bytes(ctranslate2_file())
    elif kind == "model.safetensors":
        bart.save_pretrained(path)
    elif kind == "model.safetensors.index.json":
        bart.save_pretrained(path, max_shard_size="1KB")
    elif kind in ("pytorch_model.bin", "legacy pytorch_model.bin"):
        bart.config.save_pretrained(path)
        file = path / "pytorch_model.bin"
        torch.save(bart.state_dict(), file, _use_new_zipfile_serialization=kind == file.name)
        return file
    else:
        shutil.copytree(CMUDICT / "bart-g2p", path)
        if kind == "lone tokenizer.json":
            (path / "tokenizer_config.json").unlink()
    return path / kind.removeprefix("lone ")


def ctranslate2_file() -> bytes:
    """Two variables, an alias, and one in int8 with its scales."""

    def string(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    def variable(name: str, shape: list[int], type_id: int, data: bytes) -> bytes:
        dims = struct.pack(f"<B{len(shape)}I", len(shape), *shape)
        return string(name) + dims + struct.pack("<BI", type_id, len(data)) + data

    variables = [
        variable("a/weight", [2, 3], 0, struct.pack("<6f", *range(6))),
        variable("b/weight", [3, 2], 1, bytes(range(6))),
        variable("b/weight_scale", [3], 0, struct.pack("<3f", 1.0, 2.0, 3.0)),
        variable("heads", [], 1, b"\2"),
        variable("c", [1, 2], 4, struct.pack("<2e", 0.5, 0.25)),
    ]
    header = struct.pack("<I", 6) + string("SomeSpec") + struct.pack("<II", 1, len(variables))
    return header + b"".join(variables) + struct.pack("<I", 1) + string("d") + string("a/weight")


# ------------------------------------------------------------------------------------------------------------ readers


def read_weights(path: Path, bart: BartForConditionalGeneration) -> None:
    checkpoint = open_checkpoint(path)
    shapes = list(checkpoint.shapes())
    assert shapes == [(name, tuple(tensor.shape)) for name, tensor in checkpoint.tensors()]
    load_weights(copy.deepcopy(bart), checkpoint, BY_NAME)


def read_configs(path: Path, bart: BartForConditionalGeneration) -> None:
    checkpoint = open_checkpoint(path)
    load_generation_config(checkpoint, BY_NAME, load_config(checkpoint, BY_NAME))


def read_tokenizer(path: Path, bart: BartForConditionalGeneration) -> None:
    load_tokenizer(path)


def read_ctranslate2(path: Path, bart: BartForConditionalGeneration) -> None:
    checkpoint = open_checkpoint(path)
    assert len(list(checkpoint.shapes())) == len(list(checkpoint.tensors()))
    checkpoint.scalar("heads")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("kind", "change", "read"),
    [
        ("model.safetensors", bytes_changed, read_weights),
        ("model.safetensors", header_changed, read_weights),
        ("model.safetensors.index.json", bytes_changed, read_weights),
        ("model.safetensors.index.json", values_changed, read_weights),
        ("pytorch_model.bin", bytes_changed, read_weights),
        ("pytorch_model.bin", pickle_changed, read_weights),
        ("legacy pytorch_model.bin", bytes_changed, read_weights),
        ("model.bin", bytes_changed, read_ctranslate2),
        ("config.json", bytes_changed, read_configs),
        ("config.json", values_changed, read_configs),
        ("generation_config.json", bytes_changed, read_configs),
        ("generation_config.json", values_changed, read_configs),
        ("tokenizer.json", bytes_changed, read_tokenizer),
        ("tokenizer.json", values_changed, read_tokenizer),
        ("lone tokenizer.json", values_changed, read_tokenizer),
        ("tokenizer_config.json", bytes_changed, read_tokenizer),
        ("tokenizer_config.json", values_changed, read_tokenizer),
    ],
)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol", "ignore:TypedStorage is deprecated", "ignore:Defining")
def test_broken_at_random(kind, change, read, bart, tmp_path):
    file = save(kind, bart, tmp_path / "model")
    read(tmp_path / "model", bart)
    content, refused = file.read_bytes(), 0
    with grows_by_less_than(MORE_MEMORY):
        for number in range(MUTATIONS):
            file.unlink()  # what is mapped stays as it was
            file.write_bytes(change(content, random.Random(number)))
            try:
                read(tmp_path / "model", bart)
            except TranseptError:
                refused += 1
            except BaseException as error:
                error.add_note(f"mutation {number} of {kind}")
                raise
    assert 0 < refused < MUTATIONS


# ----------------------------------------------------------------------------------------------------- chosen by hand

HUGE = 1 << 60
PANICS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<nowhere>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [],
    "special_tokens": {},
}


def huge_safetensors(path: Path, bart: BartForConditionalGeneration) -> None:
    bart.config.save_pretrained(path)
    header = json.dumps({"weight": {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))


def huge_safetensors_header(path: Path, bart: BartForConditionalGeneration) -> None:
    bart.config.save_pretrained(path)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", HUGE) + b"{}")


def huge_ctranslate2(path: Path, bart: BartForConditionalGeneration) -> None:
    content = ctranslate2_file()
    at = content.index(b"a/weight\0") + len(b"a/weight\0")
    (path / "model.bin").write_bytes(content[: at + 1] + struct.pack("<II", 2**32 - 1, 2**32 - 1) + content[at + 9 :])


def huge_count_in_ctranslate2(path: Path, bart: BartForConditionalGeneration) -> None:
    content = ctranslate2_file()
    at = content.index(b"SomeSpec\0") + len(b"SomeSpec\0") + 4
    (path / "model.bin").write_bytes(content[:at] + struct.pack("<I", 2**32 - 1) + content[at + 4 :])


def huge_storage(path: Path, bart: BartForConditionalGeneration, zip_archive: bool) -> None:
    """A pickle of torch's that claims 2**40 numbers of float32 where there are 77."""
    bart.config.save_pretrained(path)
    file = path / "pytorch_model.bin"
    torch.save({"weight": torch.zeros(77)}, file, _use_new_zipfile_serialization=zip_archive)
    claimed = lambda content: content.replace(b"K\x4d", b"\x8a\x06" + (1 << 40).to_bytes(6, "little"))  # noqa: E731
    if not zip_archive:
        file.write_bytes(claimed(file.read_bytes()))
        return
    with zipfile.ZipFile(file) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, inside in content.items():
            archive.writestr(name, claimed(inside) if name.endswith("data.pkl") else inside)


def huge_zip(path: Path, bart: BartForConditionalGeneration) -> None:
    huge_storage(path, bart, zip_archive=True)


def huge_legacy(path: Path, bart: BartForConditionalGeneration) -> None:
    huge_storage(path, bart, zip_archive=False)


def zip_bomb(path: Path, bart: BartForConditionalGeneration) -> None:
    """torch's own archive, in whose pickle a string of 512 MiB is compressed."""
    bart.config.save_pretrained(path)
    torch.save({"weight": torch.zeros(77)}, path / "sound.bin")
    with (
        zipfile.ZipFile(path / "sound.bin") as sound,
        zipfile.ZipFile(path / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in sound.namelist():
            if not name.endswith("data.pkl"):
                archive.writestr(name, sound.read(name), zipfile.ZIP_STORED)
                continue
            with archive.open(name, "w") as entry:
                entry.write(b"\x80\x02X" + struct.pack("<I", 512 << 20))
                for _ in range(512):
                    entry.write(b"a" * (1 << 20))
                entry.write(b".")


def brackets(path: Path, bart: BartForConditionalGeneration) -> None:
    bart.save_pretrained(path)
    (path / "config.json").write_bytes(b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def other_tensors(path: Path, bart: BartForConditionalGeneration) -> None:
    bart.config.save_pretrained(path)
    weights = {"sparse": torch.eye(3).to_sparse(), "meta": torch.empty(HUGE, device="meta"), 5: torch.zeros(1)}
    torch.save(weights, path / "pytorch_model.bin")


@pytest.mark.parametrize(
    "write",
    [
        huge_safetensors,
        huge_safetensors_header,
        huge_ctranslate2,
        huge_count_in_ctranslate2,
        huge_zip,
        huge_legacy,
        zip_bomb,
        brackets,
        other_tensors,
    ],
)
def test_what_claims_to_be_huge_takes_no_memory(write, bart, tmp_path):
    write(tmp_path, bart)
    with grows_by_less_than(MORE_MEMORY), pytest.raises(CheckpointError):
        list(open_checkpoint(tmp_path).tensors())


def test_tokenizers_that_fail_when_they_are_used(tmp_path):
    for kind, key, value in (
        ("tokenizer_config.json", "model_max_length", "long"),
        ("tokenizer.json", "post_processor", PANICS),  # no Exception, but a panic of Rust's
    ):
        path = Path(shutil.copytree(CMUDICT / "bart-g2p", tmp_path / kind))
        (path / kind).write_text(json.dumps({**json.loads((path / kind).read_text()), key: value}))
        with pytest.raises(CheckpointError, match="cannot read the tokenizer in"):
            load_tokenizer(path)


def test_a_scale_that_does_not_fit_its_variable(tmp_path):
    content = ctranslate2_file()
    three, two = struct.pack("<BIBI3f", 1, 3, 0, 12, 1, 2, 3), struct.pack("<BIBI2f", 1, 2, 0, 8, 1, 2)
    assert three in content
    (tmp_path / "model.bin").write_bytes(content.replace(three, two))
    with pytest.raises(CheckpointError, match=r'"b/weight_scale" in .* has shape \[2\], which does not fit \[3, 2\]'):
        list(open_checkpoint(tmp_path).tensors())


@pytest.mark.parametrize("named", [5, "BartModel", {"BartModel": 1}, ["BartModel", None], [["BartModel"]]])
def test_architectures_that_are_no_list_of_names(named, bart, tmp_path):
    bart.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": named}))
    with pytest.raises(CheckpointError, match=r'"architectures" in ".*config\.json" must be a list of names'):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "model.bin"])
def test_a_git_lfs_pointer_is_called_one(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 151061672\n")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is a Git LFS pointer, not the weights: run `git lfs pull`$"):
        list(open_checkpoint(tmp_path).shapes())
