"""Models from the hub, which is a real HTTP server on this machine."""

import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from hub_server import COMMIT, LATER_COMMIT, Hub, locating
from patience import PATIENCE

from transept.core.checkpoints.hub import has_weights, is_complete, wanted_files

CONTENT = {
    "config.json": b'{"architectures": ["X"]}',
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same weights",
    "tokenizer.json": b"{}",
    "README.md": b"read me",
}
LATER = {**CONTENT, "model.safetensors": b"later weights", "merges.txt": b"new"}
CTRANSLATE2 = {
    "config.json": b"{}",
    "model.bin": b"float16 weights",
    "tokenizer.json": b"{}",
    "vocabulary.json": b"[]",
    "README.md": b"read me",
}
TINY_EN = "Systran/faster-whisper-tiny.en"


@pytest.fixture
def hub():
    server = Hub({"org/name": {COMMIT: CONTENT, LATER_COMMIT: LATER}, TINY_EN: {COMMIT: CTRANSLATE2}})
    yield server
    server.close()


def content_of(folder):
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def wanted(content):
    return {name: content[name] for name in content if name not in ("pytorch_model.bin", "README.md")}


def test_one_set_of_weights_is_fetched():
    small = ["config.json", "generation_config.json", "merges.txt", "spiece.model", "tokenizer.json"]
    others = ["README.md", "flax_model.msgpack", "onnx/model.onnx", "onnx/config.json", "rust_model.ot", "tf_model.h5"]
    others += ["model.fp32-00001-of-00002.safetensors", "training_args.bin"]
    safe, bin_ = ["model.safetensors"], ["pytorch_model.bin"]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    bin_shards = [
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00002-of-00002.bin",
        "pytorch_model.bin.index.json",
    ]
    for sets, chosen in (
        ([safe, bin_], safe),
        ([bin_shards, shards], shards),
        ([safe, shards], safe),
        ([bin_], bin_),
        ([bin_shards], bin_shards),
        ([["model.bin"]], ["model.bin"]),
    ):
        assert wanted_files([*small, *others, *chain.from_iterable(sets)]) == sorted([*small, *chosen])


def test_hub(tmp_path, hub):
    """Downloads one set of weights; says so when there is no such model; works from the cache when the hub is gone."""
    with locating(hub.environment(tmp_path)) as ask:
        downloaded = Path(ask("org/name"))
        assert content_of(downloaded) == wanted(CONTENT)
        assert 'no checkpoint "org/other": no such directory, and the hub has no such model' in ask("org/other")
        hub.close()
        assert ask("org/name") == str(downloaded)
        unreachable = ask("org/never-seen")
        assert "no copy in the hub's cache, and the hub cannot be reached (ConnectError" in unreachable
        assert "package:NAME/folder" in unreachable


def test_a_short_name_is_its_repository(tmp_path, hub):
    with locating(hub.environment(tmp_path)) as ask:
        downloaded = ask("tiny.en")
        assert content_of(downloaded) == wanted(CTRANSLATE2)
        assert ask(TINY_EN) == downloaded
        hub.close()
        assert ask("tiny.en", offline=True) == downloaded


def test_a_folder_of_models_holds_what_is_downloaded(tmp_path, hub):
    kept = tmp_path / "kept"
    with locating(hub.environment(tmp_path / "home")) as ask:
        assert "no copy in" in ask("tiny.en", model_dir=str(kept), offline=True)
        assert hub.requests == []
        downloaded = Path(ask("tiny.en", model_dir=str(kept)))
        assert downloaded.is_relative_to(kept)
        assert ask("tiny.en", model_dir=str(kept), offline=True) == str(downloaded)
        assert "no copy in the hub's cache" in ask("tiny.en", offline=True)


