"""Uploads that cannot be kept: the client is told what to do, nothing of the upload stays, and the server goes on."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serve_process import PATIENCE, Serve, ServeProcess

from transept.serving.errors import ApiError
from transept.serving.http.forms import kept

MIB = 1 << 20
NOISE = b"no audio at all " * (8 * MIB // 16)  # more than is kept in memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of another process are Linux's")


def send(server: ServeProcess, num_bytes: int) -> httpx.Response:
    file = ("a.flac", NOISE[:num_bytes])
    return httpx.post(f"{server.url}/v1/audio/transcriptions", files={"file": file}, timeout=PATIENCE)


def check_refused(server: ServeProcess, folder: Path) -> None:
    """Send what does not fit, twice, then what does."""
    for _ in range(2):
        answer = send(server, 8 * MIB)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (507, "disk_full", "server_error")
        assert "send a smaller file" in error["message"]
        assert str(folder) not in error["message"]
        assert int(answer.headers["retry-after"]) >= 1
        assert send(server, 100).status_code == 400  # not audio
        assert send(server, 2 * MIB).status_code == 400
    server.wait_until_idle()
    log = server.log.read_text()
    assert f"an upload could not be stored in {folder}" in log
    assert "Traceback" not in log


def test_an_upload_larger_than_files_may_be_is_refused(serve: Serve, tiny_en_dir: Path) -> None:
    server = serve(f"tiny.en={tiny_en_dir}").wait_until_ready()
    num_files = server.num_open_files()
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4 * MIB, resource.RLIM_INFINITY))
    check_refused(server, server.folder / "tmp")
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert send(server, 8 * MIB).status_code == 400
    server.wait_until_idle()
    assert server.num_open_files() <= num_files + 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB, where tests may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={4 * MIB}", "transept-test", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("file systems are mounted by the administrator")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_told(serve: Serve, small_disk: Path, tiny_en_dir: Path) -> None:
    server = serve(f"tiny.en={tiny_en_dir}", environment={"TMPDIR": str(small_disk)}).wait_until_ready()
    check_refused(server, small_disk)
    assert not list(small_disk.iterdir())
    server.stop()


def test_too_many_open_files_are_told_apart(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as stack:
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with pytest.raises(ApiError, match="too many open files") as refused, kept():
            (tmp_path / "upload").write_bytes(b"")
    assert refused.value.status == 503


def test_other_failures_are_left_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), kept():
        (tmp_path / "none" / "upload").write_bytes(b"")
