"""Forms as clients write them: empty fields, a preamble, and file names in RFC 5987's encoding alone."""

from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess

from transept.serving.http.transcriptions import FIELDS

BOUNDARY = "of-the-tests"
LISTS = ("timestamp_granularities", "include", "keywords", "languages")


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> bytes:
    return (speech_dir / "librivox" / "austen-0870.flac").read_bytes()


def part(disposition: str, value: bytes) -> bytes:
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n"
    return head.encode() + value + b"\r\n"


def send(
    server: ServeProcess, parts: Sequence[bytes], preamble: bytes = b"", path: str = "/v1/audio/transcriptions"
) -> httpx.Response:
    content = preamble + b"".join(parts) + f"--{BOUNDARY}--\r\nAn epilogue.\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return httpx.post(server.url + path, content=content, headers=headers, timeout=PATIENCE)


def text_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["text"])


@pytest.fixture(scope="module")
def plain(server: ServeProcess, clip: bytes) -> str:
    text = text_of(send(server, [part('name="file"; filename="a.flac"', clip)]))
    assert text.startswith("And Mr. John Dashwood")
    return text


def test_all_fields_empty_is_none_of_them(server: ServeProcess, clip: bytes, plain: str) -> None:
    names = [name for name in FIELDS if name != "file"]
    assert len(names) > 30
    parts = [part(f'name="{name}"', b"") for name in (*names, *(f"{name}[]" for name in LISTS))]
    parts += [part('name="chunking_strategy[type]"', b""), part('name="vad_options[threshold]"', b" ")]
    assert text_of(send(server, [*parts, part('name="file"; filename="a.flac"', clip)])) == plain


def test_an_empty_value_beside_a_full_one_is_left_out(server: ServeProcess, clip: bytes) -> None:
    fields = {"model": ["", "tiny.en"], "response_format": "verbose_json", "timestamp_granularities[]": ["", "word"]}
    answer = httpx.post(
        f"{server.url}/v1/audio/transcriptions", files={"file": clip}, data=fields, timeout=PATIENCE
    ).json()
    assert "words" in answer
    assert "segments" not in answer


def test_empty_fields_of_another_name_are_unknown(server: ServeProcess, clip: bytes) -> None:
    answer = send(server, [part('name="temprature"', b""), part('name="file"; filename="a.flac"', clip)])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_field")


def test_a_file_field_without_a_chosen_file_is_missing(server: ServeProcess) -> None:
    answer = send(server, [part('name="file"; filename=""', b"")])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "missing_file")


@pytest.mark.parametrize(
    "preamble",
    [
        b"\r\n",
        b"This is a message of several parts.\r\n",
        f"Not a boundary: --{BOUNDARY}\r\n".encode(),
        b"x" * 20_000 + b"\r\n",
    ],
    ids=["blank", "a line", "a boundary within a line", "long"],
)
def test_a_preamble_is_left_out(preamble: bytes, server: ServeProcess, clip: bytes, plain: str) -> None:
    assert text_of(send(server, [part('name="file"; filename="a.flac"', clip)], preamble)) == plain


def test_a_body_without_a_boundary_is_told_early(server: ServeProcess) -> None:
    answer = send(server, [], b"x" * 500_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_body")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("utf-8''besprechung%20%C3%BC%22.flac", 'besprechung ü".flac'),
        ("ISO-8859-1'en'f%fcnf.flac", "fünf.flac"),
        ("\"UTF-8''a.flac\"", "a.flac"),
        ("x-unknown''a.flac", "a.flac"),
    ],
)
def test_an_extended_file_name_alone_names_a_file(
    name: str, read: str, server: ServeProcess, clip: bytes, plain: str
) -> None:
    assert text_of(send(server, [part(f'name="file"; filename*={name}', clip)])) == plain
    answer = send(server, [part(f'name="file"; filename*={name}', b"no audio")])
    assert answer.status_code == 400
    assert f'"{read}"' in answer.json()["error"]["message"]


def test_the_plain_file_name_goes_before_the_extended_one(server: ServeProcess) -> None:
    answer = send(server, [part('name="file"; filename="plain.flac"; filename*=utf-8\'\'other.flac', b"no audio")])
    assert '"plain.flac"' in answer.json()["error"]["message"]