def test_a_name_that_the_hub_does_not_know_may_be_like_another(tmp_path, hub):
    with locating(hub.environment(tmp_path)) as ask:
        assert ask("Systran/faster-whisper-tiny-en").endswith(f"Did you mean {TINY_EN!r}?")
        assert ask("whisper-large-v3").endswith("Did you mean 'large-v3'?")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("fault", "said"),
    [("silence", "ReadTimeout"), (503, "503"), (429, "429"), (500, "500"), ("html", "JSONDecodeError")],
)
def test_a_hub_that_does_not_answer_as_one_is_given_up_at_once(fault, said, tmp_path, hub):
    hub.fault = fault
    with locating(hub.environment(tmp_path), 0.5 if fault == "silence" else 240.0) as ask:
        message = ask("tiny.en")
    assert "no copy in the hub's cache, and the hub cannot be reached (" in message
    assert said in message
    assert "`transept models download tiny.en`" in message
    assert len(hub.requests) == 1


def test_a_complete_copy_is_used_without_asking_the_hub(tmp_path, hub):
    with locating(hub.environment(tmp_path)) as ask:
        downloaded = ask("org/name")
        hub.requests.clear()
        hub.mains[:] = [LATER_COMMIT]  # what has come since is left alone
        assert ask("org/name") == downloaded
        assert Path(downloaded).name == COMMIT
        assert hub.requests == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mains", [[COMMIT, LATER_COMMIT], [COMMIT, COMMIT, LATER_COMMIT]])
def test_listing_and_download_are_of_one_commit(mains, tmp_path, hub):
    hub.mains[:] = mains  # main moves while it is downloaded
    with locating(hub.environment(tmp_path)) as ask:
        downloaded = Path(ask("org/name"))
        assert content_of(downloaded) == wanted({COMMIT: CONTENT, LATER_COMMIT: LATER}[downloaded.name])
        assert ask("org/name", offline=True) == str(downloaded)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_an_interrupted_download_is_completed(missing, tmp_path, hub):
    hub.refused.add(missing)
    with locating(hub.environment(tmp_path)) as ask:
        assert "its download broke off" in ask("org/name")
        assert "an incomplete copy in the hub's cache" in ask("org/name", offline=True)
        hub.refused.clear()
        assert content_of(ask("org/name")) == wanted(CONTENT)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_download_that_is_ended_in_the_middle_of_the_weights_leaves_no_model(end, tmp_path, hub):
    command = [sys.executable, "-m", "transept", "models", "download", "tiny.en", "--model-dir", str(tmp_path)]
    hub.half = "model.bin"

    def heed_interrupts():  # which what runs in the background is started without
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    environment = hub.environment(tmp_path / "home")
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, preexec_fn=heed_interrupts) as process:
        assert hub.half_sent.wait(PATIENCE)
        process.send_signal(end)
        assert process.wait(PATIENCE) == (130 if end == signal.SIGINT else -end)
        assert b"Traceback" not in process.stderr.read()
    hub.half = None
    with locating(environment) as ask:
        assert "an incomplete copy in" in ask("tiny.en", model_dir=str(tmp_path), offline=True)
        assert content_of(ask("tiny.en", model_dir=str(tmp_path))) == wanted(CTRANSLATE2)


def test_a_copy_is_complete_with_all_its_weights_and_a_tokenizer(tmp_path):
    (tmp_path / "config.json").touch()
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert not has_weights(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").touch()
    assert has_weights(tmp_path)
    assert not is_complete(tmp_path)
    (tmp_path / "tokenizer.json").touch()
    assert is_complete(tmp_path)


def test_offline(tmp_path, hub):
    offline = hub.environment(tmp_path, HF_HUB_OFFLINE="1")
    with locating(offline) as ask:
        assert "offline mode is enabled" in ask("org/name")
    with locating(hub.environment(tmp_path)) as ask:
        downloaded = ask("org/name")
    hub.requests.clear()
    with locating(offline) as ask:
        assert ask("org/name") == downloaded
        (Path(downloaded) / "tokenizer.json").unlink()  # a few checkpoints have none
        assert ask("org/name") == downloaded
    assert hub.requests == []
