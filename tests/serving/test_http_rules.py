"""What HTTP asks of every path: methods, framing, encodings, redirects; and that no query parameter is lost."""

import gzip
import json
import re
import socket

import httpx
import pytest
from serve_process import PATIENCE, ServeProcess

READ = ("/health", "/ready", "/metrics", "/v1/models", "/v1/models/bart", "/openapi.json", "/docs", "/", "/web/main.js")
POSTED = ("/v1/audio/transcriptions", "/v1/audio/translations", "/v1/completions", "/v1/summarize", "/v1/translate")


def raw(server: ServeProcess, request: bytes) -> bytes:
    """Everything that comes back until the server closes the connection."""
    port = httpx.URL(server.url).port
    assert port is not None
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


@pytest.mark.parametrize("path", READ)
def test_head_is_get_without_its_body(path: str, server: ServeProcess) -> None:
    whole, head = server.client.get(path), server.client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    if path != "/metrics":  # which has grown meanwhile
        assert head.headers["content-length"] == whole.headers["content-length"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *(("DELETE", path, "GET, HEAD") for path in READ),
        *((method, path, "POST") for path in POSTED for method in ("GET", "HEAD", "PUT")),
    ],
)
def test_another_method_is_told_which_are_allowed(method: str, path: str, allowed: str, server: ServeProcess) -> None:
    answer = server.client.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    if method != "HEAD":
        assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("second", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"], ids=["alone", "smuggled"])
def test_two_lengths_are_answered_and_the_connection_is_closed(second: bytes, server: ServeProcess) -> None:
    body = json.dumps({"model": "bart", "input": "The rain.", "max_tokens": 3}).encode()
    head = b"POST /v1/summarize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % (len(body) + 12)
    answer = raw(server, head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) + second)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("path", POSTED)
def test_a_compressed_body_is_refused_with_what_is_taken(path: str, server: ServeProcess) -> None:
    content = gzip.compress(b'{"model": "bart", "input": "a"}')
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = httpx.post(server.url + path, content=content, headers=headers, timeout=PATIENCE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_encoding")
    assert answer.headers["accept-encoding"] == "identity"


def test_an_identical_encoding_is_none(server: ServeProcess) -> None:
    body = {"model": "bart", "input": "The rain.", "max_tokens": 3}
    headers = {"Content-Encoding": "identity"}
    assert httpx.post(f"{server.url}/v1/summarize", json=body, headers=headers, timeout=PATIENCE).status_code == 200


@pytest.mark.parametrize(
    "path", ["/health/", "/v1/models/", "/v1/models/bart/", "/v1/audio/transcriptions/", "/web", "/v1/summarize/"]
)
def test_a_slash_too_many_redirects_by_path_alone(path: str, server: ServeProcess) -> None:
    method = "POST" if path.startswith(("/v1/audio", "/v1/summarize")) else "GET"
    answer = server.client.request(method, path, headers={"Host": "inside.example:81"})
    assert answer.status_code == 307
    assert answer.headers["location"] == (f"{path}/" if path == "/web" else path.removesuffix("/"))


@pytest.mark.parametrize(
    ("method", "path"),
    [*(("GET", path) for path in READ[:5]), ("HEAD", "/health"), *(("POST", path) for path in POSTED)],
)
def test_a_query_parameter_is_an_error(method: str, path: str, server: ServeProcess) -> None:
    answer = server.client.request(method, f"{path}?language=de")
    assert answer.status_code == 400
    if method != "HEAD":
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("language", "unknown_parameter")
        assert "in the body" in error["message"]


@pytest.mark.parametrize("path", ["/?utm_source=mail", "/web/main.js?v=1"])
def test_the_pages_files_take_any_query(path: str, server: ServeProcess) -> None:
    assert server.client.get(path).status_code == 200


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://any.example/health", 200),
        ("HTTP://[::1]:80/v1/models/bart", 200),
        ("http://any.example", 200),
        ("http://any.example/secret", 404),
        ("http://any.example/health?x=1", 400),
    ],
)
def test_a_target_with_scheme_and_host_is_taken_by_its_path(target: str, status: int, server: ServeProcess) -> None:
    answer = raw(server, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 %d " % status)


def test_what_is_not_http_is_logged_and_counted(server: ServeProcess) -> None:
    before = server.metrics().get(("transept_http_requests_total", "(unknown)", "400"), 0.0)
    answer = raw(server, b"this is no HTTP\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    request_id = re.search(rb"x-request-id: (\w+)", answer, re.IGNORECASE)
    assert request_id is not None
    assert server.metrics()["transept_http_requests_total", "(unknown)", "400"] == before + 1
    (line,) = [line for line in server.log.read_text().splitlines() if request_id[1].decode() in line]
    logged = json.loads(line)
    assert (logged["status"], logged["path"], logged["method"]) == (400, "(unknown)", "(unknown)")
