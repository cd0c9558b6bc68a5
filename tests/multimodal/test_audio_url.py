"""Audio behind URLs: from a real server on this machine, and only where an AudioUrl says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile

from transept.errors import MediaError
from transept.multimodal.audio import load_audio
from transept.multimodal.audio_url import AudioUrl

SECONDS = 3


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        name = self.path.strip("/")
        content = self.server.content.get(name.removeprefix("half-").removeprefix("stuck-"))
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if content is not None:
            self.wfile.write(content if name in self.server.content else content[: len(content) // 2])
        if name.startswith("stuck-"):
            self.wfile.flush()
            self.server.closing.wait()

    def log_message(self, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    """content: by name; ``half-NAME`` gives half of it, ``stuck-NAME`` half of it and then nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.content: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.closing = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server()
    for name in ("a.wav", "a.flac", "a.mp3"):
        samples = np.random.default_rng(0).uniform(-0.5, 0.5, 16_000 * SECONDS)
        soundfile.write(tmp_path / name, samples, 16_000)
        server.content[name] = (tmp_path / name).read_bytes()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.mp3"])
def test_a_url_is_the_file_behind_it(name: str, server: Server, tmp_path: Path) -> None:
    fetched = load_audio(AudioUrl(server.url(name)))
    np.testing.assert_allclose(fetched, load_audio(tmp_path / name), atol=1e-6)


def test_a_string_is_a_path_and_nothing_is_fetched(server: Server) -> None:
    with pytest.raises(MediaError, match="Pass the path of a local file"):
        load_audio(server.url("a.wav"))
    assert server.requests == []


@pytest.mark.parametrize("name", ["half-a.wav", "half-a.flac", "half-a.mp3"])
def test_one_that_breaks_off_is_no_recording(name: str, server: Server) -> None:
    with pytest.raises(MediaError, match=f'{name}" cannot be read: Input/output error'):
        load_audio(AudioUrl(server.url(name)))


def test_one_that_is_stuck_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPEN_SECONDS", "READ_SECONDS"):
        monkeypatch.setattr(f"transept.multimodal.audio_url.{name}", 0.3)
    with pytest.raises(MediaError, match="cannot be read: the server sent no data in time"):
        load_audio(AudioUrl(server.url("stuck-a.wav")))


def test_one_that_is_not_there(server: Server) -> None:
    with pytest.raises(MediaError, match=r"nowhere.wav\" cannot be read: .*404"):
        load_audio(AudioUrl(server.url("nowhere.wav")))
    with pytest.raises(MediaError, match="cannot be read: Connection refused"):
        load_audio(AudioUrl("http://127.0.0.1:9/a.wav"))


def test_limits_hold(server: Server) -> None:
    with pytest.raises(MediaError, match="is longer than the 1 seconds of max_audio_seconds"):
        load_audio(AudioUrl(server.url("a.wav")), max_audio_seconds=1)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "concat:a|b", "pipe:0", "data:audio/wav;base64,x", "a.wav", ""])
def test_what_is_no_address_of_a_network(url: str) -> None:
    with pytest.raises(MediaError, match="cannot be fetched: a URL begins with one of http, https"):
        AudioUrl(url)


def test_a_playlist_leads_to_no_file_of_this_machine(server: Server, tmp_path: Path) -> None:
    lines = ["#EXTM3U", "#EXT-X-TARGETDURATION:3", "#EXTINF:3,", "", "#EXT-X-ENDLIST"]
    for line in ((tmp_path / "a.mp3").as_uri(), server.url("a.mp3")):
        lines[3] = line
        server.content["list.m3u8"] = "\n".join(lines).encode()
        if line.startswith("file:"):
            with pytest.raises(MediaError):
                load_audio(AudioUrl(server.url("list.m3u8")))
        else:
            assert len(load_audio(AudioUrl(server.url("list.m3u8")))) >= 16_000 * SECONDS
