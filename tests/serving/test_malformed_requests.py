"""Requests that are wrong in a hundred ways: each is answered with a 4xx in OpenAI's shape, and soon."""

import contextlib
import io
import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile
from serve_process import PATIENCE, ServeProcess

LONGEST = 2.0  # seconds of processor time that an answer may take, whatever else the machine does
MAX_SECONDS = 60  # of audio
MAX_UPLOAD_MIB = 4
BOUNDARY = "----of-the-tests"
SPEECH, TRANSLATIONS = "/v1/audio/transcriptions", "/v1/audio/translations"
TYPES = {"invalid_request_error", "not_found_error", "timeout_error"}


@dataclass(frozen=True)
class Case:
    """A request: its bytes behind the head's first lines."""

    path: str
    body: bytes = b""
    content_type: str | None = "application/json"
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    length: str | None = None  # in place of the body's own

    def to_bytes(self) -> bytes:
        headers = [("Host", "x"), ("Connection", "close"), *self.headers]
        if self.content_type is not None:
            headers.append(("Content-Type", self.content_type))
        if not any(name == "Transfer-Encoding" for name, _ in headers):
            headers.append(("Content-Length", str(len(self.body)) if self.length is None else self.length))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"{self.method} {self.path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + self.body


def wave(seconds: float = 0.2, rate: int = 16000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.zeros(int(seconds * rate), np.float32), rate, format="FLAC")
    return file.getvalue()


CLIP = wave()


def part(name: str, value: bytes | str, file_name: str | None = None, more: str = "") -> bytes:
    file = "" if file_name is None else f'; filename="{file_name}"'
    value = value.encode() if isinstance(value, str) else value
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\n{more}\r\n'
    return head.encode("utf-8", "surrogateescape") + value + b"\r\n"


def form(*parts: bytes, path: str = SPEECH, end: bytes = f"--{BOUNDARY}--\r\n".encode(), **more: Any) -> Case:
    return Case(path, b"".join(parts) + end, f"multipart/form-data; boundary={BOUNDARY}", **more)


def fields(file: bytes | None = CLIP, path: str = SPEECH, **values: str | list[str]) -> Case:
    parts = [] if file is None else [part("file", file, "a.flac")]
    for name, value in values.items():
        parts += [part(name, each) for each in (value if isinstance(value, list) else [value])]
    return form(*parts, path=path)


def body(path: str, value: Any) -> Case:
    return Case(path, value if isinstance(value, bytes) else json.dumps(value).encode())


def riff(num_bytes: int, rate: int = 16000, channels: int = 1, bits: int = 16) -> bytes:
    """A WAV that says it has so many bytes of samples, and has none."""
    block = channels * bits // 8
    layout = struct.pack(
        "<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, (rate * block) & 0xFFFFFFFF, block & 0xFFFF, bits
    )
    return b"RIFF" + struct.pack("<I", 36) + b"WAVE" + layout + b"data" + struct.pack("<I", num_bytes)


