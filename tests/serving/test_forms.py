"""Forms as clients write them: empty fields, a preamble, and file names in RFC 5987's encoding alone."""

from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess

from transept.serving.http.transcription_fields import BODY

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
    names = [name for name in BODY.fields if name != "file"]
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


TEXT_FIELD = part('name="prompt"', b"x" * ((1 << 20) + 1))


@pytest.mark.parametrize(
    ("parts", "param", "message"),
    [
        (
            [part('name="file"; filename="a"', b"a"), part('name="file"; filename="b"', b"b")],
            "file",
            "more than one file",
        ),
        (
            [part('name="language"; filename="l.txt"', b"en"), part('name="file"; filename="a"', b"a")],
            "language",
            "language was sent as a file",
        ),
        ([part(f'name="field-{number}"', b"a") for number in range(201)], None, "more than 200 fields"),
        ([TEXT_FIELD], None, "a field of the form is larger than 1024 KiB"),
        ([part('filename="a"', b"a")], None, "a part of the form has no name"),
        (
            [f"--{BOUNDARY}\r\nno header\r\n\r\n".encode()],
            None,
            "the form cannot be read: check that each part begins with the boundary",
        ),
    ],
    ids=["two files", "two fields with files", "fields", "large", "nameless", "broken"],
)
def test_a_form_that_cannot_be_read_says_what_would_work(
    parts: Sequence[bytes], param: str | None, message: str, server: ServeProcess
) -> None:
    answer = send(server, parts)
    told = answer.json()["error"]
    assert (answer.status_code, told["code"], told["param"]) == (400, "invalid_body", param)
    assert message in told["message"]
    assert "Maximum" not in told["message"]


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("multipart/form-data", b"x", "names no boundary"),
        ("multipart/form-data; boundary=" + "x" * 300, b"x", "the form cannot be read"),
        ("application/x-www-form-urlencoded", b"&".join([b"a=b"] * 201), "more than 200 fields"),
        ("application/x-www-form-urlencoded", b"prompt=" + b"x" * (1 << 21), "larger than 1024 KiB"),
    ],
)
def test_other_broken_forms_say_what_would_work(kind: str, body: bytes, message: str, server: ServeProcess) -> None:
    url = f"{server.url}/v1/audio/transcriptions"
    answer = httpx.post(url, content=body, headers={"Content-Type": kind}, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_body")
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"input": }', "the body is not valid JSON: expected value at line 1 column 11: send one JSON object"),
        (b"", "the body is not valid JSON: EOF while parsing a value at line 1 column 0: send"),
        (b'{"input": "a"} {}', "trailing characters at line 1 column 16"),
        (b'{"input": "a", "input": "b"}', 'duplicate key "input" at line 1 column 24'),
        (b'{"temperature": NaN}', "expected value at line 1 column 17"),
        (b'{"seed": ' + b"9" * 5000 + b"}", "number out of range"),
        (b'{"input": "\\ud800"}', "unexpected end of hex escape at line 1 column 18"),
    ],
    ids=["no value", "empty", "two", "twice", "NaN", "digits", "half a pair"],
)
def test_broken_json_says_where(body: bytes, message: str, server: ServeProcess) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{server.url}/v1/summarize", content=body, headers=headers, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_body")
    assert message in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("utf-8''besprechung%20%C3%BC%22.flac", 'besprechung ü".flac'),
        ("ISO-8859-1'en'f%fcnf.flac", "fünf.flac"),
        ("\"UTF-8''a.flac\"", "a.flac"),
        ("x-unknown''a.flac", "a.flac"),
        ("idna''x%ff", "x%ff"),
        ("undefined''x", "x"),
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
