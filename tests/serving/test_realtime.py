"""`/v1/realtime` as OpenAI's own clients use it, unmodified: Python's here, JavaScript's in `realtime_client.mjs`."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
import soxr
from openai.types.realtime import RealtimeServerEvent
from patience import PATIENCE, wait_until
from pydantic import TypeAdapter
from serve_process import ServeProcess
from websockets.asyncio.client import connect

from transept.speech.word_errors import word_error_rate

TEXT = "Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them."
RATE = 24_000
TRANSCRIPTION = {"intent": "transcription"}
OF_ITEM = "conversation.item.input_audio_transcription"
LOGPROBS = "item.input_audio_transcription.logprobs"


@pytest.fixture(scope="module")
def speech(clip: Path) -> np.ndarray:
    """A sentence and a second of silence, 24 kHz."""
    samples, rate = soundfile.read(clip, dtype="float32")
    return np.concatenate([soxr.resample(samples, rate, RATE), np.zeros(RATE, np.float32)])


def packets(samples: np.ndarray, seconds: float = 0.1) -> Iterator[str]:
    """Base64 of 16-bit samples."""
    data, size = (samples * 32767).astype("<i2").tobytes(), int(seconds * RATE) * 2
    for begin in range(0, len(data), size):
        yield base64.b64encode(data[begin : begin + size]).decode()


def settings(**audio: Any) -> Any:
    return {"type": "transcription", "audio": {"input": audio}}


def checked(events: list[Any]) -> dict[str, str]:
    """Check a stream's events against OpenAI's own types and its rules. Returns the transcript of each item."""
    kinds = TypeAdapter(RealtimeServerEvent)
    deltas: dict[str, list[str]] = {}
    done: dict[str, str] = {}
    committed: list[str] = []
    assert len({each.event_id for each in events}) == len(events)
    for each in events:
        plain = json.loads(each.model_dump_json(exclude_unset=True, warnings=False))
        assert type(kinds.validate_python(plain)).model_fields["type"].annotation.__args__ == (each.type,)
        if each.type == f"{OF_ITEM}.delta":
            assert each.item_id not in done
            deltas.setdefault(each.item_id, []).append(each.delta)
        elif each.type == f"{OF_ITEM}.completed":
            assert each.item_id in committed
            assert each.transcript == "".join(deltas.get(each.item_id, []))
            assert each.usage.type == "duration"
            done[each.item_id] = each.transcript
        elif each.type == "input_audio_buffer.committed":
            assert each.previous_item_id == (committed[-1] if committed else None)
            committed.append(each.item_id)
    return done


def test_the_synchronous_client_gets_text_while_it_speaks(
    openai_client: openai.OpenAI, server: ServeProcess, speech: np.ndarray
) -> None:
    events: list[Any] = []
    with openai_client.realtime.connect(extra_query=TRANSCRIPTION) as connection:
        connection.session.update(
            session={**settings(transcription={"model": "tiny.en", "language": "en"}), "include": [LOGPROBS]}
        )

        def speak() -> None:
            for packet in packets(speech):
                connection.input_audio_buffer.append(audio=packet)

        speaker = threading.Thread(target=speak)
        speaker.start()
        for event in connection:
            events.append(event)
            assert event.type != "error", event
            if event.type == f"{OF_ITEM}.completed":
                break
        speaker.join()
    (text,) = checked(events).values()
    assert word_error_rate([(TEXT, text)]) < 0.2
    kinds = list(dict.fromkeys(each.type for each in events))
    assert kinds == [
        *("session.created", "session.updated", "input_audio_buffer.speech_started", f"{OF_ITEM}.delta"),
        *("input_audio_buffer.speech_stopped", "input_audio_buffer.committed"),
        *("conversation.item.added", "conversation.item.done", f"{OF_ITEM}.completed"),
    ]
    by_kind = {each.type: each for each in events}
    started, stopped = (by_kind[f"input_audio_buffer.speech_{each}"] for each in ("started", "stopped"))
    assert 0 <= started.audio_start_ms < 1000 < stopped.audio_end_ms <= len(speech) / RATE * 1000
    assert len({each.item_id for each in events if hasattr(each, "item_id")}) == 1
    completed = by_kind[f"{OF_ITEM}.completed"]
    assert "".join(each.token for each in completed.logprobs).strip() == text
    assert all(each.logprob <= 0 and bytes(each.bytes).decode() == each.token for each in completed.logprobs)
    server.wait_until_idle()


def test_the_asynchronous_client_commits_its_own_turns_and_clears(server: ServeProcess, speech: np.ndarray) -> None:
    """Without turn detection, each commit is an item, and cleared audio is in none of them."""
    half = len(speech) // 2

    async def whole() -> list[Any]:
        events: list[Any] = []
        async with (
            asyncio.timeout(PATIENCE),
            openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
            client.realtime.connect(extra_query=TRANSCRIPTION) as connection,
        ):
            await connection.session.update(
                session=settings(turn_detection=None, noise_reduction={"type": "far_field"})
            )
            for packet in packets(speech):
                await connection.input_audio_buffer.append(audio=packet)
            await connection.input_audio_buffer.clear()
            for part in (speech[:half], speech[half:]):
                for packet in packets(part):
                    await connection.input_audio_buffer.append(audio=packet)
                await connection.input_audio_buffer.commit()
            num = 0
            async for event in connection:
                events.append(event)
                num += event.type == f"{OF_ITEM}.completed"
                if num == 2:
                    return events
        raise AssertionError(events)

    events = asyncio.run(whole())
    kinds = [each.type for each in events]
    cleared = kinds.index("input_audio_buffer.cleared")
    assert not any("speech" in kind for kind in kinds)
    order = [each.item_id for each in events if each.type == "input_audio_buffer.committed"]
    assert len(set(order)) == 2
    done = checked(events[cleared:])
    assert word_error_rate([(TEXT, " ".join(done[each] for each in order))]) < 0.3  # one word is cut
    server.wait_until_idle()


def test_each_utterance_is_an_item_with_times_in_the_whole_audio(
    openai_client: openai.OpenAI, speech: np.ndarray
) -> None:
    """The second update ends a live job, so the times of the second utterance need the offset of the first."""
    words, tentative = (f"item.input_audio_transcription.{each}" for each in ("words", "tentative"))
    events: list[Any] = []
    with openai_client.realtime.connect(extra_query=TRANSCRIPTION) as connection:
        for language in ("en", None):
            connection.session.update(
                session={**settings(transcription={"language": language}), "include": [words, tentative]}
            )
            for packet in packets(speech):
                connection.input_audio_buffer.append(audio=packet)
            for event in connection:
                assert event.type != "error", event
                events.append(event)
                if event.type == f"{OF_ITEM}.completed":
                    break
    assert any(each.type == f"{OF_ITEM}.tentative" and each.text for each in events)
    checked(
        [each for each in events if each.type.startswith(("conversation", "input")) and "tentative" not in each.type]
    )
    first, second = (each for each in events if each.type == f"{OF_ITEM}.completed")
    assert word_error_rate([(TEXT, first.transcript), (TEXT, second.transcript)]) < 0.2
    heard = [[each["word"] for each in found.words] for found in (first, second)]
    assert ["".join(each).strip() for each in heard] == [first.transcript, second.transcript]
    begins = [each.audio_start_ms / 1000 for each in events if each.type == "input_audio_buffer.speech_started"]
    seconds = len(speech) / RATE
    assert begins[0] < 1 < seconds <= begins[1] < seconds + 1
    for begin, found in zip(begins, (first, second), strict=True):
        times = [each[end] for each in found.words for end in ("start", "end")]
        assert times == sorted(times)
        assert begin <= times[0] < times[-1] < begin + seconds


@pytest.mark.parametrize("encoding", ["audio/pcmu", "audio/pcma", "audio/pcm 16000"])
def test_telephones_and_other_rates(
    encoding: str, openai_client: openai.OpenAI, server: ServeProcess, speech: np.ndarray
) -> None:
    import av

    kind, _, rate = encoding.partition(" ")
    samples = soxr.resample(speech, RATE, int(rate or 8000))
    data = (samples * 32767).astype("<i2").tobytes()
    if not rate:
        encoder = av.CodecContext.create({"audio/pcmu": "pcm_mulaw", "audio/pcma": "pcm_alaw"}[kind], "w")
        encoder.sample_rate, encoder.layout, encoder.format = 8000, "mono", "s16"
        frame = av.AudioFrame.from_ndarray(np.frombuffer(data, "<i2")[None], "s16", "mono")
        frame.sample_rate = 8000
        data = b"".join(bytes(packet) for packet in (*encoder.encode(frame), *encoder.encode(None)))
    form = {"type": kind, "rate": int(rate)} if rate else {"type": kind}
    with openai_client.realtime.connect(extra_query=TRANSCRIPTION) as connection:
        connection.session.update(session=settings(format=form, turn_detection=None))
        size = len(data) // 2 + 1  # within a sample
        for part in (data[:size], data[size:]):
            connection.input_audio_buffer.append(audio=base64.b64encode(part).decode())
        connection.input_audio_buffer.commit()
        (text,) = (
            each.transcript for each in connection if each.type == f"{OF_ITEM}.completed" and not connection.close()
        )
    assert word_error_rate([(TEXT, text)]) < 0.3


NODE_PACKAGES = os.environ.get("TRANSEPT_NODE_PACKAGES")  # a folder with node_modules that has openai and ws
WHY_NOT = "set TRANSEPT_NODE_PACKAGES to a folder in which `npm install openai ws` ran; also needs node and openssl"
HAS_NODE = bool(NODE_PACKAGES and shutil.which("node") and shutil.which("openssl"))


@pytest.mark.skipif(not HAS_NODE, reason=WHY_NOT)
def test_the_javascript_clients(server: ServeProcess, speech: np.ndarray, tmp_path: Path) -> None:
    """The client for Node and the client for browsers. Both speak TLS only, so a proxy is between, as in production."""
    certificate = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -keyout key.pem"
    command = ["openssl", *certificate.split(), "-out", "cert.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "speech.json").write_text(json.dumps(list(packets(speech))))
    (tmp_path / "node_modules").symlink_to(Path(NODE_PACKAGES) / "node_modules")
    shutil.copy(Path(__file__).parent / "realtime_client.mjs", tmp_path)
    ran = subprocess.run(
        ["node", "realtime_client.mjs", server.url.rpartition(":")[2]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "NODE_TLS_REJECT_UNAUTHORIZED": "0"},
    )
    assert ran.returncode == 0, ran.stderr
    texts = json.loads(ran.stdout)
    assert set(texts) == {"ws", "websocket"}
    for text in texts.values():
        assert word_error_rate([(TEXT, text)]) < 0.2
    server.wait_until_idle()


def test_a_client_that_vanishes_leaves_nothing(server: ServeProcess, speech: np.ndarray) -> None:
    url = server.url.replace("http", "ws") + "/v1/realtime?intent=transcription"

    async def vanish() -> None:
        connection = await connect(url)
        for packet in packets(speech):
            await connection.send(json.dumps({"type": "input_audio_buffer.append", "audio": packet}))
        connection.transport.abort()

    for _ in range(3):
        asyncio.run(vanish())
    wait_until(lambda: server.metrics()[("transept_live_streams",)] == 0)
    server.wait_until_idle()