TEXT = "/v1/completions"
MULTIPART = {
    "no body": form(end=b""),
    "no boundary": Case(SPEECH, b"x", "multipart/form-data"),
    "another boundary": Case(SPEECH, part("file", CLIP, "a"), "multipart/form-data; boundary=other"),
    "an empty boundary": Case(SPEECH, part("file", CLIP, "a"), "multipart/form-data; boundary="),
    "a long boundary": Case(SPEECH, b"--" + b"x" * 5000, "multipart/form-data; boundary=" + "x" * 5000),
    "no end": form(part("file", CLIP, "a.flac")[:-20], end=b""),
    "bytes that are no form": form(bytes(range(256)) * 20, end=b""),
    "a part without a name": form(f"--{BOUNDARY}\r\nContent-Disposition: form-data\r\n\r\nx\r\n".encode()),
    "a part without a head": form(f"--{BOUNDARY}\r\n\r\nx\r\n".encode()),
    "a part with a broken head": form(f"--{BOUNDARY}\r\nContent-Disposition\x00: \r\n\r\nx\r\n".encode()),
    "two files": form(part("file", CLIP, "a.flac"), part("other", CLIP, "b.flac")),
    "the same file twice": form(part("file", CLIP, "a.flac"), part("file", CLIP, "b.flac")),
    "a file without a name": form(part("file", CLIP)),
    "a thousand fields": fields(**{f"field{number}": "x" for number in range(1000)}),
    "a huge field": fields(prompt="x" * (2 << 20)),
    "a huge name": form(part("n" * (1 << 20), "x"), part("file", CLIP, "a.flac")),
    "a huge head of a part": form(part("file", CLIP, "a.flac", f"X-Y: {'z' * (1 << 20)}\r\n")),
    "json": Case(SPEECH, b"{}"),
    "plain text": Case(SPEECH, b"x", "text/plain"),
    "no type": Case(SPEECH, b"x", None),
    "form-urlencoded": Case(SPEECH, b"file=x&model=tiny.en", "application/x-www-form-urlencoded"),
    "model is a file": form(part("file", CLIP, "a.flac"), part("model", b"x", "m")),
    "file is a text": form(part("file", "x")),
    "a charset that is none": Case(
        SPEECH, part("file", b"x", "a"), f"multipart/form-data; boundary={BOUNDARY}; charset=x"
    ),
    "not utf-8": form(part("file", CLIP, "a.flac"), part("language", b"\xff\xfe")),
    "a nul in a field": fields(language="e\0n"),
    "too large": form(part("file", bytes((MAX_UPLOAD_MIB << 20) + 1), "a.flac")),
    "says it is too large": form(part("file", CLIP, "a.flac"), length=str(1 << 40)),
    "chunks that are too large": Case(
        SPEECH,
        b"".join(b"100000\r\n" + bytes(1 << 20) + b"\r\n" for _ in range(MAX_UPLOAD_MIB + 1)) + b"0\r\n\r\n",
        f"multipart/form-data; boundary={BOUNDARY}",
        headers=(("Transfer-Encoding", "chunked"),),
    ),
    "chunks that are none": Case(SPEECH, b"xyz\r\n", None, headers=(("Transfer-Encoding", "chunked"),)),
}
NAMES = {
    f"the name {name!r}": form(part("file", b"no audio", name))
    for name in (
        "../../../etc/passwd",
        "/etc/passwd",
        "..\\..\\windows\\system32",
        "/dev/zero",
        "/proc/self/mem",
        "a\0b.wav",
        "concat:/etc/passwd|/etc/passwd",
        "http://127.0.0.1/a.wav",
        "x" * 10_000,
        "\u202eflac.a",
        "$(reboot).wav",
        "-i",
        "",
    )
}
AUDIO = {
    "empty": fields(b""),
    "noise": fields(np.random.default_rng(0).bytes(100_000)),
    "text": fields(b"hello, this is no audio\n" * 100),
    "a picture's head": fields(b"\x89PNG\r\n\x1a\n" + bytes(5000)),
    "half a flac": fields(CLIP[: len(CLIP) // 2]),
    "a wav of 4 GiB that has none": fields(riff(0xFFFFFFFF)),
    "a wav at a rate of 4 GHz": fields(riff(2000, rate=0xFFFFFFFF) + bytes(2000)),
    "a wav at a rate of 0": fields(riff(2000, rate=0) + bytes(2000)),
    "a wav of 65535 channels": fields(riff(2000, channels=65535) + bytes(2000)),
    "a wav of 0 channels": fields(riff(2000, channels=0) + bytes(2000)),
    "a bomb of silence": fields(wave(MAX_SECONDS * 30)),
    "a bomb of silence at 8 kHz": fields(wave(MAX_SECONDS * 30, 8000)),
    "a playlist": fields(b"#EXTM3U\n#EXTINF:10,\nfile:///etc/passwd\n"),
    "a concat script": fields(b"ffconcat version 1.0\nfile '/etc/passwd'\n"),
    "a dash manifest": fields(b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>'),
    "xml": fields(b'<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><x>&c;</x>'),
    "a zip": fields(b"PK\x03\x04" + bytes(2000)),
}
VALUES = {
    f"{name}={value!r}"[:60]: fields(**{name: value})
    for name, value in (
        ("model", "none"),
        ("model", "../tiny.en"),
        ("model", "t5"),
        ("model", ["tiny.en", "tiny.en"]),
        ("model", "m" * 100_000),
        ("language", "xx"),
        ("language", "de"),
        ("response_format", "xml"),
        ("response_format", "srt\r\nX-Injected: 1"),
        ("temperature", "hot"),
        ("temperature", "-1"),
        ("temperature", "nan"),
        ("temperature", "1e999"),
        ("temperature", "9" * 10_000),
        ("timestamp_granularities[]", "char"),
        ("include[]", "everything"),
        ("stream", "maybe"),
        ("chunking_strategy", "{"),
        ("chunking_strategy", "[" * 100_000),
        ("chunking_strategy", '{"type": "server_vad", "threshold": "x"}'),
        ("chunking_strategy", '{"type": "client_vad"}'),
        ("beam_size", "0"),
        ("beam_size", "1.5"),
        ("beam_size", "1" * 5000),
        ("best_of", "-1"),
        ("best_of", "1000"),
        ("beam_size", "1000"),
        ("vad", "perhaps"),
        ("vad_options", "[]"),
        ("vad_options", '{"x": 1}'),
        ("max_line_width", "-5"),
        ("clip_timestamps", "a,b"),
        ("suppress_tokens", "1,x"),
        ("known_speaker_references[]", "me"),
    )
}
JSON = {
    "nothing": body(TEXT, b""),
    "half an object": body(TEXT, b'{"prompt": "a"'),
    "a list": body(TEXT, []),
    "a number": body(TEXT, 5),
    "not utf-8": body(TEXT, b'{"prompt": "\xff"}'),
    "utf-16": body(TEXT, '{"prompt": "a"}'.encode("utf-16")),
    "nan": body(TEXT, b'{"prompt": "a", "temperature": NaN}'),
    "infinity": body(TEXT, b'{"prompt": "a", "temperature": -Infinity}'),
    "a name twice": body(TEXT, b'{"prompt": "a", "prompt": "b"}'),
    "deep lists": body(TEXT, b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep objects": body(TEXT, b'{"prompt": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}"),
    "a huge integer": body(TEXT, b'{"prompt": "a", "max_tokens": ' + b"9" * 5000 + b"}"),
    "a large integer": body(TEXT, {"prompt": "a", "max_tokens": 10**100}),
    "empty objects": body(TEXT, b'{"prompt": [' + b"{}," * 300_000 + b"{}]}"),
    "half a surrogate pair": body(TEXT, b'{"model": "t5", "prompt": "\\ud800"}'),
    "half a surrogate pair as the model": body(TEXT, b'{"model": "\\ud800", "prompt": "a"}'),
    "half a surrogate pair as a field": body(TEXT, b'{"\\ud800": 1, "prompt": "a"}'),
    "half a surrogate pair to stop at": body(TEXT, b'{"prompt": "a", "stop": "\\ud800"}'),
    "an unknown field": body(TEXT, {"prompt": "a", "tempature": 1}),
    "a huge field's name": body(TEXT, {"x" * 1_000_000: 1}),
    "another type": Case(TEXT, b'{"prompt": "a"}', "text/plain"),
    "no type": Case(TEXT, b'{"prompt": "a"}', None),
    "a form": fields(path=TEXT),
    "prompt is an object": body(TEXT, {"prompt": {}}),
    "prompt is a list of lists of texts": body(TEXT, {"prompt": [["a"]]}),
    "prompt is negative": body(TEXT, {"prompt": [-1]}),
    "prompt is empty": body(TEXT, {"prompt": []}),
    "many prompts": body(TEXT, {"prompt": ["a"] * 300_000}),
    "a wrong model": body(TEXT, {"model": ["t5"], "prompt": "a"}),
    "beams without end": body(TEXT, {"prompt": "a", "num_beams": 1 << 30}),
    "a wrong bias": body(TEXT, {"prompt": "a", "logit_bias": {"a": "b"}}),
    "a bias of what is no token": body(TEXT, {"prompt": "a", "logit_bias": {"99999999": 1}}),
    "stop is a number": body(TEXT, {"prompt": "a", "stop": 1}),
    "bad words that are none": body(TEXT, {"prompt": "a", "bad_words_ids": [[[1]]]}),
    "python objects": body(TEXT, {"prompt": "a", "prompt_probe": {}}),
    "a summary of nothing": body("/v1/summarize", {}),
    "a summary of an empty text": body("/v1/summarize", {"input": ""}),
    "a summary with languages": body("/v1/summarize", {"input": "a", "target": "de"}),
    "a translation of numbers": body("/v1/translate", {"input": [1, 2]}),
    "a translation to nowhere": body("/v1/translate", {"input": "a", "source": "en", "target": "nowhere"}),
    "a file of no format": body("/v1/format", {"segments": []}),
    "a file of no segments": body("/v1/format", {"format": "srt"}),
    "a file of words without times": body("/v1/format", {"format": "srt", "segments": [], "max_line_width": "a"}),
    "a file of a time without end": Case("/v1/format", b'{"format": "srt", "segments": [{"start": 1e999}]}'),
    "more than 8 MiB": body("/v1/summarize", {"input": "a" * (9 << 20)}),
}
PATHS = {
    "an unknown path": Case("/v1/nothing", b"{}"),
    "an unknown model": Case("/v1/models/none", method="GET", content_type=None),
    "up and out": Case("/web/../../settings.py", method="GET", content_type=None),
    "up and out, escaped": Case("/web/%2e%2e/%2e%2e/settings.py", method="GET", content_type=None),
    "up and out, escaped twice": Case("/web/%252e%252e/settings.py", method="GET", content_type=None),
    "a nul in the path": Case("/web/a%00b", method="GET", content_type=None),
    "a model up and out": Case("/v1/models/../../etc/passwd", method="GET", content_type=None),
    "another method": Case(SPEECH, method="GET", content_type=None),
    "a method that is none": Case(SPEECH, method="BREW", content_type=None),
    "delete": Case("/v1/models/tiny.en", method="DELETE", content_type=None),
    "two lengths": Case(TEXT, b"{}", headers=(("Content-Length", "5"),)),
    "a length that is none": Case(TEXT, b"{}", length="abc"),
    "a negative length": Case(TEXT, b"{}", length="-1"),
    "a huge head": Case(TEXT, b"{}", headers=(("X-Long", "x" * 100_000),)),
    "a translation by a model that has none": fields(path=TRANSLATIONS),
    "a translation without a file": fields(None, path=TRANSLATIONS),
}
CASES = {
    f"{kind}: {name}": case
    for kind, cases in (
        ("multipart", MULTIPART),
        ("name", NAMES),
        ("audio", AUDIO),
        ("value", VALUES),
        ("json", JSON),
        ("path", PATHS),
    )
    for name, case in cases.items()
}


# Case -> the field at fault, which its message names.
FIELDS = {f"value: {name}": name.partition("=")[0] for name in VALUES} | {
    'value: chunking_strategy=\'{"type": "client_vad"}\'': "chunking_strategy.type",
    "json: an unknown field": "tempature",
    "json: a large integer": "max_tokens",
    "json: prompt is an object": "prompt",
    "json: prompt is empty": "prompt",
    "json: a wrong model": "model",
    "json: beams without end": "num_beams",
    "json: a wrong bias": "logit_bias",
    "json: a bias of what is no token": "logit_bias",
    "json: stop is a number": "stop",
    "json: bad words that are none": "bad_words_ids",
    "json: python objects": "prompt_probe",
    "json: a summary of nothing": "input",
    "json: a summary with languages": "target",
    "json: a translation of numbers": "input[0]",
    "json: a translation to nowhere": "target",
}


@pytest.fixture(scope="module")
def strict(tiny_en_dir: Path, t5_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    limits = ("--max-audio-seconds", str(MAX_SECONDS), "--max-upload-mb", str(MAX_UPLOAD_MIB))
    folder = tmp_path_factory.mktemp("strict")
    server = ServeProcess(folder, f"tiny.en={tiny_en_dir}", f"t5={t5_dir}", *limits, "--upload-timeout", "0.5")
    yield server.wait_until_ready()
    server.stop()


def exchange(server: ServeProcess, request: bytes) -> tuple[bytes, bytes, float]:
    """Send bytes: the answer's head and body, and the seconds of processor time that the server took for them."""
    process = psutil.Process(server.process.pid)
    before = sum(process.cpu_times()[:2])
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    received = b""
    with socket.create_connection(address, timeout=PATIENCE) as client:
        with contextlib.suppress(ConnectionError):  # answered before all of it was read
            client.sendall(request)
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(1 << 16):
                received += piece
                head, found, rest = received.partition(b"\r\n\r\n")
                if found and len(rest) >= length_of(head):
                    break
    head, _, rest = received.partition(b"\r\n\r\n")
    return head, rest, sum(process.cpu_times()[:2]) - before


def length_of(head: bytes) -> int:
    lines = [line.lower() for line in head.split(b"\r\n")]
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 1 << 40)


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_request_is_answered_in_openais_shape(name: str, strict: ServeProcess) -> None:
    head, rest, seconds = exchange(strict, CASES[name].to_bytes())
    status = int(head.split(b" ", 2)[1])
    assert 400 <= status < 500, rest
    error = json.loads(rest)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert len(error["message"]) < 3000
    assert error["type"] in TYPES
    assert b"X-Injected" not in head
    if (field := FIELDS.get(name)) is not None:
        assert error["param"] in (field, f"{field}.x", f"{field}.threshold")
        assert field in error["message"]
    assert "Traceback" not in error["message"]
    assert "/tmp" not in error["message"]
    assert seconds < LONGEST


def test_there_are_a_hundred() -> None:
    assert len(CASES) >= 100


def test_afterwards_nothing_is_left_and_the_server_works(strict: ServeProcess, speech_dir: Path) -> None:
    strict.wait_until_idle()
    clip = speech_dir / "librivox" / "austen-0870.flac"
    head, rest, _ = exchange(strict, fields(clip.read_bytes(), model="tiny.en").to_bytes())
    assert head.startswith(b"HTTP/1.1 200 ")
    assert json.loads(rest)["text"].startswith("And Mr. John Dashwood")
    log = strict.log.read_text()
    assert "Traceback" not in log
    assert "/etc/passwd" not in log
