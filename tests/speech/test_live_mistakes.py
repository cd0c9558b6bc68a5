"""Misused live streams: chunks that are not audio, two readers, and streams that have failed."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from transept import MediaError, ParameterError, Transcriber, TranseptError
from transept.speech.live.feed import Feed

RATE = 16_000
SECOND = np.zeros(RATE, np.float32)


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


async def asynchronous() -> AsyncIterator[np.ndarray]:
    yield SECOND


@pytest.mark.parametrize(
    "chunks",
    [SECOND, b"\0\0", "talk.wav", Path("talk.wav"), None, asynchronous()],
    ids=lambda chunks: type(chunks).__name__,
)
def test_what_yields_no_chunks_is_refused_at_once(transcriber: Transcriber, chunks: Any) -> None:
    with pytest.raises(ParameterError, match="chunks must yield audio") as refused:
        transcriber.live(chunks)
    assert refused.value.param == "chunks"


@pytest.mark.parametrize(
    "chunk",
    [np.float32(0.5), np.zeros((2, 3, 4)), 0.5, [100, -100], SECOND + 3e4],
    ids=lambda chunk: type(chunk).__name__,
)
def test_a_chunk_that_is_no_audio_is_refused_as_a_chunk(chunk: Any) -> None:
    feed = Feed(RATE)
    with pytest.raises(MediaError) as refused:
        feed.push(chunk)
    assert "sample_rate" not in str(refused.value)
    assert feed.unread == 0


def test_a_feed_that_is_closed_meanwhile_ends_its_source_without_an_error() -> None:
    feed = Feed(RATE)

    class Closing(np.ndarray):
        def __array_finalize__(self, _: Any) -> None:
            feed.close()  # while the chunk is converted

    feed.push_all([SECOND.view(Closing)])
    assert feed.unread == 0


def test_one_thread_at_a_time_reads_the_events(transcriber: Transcriber) -> None:
    stream = transcriber.live_stream()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(stream))
    reader.start()
    while not stream._reading.locked():
        pass
    with pytest.raises(TranseptError, match="another thread reads"):
        next(stream)
    stream.close()
    reader.join()
    assert found == []


def test_a_stream_that_failed_takes_no_more_audio(transcriber: Transcriber, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = transcriber.live_stream(48_000)
    stream.push(SECOND)
    monkeypatch.setattr("soxr.ResampleStream", None)
    with pytest.raises(TypeError):
        next(stream)
    with pytest.raises(TranseptError, match="live stream is closed"):
        stream.push(SECOND)
