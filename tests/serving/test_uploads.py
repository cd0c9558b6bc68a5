"""Slow uploads: they hold no place in a queue, an address has its share of them, and too slow a client is given up."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import httpx
import pytest
from serve_process import PATIENCE, Serve

from transept.serving.errors import ApiError
from transept.serving.uploads import SLOWEST, UploadPace, Uploads, customer

NUM_SLOW = 100
HEAD = (
    b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
    b"Content-Type: multipart/form-data; boundary=x\r\n\r\n-"
)


def test_clients_that_hardly_send_keep_no_one_from_being_served(
    serve: Serve, tiny_en_dir: Path, speech_dir: Path
) -> None:
    server = serve(f"tiny.en={tiny_en_dir}", "--max-queue", "1", "--max-running", "1", "--upload-timeout", "3600")
    port = int(server.wait_until_ready().url.rpartition(":")[2])
    clip = (speech_dir / "librivox" / "austen-0870.flac").read_bytes()
    with contextlib.ExitStack() as stack:
        for _ in range(NUM_SLOW):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            slow.sendall(HEAD)
        while server.metrics()["transept_uploads",] < NUM_SLOW:
            assert server.process.poll() is None
        for _ in range(3):
            url = f"{server.url}/v1/audio/transcriptions"
            assert httpx.post(url, files={"file": ("a.flac", clip)}, timeout=PATIENCE).status_code == 200
        assert server.metrics()["transept_uploads",] == NUM_SLOW
    server.wait_until_idle()


def test_an_address_is_told_when_it_has_its_share(serve: Serve, tiny_en_dir: Path) -> None:
    server = serve(f"tiny.en={tiny_en_dir}", "--max-uploads", "4", "--upload-timeout", "3600").wait_until_ready()
    port = int(server.url.rpartition(":")[2])
    with contextlib.ExitStack() as stack:
        for number in range(2):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            slow.sendall(HEAD)
            while server.metrics()["transept_uploads",] <= number:
                assert server.process.poll() is None
        url = f"{server.url}/v1/audio/transcriptions"
        refused = httpx.post(url, files={"file": ("a.flac", b"x")}, timeout=PATIENCE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_uploads")
        assert int(refused.headers["retry-after"]) >= 1
        proxied = {"X-Forwarded-For": "203.0.113.7"}  # a proxy on this machine is trusted
        answer = httpx.post(url, files={"file": ("a.flac", b"x")}, headers=proxied, timeout=PATIENCE)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_media")


def test_an_address_may_hold_as_many_as_it_leaves_free() -> None:
    uploads, held = Uploads(16), contextlib.ExitStack()

    def take_all(address: str) -> int:
        count = 0
        with contextlib.suppress(ApiError):
            while True:
                held.enter_context(uploads.place(address))
                count += 1
        return count

    assert [take_all(f"192.0.2.{number}") for number in range(5)] == [8, 4, 2, 1, 1]
    with pytest.raises(ApiError, match="16 uploads are in progress, 0 of them from this address"):
        held.enter_context(uploads.place("192.0.2.9"))
    held.close()
    assert uploads.num == 0
    assert take_all("192.0.2.9") == 8


def test_a_client_is_an_address_or_a_network_of_ipv6() -> None:
    assert customer("192.0.2.1") == customer("::ffff:192.0.2.1") != customer("192.0.2.2")
    assert customer("2001:db8::1") == customer("2001:db8::ffff:1") != customer("2001:db8:0:1::1")
    assert customer("fe80::1%eth0") == customer("fe80::2")
    assert customer("") == ""


@pytest.mark.parametrize("sent_before", [0, 500 << 20])
def test_a_drip_is_given_up_however_much_came_before_it(sent_before: int) -> None:
    pace = UploadPace(30.0)
    pace.came(sent_before, 1.0)
    seconds = 0
    while pace.seconds_left >= 1:  # the wait for the next byte
        pace.came(1, 1.0)
        seconds += 1
    assert seconds in (29, 30)


def test_a_steady_upload_and_a_pause_are_let_be() -> None:
    pace = UploadPace(30.0)
    for _ in range(10_000):
        pace.came(SLOWEST, 1.0)
        assert pace.seconds_left == 30
    pace.came(SLOWEST * 29, 29.0)
    assert pace.seconds_left == 30
