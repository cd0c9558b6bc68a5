"""A hub on this machine: a real HTTP server that speaks as much of the hub's protocol as a download needs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Content = Mapping[str, bytes | Path]  # file name -> its bytes, or a file that holds them
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LATER_COMMIT = COMMIT[::-1]


class Hub(ThreadingHTTPServer):
    """Serves repositories: name -> commit -> content.

    mains: what main is, request by request; the last one stays. requests: paths that were asked for.
    refused: files that are listed, but not given. half: a file of which half is sent, and then nothing more;
    half_sent says when that is so. fault: what becomes of every request: a status, ``"html"``, ``"silence"`` or None.
    """

    def __init__(self, repositories: Mapping[str, Mapping[str, Content]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.mains = [COMMIT]
        self.requests: list[str] = []
        self.refused: set[str] = set()
        self.half: str | None = None
        self.half_sent = threading.Event()
        self.fault: int | str | None = None
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Return the variables of a process whose hub this is, with its cache in a folder `home`."""
        without = {"HF_HUB_OFFLINE", "HF_HUB_CACHE", "TRANSFORMERS_OFFLINE"}
        kept = {name: value for name, value in os.environ.items() if name not in without}
        return {**kept, "HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **more}


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        if path == "/api/agent-harnesses":  # which huggingface_hub asks for once a day
            self.answer(404)
            return
        hub.requests.append(path)
        if hub.fault == "silence":
            hub.closing.wait()
        elif hub.fault == "html":
            self.answer(200, b"<html>log in</html>")
        elif hub.fault is not None:
            self.answer(int(hub.fault))
        else:
            self.give(path)

    do_HEAD = do_GET  # noqa: N815

    def give(self, path: str) -> None:
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repository, rest = "/".join(parts[:2]), parts[2:]
        commits = self.server.repositories.get(repository)
        if commits is None:
            self.answer(404, error="RepoNotFound")
            return
        commit = rest[1] if len(rest) > 1 and rest[1] != "main" else self.main()
        content = commits[commit]
        if api:
            listed = [{"rfilename": name} for name in content]
            self.answer(200, json.dumps({"id": repository, "sha": commit, "siblings": listed}).encode(), commit)
        elif rest[2] in content and rest[2] not in self.server.refused:
            self.answer(200, content[rest[2]], commit, half=rest[2] == self.server.half)
        else:
            self.answer(404, error="EntryNotFound")

    def main(self) -> str:
        mains = self.server.mains
        return mains.pop(0) if len(mains) > 1 else mains[0]

    def answer(
        self,
        status: int,
        body: bytes | Path = b"",
        commit: str | None = None,
        error: str | None = None,
        half: bool = False,
    ) -> None:
        length = len(body) if isinstance(body, bytes) else body.stat().st_size
        tag = body if isinstance(body, bytes) else f"{body} {length}".encode()
        headers = {"ETag": f'"{hashlib.sha1(tag).hexdigest()}"', "X-Repo-Commit": commit, "X-Error-Code": error}
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        for name, value in headers.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            whole = body if isinstance(body, bytes) else body.read_bytes()
            self.wfile.write(whole[: length // 2] if half else whole)
            if half:
                self.wfile.flush()
                self.server.half_sent.set()
                self.server.closing.wait()

    def log_message(self, *args: Any) -> None:
        pass


SCRIPT = """
import json, logging, sys
from transept.core.checkpoints import hub
from transept.core.checkpoints.source import locate
from transept.errors import CheckpointError

hub.ANSWER_SECONDS = float(sys.argv[1])
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
for line in sys.stdin:
    name, options = json.loads(line)
    try:
        print(locate(name, **options), flush=True)
    except CheckpointError as error:
        print(error, flush=True)
"""


@contextmanager
def locating(environment: Mapping[str, str], answer_seconds: float = 240.0) -> Iterator[Any]:
    """A function that asks `locate` in a separate process, which reads its environment when it starts.

    answer_seconds: that the hub has to answer. Less than a busy machine takes is for a hub that never does.
    """
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(answer_seconds)],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(name: str, **options: Any) -> str:
            stdin.write(json.dumps([name, options]) + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield ask
        stdin.close()
