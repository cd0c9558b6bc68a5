"""Events that are wrong, keys, origins, limits and the end of `/v1/realtime`, over real sockets in this process."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from patience import PATIENCE, wait_until
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Opcode
from websockets.sync.client import ClientConnection, connect

from transept.serving import connections, server
from transept.serving.http.app import build_app
from transept.serving.settings import ModelSource, ServerSettings

KEY = "secret-key"
HEADERS = {"Authorization": f"Bearer {KEY}"}
SILENCE = base64.b64encode(bytes(4800)).decode()  # 100 ms
APPEND, COMMIT = {"type": "input_audio_buffer.append", "audio": SILENCE}, {"type": "input_audio_buffer.commit"}


class Running:
    """`transept serve` with tiny.en and a key, in a thread. url: with the scheme ws."""

    def __init__(self, model: Path) -> None:
        options = {"threads": 1, "quantization": "int8", "kv_cache_bytes": 64 << 20}
        settings = ServerSettings(
            (ModelSource("tiny.en", str(model)),), api_keys=(KEY,), cors=("https://page.example",), engine=options
        )
        self.app = build_app(settings)
        self.state = self.app.state
        self.server = server.Server(server.configured(self.app), self.state.models, timeout=PATIENCE)
        bound = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{bound.getsockname()[1]}/v1/realtime"
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server._serve([bound])), daemon=True)
        self.thread.start()
        wait_until(lambda: self.state.models.state == "ready")

    def connect(self, query: str = "?intent=transcription", **options: Any) -> ClientConnection:
        """A connection; the caller closes it."""
        return connect(self.url + query, **{"additional_headers": HEADERS, "max_size": None, **options})

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        url = self.url.replace("ws:", "http:").replace("/v1/realtime", path)
        return httpx.post(url, json=body, headers={**HEADERS, **headers}, timeout=PATIENCE)

    def is_idle(self) -> bool:
        """True if no stream is open, no job runs, and no connection is left."""
        (engine,) = self.state.models.engines()
        blocks = engine.engine.block_manager
        nothing = not (self.state.models.streams.num or engine.num_streams or self.server.server_state.connections)
        return nothing and blocks.num_free_device_blocks == blocks.num_device_blocks


@pytest.fixture(scope="module")
def running(tiny_en_dir: Path) -> Iterator[Running]:
    started = Running(tiny_en_dir)
    yield started
    started.server.should_exit = True
    started.thread.join(PATIENCE)


@pytest.fixture
def changed(running: Running) -> Iterator[Callable[..., None]]:
    """Changes settings of the running server, for streams that open from now on."""
    settings = running.state.settings

    def change(**changes: Any) -> None:
        running.state.settings = dataclasses.replace(settings, **changes)

    yield change
    running.state.settings = settings


@pytest.fixture
def stream(running: Running) -> Iterator[ClientConnection]:
    with running.connect() as connection:
        assert received(connection)["type"] == "session.created"
        yield connection


def received(connection: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(connection.recv(PATIENCE))
    return event


def asked(connection: ClientConnection, event: Any) -> dict[str, Any]:
    """The first answer to an event, which may be any message."""
    connection.send(event if isinstance(event, str | bytes) else json.dumps(event))
    return received(connection)


def until_closed(connection: ClientConnection) -> tuple[list[dict[str, Any]], int, str]:
    """The remaining events, and the code and the reason of the end."""
    events: list[dict[str, Any]] = []

    def receive_all() -> None:
        while True:
            events.append(received(connection))

    with pytest.raises(ConnectionClosed) as closed:
        receive_all()
    end = closed.value.rcvd
    assert end is not None
    return events, end.code, end.reason


def update(**audio: Any) -> dict[str, Any]:
    return {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}}


AUDIO = "session.audio.input"


@pytest.mark.parametrize(
    ("event", "param", "code", "says"),
    [
        ("{", None, "invalid_event", "JSON"),
        ("[1]", None, "invalid_event", "object"),
        ("[" * 10_000, None, "invalid_event", "JSON"),
        (b"\x00\x01", None, "invalid_event", "base64"),
        ({}, "type", "invalid_value", "session.update"),
        ({"type": 7}, "type", "invalid_value", "session.update"),
        ({"type": "session.updat"}, "type", "invalid_value", "Did you mean session.update?"),
        ({"type": "response.create"}, "type", "unsupported", "only transcribes"),
        ({"type": "session.update"}, "session", "invalid_value", "object"),
        ({"type": "session.update", "session": {"type": "realtime"}}, "session.type", "invalid_value", "transcription"),
        (update(format={"type": "audio/pcm", "rate": 4}), f"{AUDIO}.format.rate", "invalid_value", "at least 8000"),
        (update(format={"type": "audio/pcmu", "rate": 24000}), f"{AUDIO}.format.rate", "invalid_value", "8000"),
        (update(format={"type": "audio/opus"}), f"{AUDIO}.format.type", "invalid_value", '"audio/pcma"'),
        (update(format="pcm16"), f"{AUDIO}.format", "invalid_value", "24000"),
        (
            update(turn_detection={"type": "semantic_vad"}),
            f"{AUDIO}.turn_detection.type",
            "invalid_value",
            "server_vad",
        ),
        (update(turn_detection={"threshold": 2}), f"{AUDIO}.turn_detection.threshold", "invalid_value", "below 1"),
        (update(transcription={"model": "gpt-4o"}), f"{AUDIO}.transcription.model", "model_not_found", "tiny.en"),
        (update(transcription={"language": "xx"}), f"{AUDIO}.transcription.language", "invalid_value", "en"),
        (update(transcription={"lang": "en"}), f"{AUDIO}.transcription.lang", "invalid_value", "language"),
        (update(transcription={"languages": ["en", "de"]}), f"{AUDIO}.transcription.languages", "invalid_value", "one"),
        ({"type": "session.update", "session": {"include": ["usage"]}}, "session.include", "invalid_value", "logprobs"),
        ({"type": "input_audio_buffer.append"}, "audio", "invalid_value", "base64"),
        ({"type": "input_audio_buffer.append", "audio": [1]}, "audio", "invalid_value", "base64"),
        ({"type": "input_audio_buffer.append", "audio": "%%%"}, "audio", "invalid_media", "base64"),
        (COMMIT, None, "input_audio_buffer_commit_empty", "append"),
    ],
    ids=str,
)
def test_a_wrong_event_is_answered_and_changes_nothing(
    event: Any, param: str | None, code: str, says: str, stream: ClientConnection
) -> None:
    if isinstance(event, dict):
        event = {"event_id": "mine", **event}
    answer = asked(stream, event)
    assert answer["type"] == "error"
    error = answer["error"]
    assert (error["param"], error["code"], error["type"]) == (param, code, error["type"])
    assert error["event_id"] == ("mine" if isinstance(event, dict) else None)
    assert says in error["message"]
    session = asked(stream, update())["session"]
    assert session["audio"]["input"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "transcription": {"model": "tiny.en"},
        "turn_detection": {
            "type": "server_vad",
            "threshold": 0.5,
            "prefix_padding_ms": 300,
            "silence_duration_ms": 500,
        },
        "noise_reduction": None,
    }


def test_an_update_changes_the_named_fields_alone(stream: ClientConnection) -> None:
    found = asked(stream, update(transcription={"prompt": "Austen"}, turn_detection={"silence_duration_ms": 900}))
    found = asked(stream, update(transcription={"language": "en"}, noise_reduction={"type": "near_field"}))
    audio = found["session"]["audio"]["input"]
    assert audio["transcription"] == {"model": "tiny.en", "prompt": "Austen", "language": "en"}
    assert audio["turn_detection"]["silence_duration_ms"] == 900
    assert audio["noise_reduction"] == {"type": "near_field"}
    found = asked(stream, update(turn_detection=None, transcription={"prompt": None}, noise_reduction=None))
    audio = found["session"]["audio"]["input"]
    assert audio["transcription"] == {"model": "tiny.en", "language": "en"}
    assert audio["turn_detection"] is None
    assert audio["noise_reduction"] is None


def test_silence_becomes_an_empty_item_only_if_it_is_committed(stream: ClientConnection) -> None:
    for _ in range(20):
        stream.send(json.dumps(APPEND))
    assert asked(stream, update(turn_detection=None))["type"] == "session.updated"
    assert asked(stream, COMMIT)["error"]["code"] == "input_audio_buffer_commit_empty"
    for _ in range(3):
        stream.send(json.dumps(APPEND))
    stream.send(json.dumps(COMMIT))
    events = [received(stream) for _ in range(4)]
    assert [each["type"].rpartition(".")[2] for each in events] == ["committed", "added", "done", "completed"]
    assert events[-1]["transcript"] == ""
    assert events[-1]["usage"] == {"type": "duration", "seconds": 0.3}


@pytest.mark.parametrize(
    ("headers", "protocols", "status"),
    [
        ({}, None, 401),
        ({"Authorization": "Bearer wrong"}, None, 401),
        ({}, ["realtime", "openai-insecure-api-key.wrong"], 401),
        ({}, ["realtime", "openai-insecure-api-key.ek_x.y"], 401),
        ({**HEADERS, "Origin": "https://other.example"}, None, 403),
        ({}, ["realtime", f"openai-insecure-api-key.{KEY}"], 101),
        ({**HEADERS, "Origin": "https://page.example"}, None, 101),
        (HEADERS, None, 101),
    ],
    ids=str,
)
def test_keys_and_origins(headers: Any, protocols: Any, status: int, running: Running) -> None:
    options = {"additional_headers": headers, "subprotocols": protocols}
    if status == 101:
        with running.connect(**options) as connection:
            assert received(connection)["type"] == "session.created"
            assert connection.subprotocol == (protocols[0] if protocols else None)
        return
    with pytest.raises(InvalidStatus) as refused:
        running.connect(**options)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["error"]["message"]


def test_a_page_of_the_server_itself_may_connect(running: Running) -> None:
    host = running.url.split("/")[2]
    with running.connect(additional_headers={**HEADERS, "Origin": f"http://{host}"}) as connection:
        assert received(connection)["type"] == "session.created"


def test_a_client_secret_opens_sessions_with_its_settings_until_it_expires(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = update(transcription={"language": "en", "prompt": "Austen"}, turn_detection=None)["session"]
    answer = running.post("/v1/realtime/client_secrets", {"session": session, "expires_after": {"seconds": 60}})
    assert answer.status_code == 200
    secret = answer.json()
    assert secret["value"].startswith("ek_")
    assert 0 < secret["expires_at"] - time.time() <= 60
    protocols = ["realtime", f"openai-insecure-api-key.{secret['value']}"]
    with running.connect(additional_headers={}, subprotocols=protocols) as connection:
        audio = received(connection)["session"]["audio"]["input"]
        assert audio["transcription"] == {"model": "tiny.en", "language": "en", "prompt": "Austen"}
        assert audio["turn_detection"] is None
    forbidden = running.post("/v1/format", {}, Authorization=f"Bearer {secret['value']}")
    assert forbidden.status_code == 401
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    with pytest.raises(InvalidStatus) as refused:
        running.connect(additional_headers={"Authorization": f"Bearer {secret['value']}"})
    assert "expired" in json.loads(refused.value.response.body)["error"]["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session": {"type": "realtime"}}, "session.type"),
        ({"session": {"audio": {"input": {"transcription": {"model": "gpt-4o"}}}}}, "model"),
        ({"expires_after": {"seconds": 1}}, "expires_after.seconds"),
        ({"sesion": {}}, "sesion"),
        ({"session": {"audio": {"input": {"transcription": {"prompt": "x" * 9000}}}}}, "session"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_client_secret_is_refused(body: Any, param: str, running: Running) -> None:
    answer = running.post("/v1/realtime/client_secrets", body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param


def test_a_large_body_for_a_client_secret_is_refused_with_its_limit(running: Running) -> None:
    answer = running.post("/v1/realtime/client_secrets", {"session": {"include": ["x" * (64 << 10)]}})
    assert answer.status_code == 413
    assert "larger than 0.0625 MiB" in answer.json()["error"]["message"]


def test_other_paths_take_no_websockets(running: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(running.url.replace("realtime", "models"), additional_headers=HEADERS)
    assert refused.value.response.status_code == 403


def test_plain_http_is_told_to_upgrade(running: Running) -> None:
    answer = httpx.get(running.url.replace("ws:", "http:"), headers=HEADERS, timeout=PATIENCE)
    assert answer.status_code == 426
    assert answer.headers["upgrade"] == "websocket"


@pytest.mark.parametrize(
    ("query", "code"),
    [("?intent=conversation", "invalid_value"), ("?call_id=x", "unknown_parameter"), ("?model=gpt", "model_not_found")],
)
def test_a_wrong_url_is_told_why(query: str, code: str, running: Running) -> None:
    with running.connect(query) as connection:
        events, closed, reason = until_closed(connection)
    assert [each["error"]["code"] for each in events] == [code]
    assert (closed, reason) == (1008, code)


def test_there_is_a_place_for_so_many_streams(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_until(running.is_idle)
    monkeypatch.setattr(running.state.models.streams, "most", 2)
    with running.connect() as first, running.connect() as second:
        assert {received(each)["type"] for each in (first, second)} == {"session.created"}
        with running.connect() as third:
            events, code, _ = until_closed(third)
        assert events[0]["error"]["code"] == "too_many_streams"
        assert "--max-streams" in events[0]["error"]["message"]
        assert code == 1013
        assert asked(first, update())["type"] == "session.updated"
    wait_until(running.is_idle)
    with running.connect() as connection:
        assert received(connection)["type"] == "session.created"


def test_a_server_that_drains_refuses_new_streams_with_the_code_of_its_shutdown(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.state.models, "is_draining", True)
    with running.connect() as connection:
        events, code, _ = until_closed(connection)
    assert [each["error"]["code"] for each in events] == ["draining"]
    assert code == 1001


@pytest.mark.parametrize(
    ("settings", "reason", "code"),
    [({"stream_idle_seconds": 0.3}, "idle_timeout", 1008), ({"max_stream_seconds": 0.3}, "session_expired", 1001)],
)
def test_a_stream_ends_that_is_idle_or_old(
    settings: Any, reason: str, code: int, running: Running, changed: Callable[..., None]
) -> None:
    changed(**settings)
    with running.connect() as connection:
        events, closed, _ = until_closed(connection)
    assert [each["type"] for each in events] == ["session.created", "error"]
    assert (events[-1]["error"]["code"], closed) == (reason, code)
    wait_until(running.is_idle)


def test_giant_messages_close_their_own_connection_alone(running: Running, stream: ClientConnection) -> None:
    length = server.MESSAGE_BYTES + 1
    with running.connect() as giant:
        received(giant)
        giant.socket.sendall(b"\x81\xff" + length.to_bytes(8, "big") + bytes(4))  # the header: a masked text follows
        _, code, _ = until_closed(giant)
        assert code == 1009
    assert asked(stream, update())["type"] == "session.updated"


def test_tiny_packets_and_odd_bytes_are_whole_audio(stream: ClientConnection) -> None:
    asked(stream, update(turn_detection=None))
    stream.send("\n")
    assert received(stream)["error"]["code"] == "invalid_event"
    for _ in range(1600):
        stream.send(json.dumps({**APPEND, "audio": base64.b64encode(bytes(3)).decode()}))
    stream.send(json.dumps({**APPEND, "audio": ""}))
    stream.send(json.dumps(COMMIT))
    completed = [received(stream) for _ in range(4)][-1]
    assert completed["usage"]["seconds"] == 0.1


def test_fifty_clients_come_and_go_at_once_and_leave_nothing(running: Running) -> None:
    """Some speak, some say nothing, some vanish without a word."""
    wait_until(running.is_idle)
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    noise = np.random.default_rng(0).normal(0, 3000, 24_000).astype("<i2").tobytes()
    audio = json.dumps({**APPEND, "audio": base64.b64encode(noise).decode()})

    async def come_and_go(number: int) -> None:
        connection = await connect_async(running.url, additional_headers=HEADERS)
        if number % 2:
            await connection.send(audio)
        if number % 3 == 0:
            await connection.close()
        elif number % 3 == 1:
            await connection.send(json.dumps(COMMIT))
        connection.transport.abort()

    async def all_of_them() -> None:
        await asyncio.gather(*map(come_and_go, range(50)))

    asyncio.run(all_of_them())
    wait_until(running.is_idle)
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files + 2)
    wait_until(lambda: threading.active_count() <= threads + 2)


def test_a_client_that_does_not_read_is_given_up(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.2)
    wait_until(running.is_idle)
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", int(running.url.split(":")[2].split("/")[0])))
    head = "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
    raw.sendall(f"{head}Authorization: Bearer {KEY}\r\n\r\n".encode())
    raw.settimeout(PATIENCE)
    wrong = json.dumps({"type": "session.update", "session": {"x" * 1800: 0}}).encode()  # the answer repeats it
    message = b"\x81\xfe" + len(wrong).to_bytes(2, "big") + bytes(4) + wrong
    with contextlib.suppress(ConnectionError):
        while True:
            raw.sendall(message)
    raw.close()
    wait_until(running.is_idle)


def test_a_ping_that_is_answered_late_closes_no_connection_that_sends(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends but does not answer pings lives on; one that does neither is given up."""
    config = running.server.config
    monkeypatch.setattr(config, "ws_ping_interval", 0.1)
    monkeypatch.setattr(config, "ws_ping_timeout", 1.0)
    with running.connect() as connection:
        send = connection.protocol.send_frame
        monkeypatch.setattr(
            connection.protocol, "send_frame", lambda frame: None if frame.opcode is Opcode.PONG else send(frame)
        )
        received(connection)
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            assert asked(connection, update())["type"] == "session.updated"
            time.sleep(0.05)
        _, code, _ = until_closed(connection)
        assert code == 1011
    wait_until(running.is_idle)


def test_a_shutdown_sends_what_was_heard_and_says_why(tiny_en_dir: Path) -> None:
    own = Running(tiny_en_dir)
    with own.connect() as connection:
        received(connection)
        asked(connection, update(turn_detection=None))
        for _ in range(5):
            connection.send(json.dumps(APPEND))
        connection.send(json.dumps({"type": "a bad one"}))
        assert received(connection)["type"] == "error"  # so all before it is taken
        own.server.handle_exit(15, None)
        events, code, _ = until_closed(connection)
    own.thread.join(PATIENCE)
    assert events[-1]["error"]["code"] == "draining"
    assert code == 1001
    assert own.server.exit_code == server.DONE
