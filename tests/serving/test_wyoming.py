"""``transept serve --wyoming`` as the protocol's own client uses it."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from patience import PATIENCE, wait_until
from serve_process import ServeProcess

from transept.speech.word_errors import word_error_rate

pytest.importorskip("wyoming", reason="the extra wyoming is not installed")
from wyoming.asr import Transcribe, Transcript, TranscriptChunk
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe, Info
from wyoming.ping import Ping

TEXT = "Mr. John Dashwood had then leisure to consider how much there might be prudently in his power to do for them."

TRANSCRIBE_OTHER = b"""{"type": "transcribe", "data": {"name": "other"}}
{"type": "audio-start", "data": {"rate": 16000, "width": 2, "channels": 1}}
"""


@pytest.fixture(scope="module")
def served(tiny_en_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    process = ServeProcess(tmp_path_factory.mktemp("wyoming"), f"tiny.en={tiny_en_dir}", "--wyoming", "0")
    yield process.wait_until_ready()
    process.stop()


@pytest.fixture(scope="module")
def port(served: ServeProcess) -> int:
    found = re.search(r"tcp://127.0.0.1:(\d+)", served.log.read_text())
    assert found is not None
    return int(found[1])


async def spoken(port: int, samples: np.ndarray, rate: int) -> tuple[str, list[str]]:
    """The transcript of stereo samples, and its chunks."""
    chunks: list[str] = []
    async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", port) as client:
        await client.write_event(Transcribe(language="en", transcript_names=["Dashwood"]).event())
        await client.write_event(AudioStart(rate, 2, 2).event())
        for begin in range(0, len(samples), rate // 5):
            pcm = (samples[begin : begin + rate // 5] * 32767).astype("<i2")
            stereo = np.repeat(pcm[:, None], 2, axis=1).tobytes()
            await client.write_event(AudioChunk(rate, 2, 2, stereo).event())
        await client.write_event(AudioStop().event())
        while (event := await client.read_event()) is not None:
            if TranscriptChunk.is_type(event.type):
                chunks.append(TranscriptChunk.from_event(event).text)
            elif Transcript.is_type(event.type):
                return Transcript.from_event(event).text, chunks
            else:
                assert event.type == "transcript-start", event
    raise AssertionError("no transcript")


def test_speech_becomes_chunks_and_a_transcript(served: ServeProcess, port: int, clip: Path) -> None:
    samples, rate = soundfile.read(clip, dtype="float32")
    text, chunks = asyncio.run(spoken(port, samples, rate))
    assert word_error_rate([(TEXT, text)]) < 0.3
    assert "".join(chunks) == text
    served.wait_until_idle()


def test_a_client_that_vanishes_leaves_the_count_of_its_passes(served: ServeProcess, port: int, clip: Path) -> None:
    samples, rate = soundfile.read(clip, dtype="float32")
    passes = ("transept_live_passes_total", "tiny.en")

    async def until_first_text() -> None:
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(AudioChunk(rate, 2, 1, (samples * 32767).astype("<i2").tobytes()).event())
            while (event := await client.read_event()) is not None and not TranscriptChunk.is_type(event.type):
                pass
            assert event is not None

    before = served.metrics().get(passes, 0)
    asyncio.run(until_first_text())
    wait_until(lambda: served.metrics().get(passes, 0) > before)


def test_the_server_describes_its_models(port: int) -> None:
    async def asked() -> list[Any]:
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(Describe().event())
            await client.write_event(Ping("hello").event())
            return [await client.read_event() for _ in range(2)]

    described, pong = asyncio.run(asked())
    (program,) = Info.from_event(described).asr
    assert [(model.name, model.languages) for model in program.models] == [("tiny.en", ["en"])]
    assert program.supports_transcript_streaming
    assert (pong.type, pong.data["text"]) == ("pong", "hello")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "invalid_event"),
        (b"[1]\n", "invalid_event"),
        (b"x" * 100_000, "invalid_event"),
        (b'{"type": "audio-chunk", "payload_length": 99999999999}\n', "invalid_event"),
        (b'{"type": "audio-start", "data": {"width": 2, "channels": 1}}\n', "invalid_event"),
        (b'{"type": "audio-start", "data": {"rate": 4, "width": 2, "channels": 1}}\n', "invalid_value"),
        (b'{"type": "audio-stop"}\n', "invalid_media"),
        (TRANSCRIBE_OTHER, "model_not_found"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_wrong_ends_its_own_connection(sent: bytes, code: str, served: ServeProcess, port: int) -> None:
    async def answered() -> bytes:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            received = await reader.read()
            writer.close()
            return received

    head, data = asyncio.run(answered()).split(b"\n", 1)
    assert (json.loads(head)["type"], json.loads(data)["code"]) == ("error", code)
    wait_until(lambda: served.metrics()[("transept_live_streams",)] == 0)


def test_a_client_that_sends_all_audio_first_still_reads_the_error(served: ServeProcess, port: int) -> None:
    async def answered() -> Any:
        async with asyncio.timeout(PATIENCE), AsyncTcpClient("127.0.0.1", port) as client:
            await client.write_event(Transcribe(name="other").event())
            await client.write_event(AudioStart(16_000, 2, 1).event())
            for _ in range(400):
                await client.write_event(AudioChunk(16_000, 2, 1, bytes(32_000)).event())
            await client.write_event(AudioStop().event())
            return await client.read_event()

    assert asyncio.run(answered()).data["code"] == "model_not_found"
    wait_until(lambda: served.metrics()[("transept_live_streams",)] == 0)
