"""AsyncEngine over real weights: results, order, bounds, cancellation, draining, failure."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from transept import Engine, SamplingParams, Transcriber, TranscriptionInfo
from transept.core.jobs.job import Offload
from transept.errors import CapacityError, EngineClosedError, MediaError, ParameterError, QueueFullError, TranseptError
from transept.serving.async_engine import AsyncEngine, Queued
from transept.serving.async_tasks import AsyncTranscriber, last
from transept.serving.models import _warm_up


@pytest.fixture(scope="module")
def transcriber(tiny_en_dir: Path) -> Transcriber:
    return Transcriber(tiny_en_dir)


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


@pytest.fixture(scope="module")
def expected(transcriber: Transcriber, clips: list[Path]) -> list[str]:
    return [transcriber.transcribe(clip).text for clip in clips]


def run(transcriber: Transcriber, work: Callable[[AsyncTranscriber], Coroutine[Any, Any, Any]], **bounds: int) -> Any:
    """Do some work with an AsyncTranscriber, after which its thread ends; the engine stays loaded."""

    async def whole() -> Any:
        speech = AsyncTranscriber(transcriber, **bounds)
        try:
            async with asyncio.timeout(300):
                return await work(speech)
        finally:
            await asyncio.to_thread(speech.engine.stop)
            assert_nothing_is_held(transcriber.engine)

    return asyncio.run(whole())


def assert_nothing_is_held(engine: Engine) -> None:
    assert not engine.core.has_unfinished
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


def test_many_at_once_get_what_each_gets_alone(
    transcriber: Transcriber, clips: list[Path], expected: list[str]
) -> None:
    async def work(speech: AsyncTranscriber) -> list[str]:
        return [each.text for each in await asyncio.gather(*map(speech.transcribe, clips))]

    assert run(transcriber, work) == expected


def test_a_stream_has_the_segments_of_the_transcript(transcriber: Transcriber, clips: list[Path]) -> None:
    async def work(speech: AsyncTranscriber) -> list[Any]:
        return [segment async for segment in speech.stream(clips[0])]

    assert run(transcriber, work) == list(transcriber.stream(clips[0]))


def test_a_stream_tells_what_is_known_before_its_segments(transcriber: Transcriber, clips: list[Path]) -> None:
    async def work(speech: AsyncTranscriber) -> TranscriptionInfo:
        async with contextlib.aclosing(speech.stream(clips[0])) as stream:
            info = await stream.info()
            assert await anext(stream)
        assert [segment async for segment in stream] == []
        assert await stream.info() == info
        closed = speech.stream(clips[0])
        await closed.aclose()
        with pytest.raises(TranseptError, match="closed before its info was known"):
            await closed.info()
        with pytest.raises(MediaError):
            await speech.stream(b"no audio").info()
        return info

    assert run(transcriber, work) == transcriber.stream(clips[0]).info


def test_requests_wait_in_order_and_are_told_their_place(transcriber: Transcriber, clips: list[Path]) -> None:
    async def work(speech: AsyncTranscriber) -> tuple[list[int], dict[int, list[int]]]:
        order: list[int] = []
        places: dict[int, list[int]] = {}

        async def one(index: int) -> None:
            async for event in speech.engine.run(speech.job(clips[index % 2])):
                if isinstance(event, Queued):
                    places.setdefault(index, []).append(event.position)
            order.append(index)

        await asyncio.gather(*map(one, range(4)))
        return order, places

    order, places = run(transcriber, work, max_running=1)
    assert order == [0, 1, 2, 3]
    assert places == {1: [1], 2: [2, 1], 3: [3, 2, 1]}


def test_a_full_queue_refuses_before_anything_is_read(transcriber: Transcriber, clips: list[Path]) -> None:
    async def work(speech: AsyncTranscriber) -> None:
        tickets = [speech.engine.admit() for _ in range(3)]
        with pytest.raises(QueueFullError, match="try again in"):
            speech.engine.admit()
        tickets[0].leave()
        tickets[0].leave()  # does nothing
        speech.engine.admit().leave()
        assert speech.engine.num_waiting == 2
        async with tickets[1] as ticket:
            assert (await last(ticket.run(speech.job(clips[0])))).text
            with pytest.raises(ParameterError, match="one job"):
                await anext(ticket.run(speech.job(clips[0])))
        tickets[2].leave()
        assert speech.engine.num_waiting == speech.engine.num_running == 0

    run(transcriber, work, max_running=1, max_queue=2)


def test_leaving_aborts_the_work_and_lets_the_next_one_begin(
    transcriber: Transcriber, clips: list[Path], expected: list[str]
) -> None:
    async def work(speech: AsyncTranscriber) -> str:
        first = asyncio.create_task(speech.transcribe(clips[0], beam_size=5))
        second = asyncio.create_task(speech.transcribe(clips[1]))
        third = asyncio.create_task(speech.transcribe(clips[2]))
        while not transcriber.engine.core.has_unfinished:
            await asyncio.sleep(0)
        second.cancel()  # which waits
        first.cancel()  # which runs
        return (await third).text

    assert run(transcriber, work, max_running=1) == expected[2]


def test_one_bad_recording_fails_alone(transcriber: Transcriber, clips: list[Path], expected: list[str]) -> None:
    async def work(speech: AsyncTranscriber) -> list[Any]:
        audios = [clips[0], b"no audio", clips[1]]
        return await asyncio.gather(*map(speech.transcribe, audios), return_exceptions=True)

    first, error, third = run(transcriber, work)
    assert (first.text, third.text) == (expected[0], expected[1])
    assert isinstance(error, MediaError)


def test_a_bad_option_is_refused_at_once(transcriber: Transcriber, clips: list[Path]) -> None:
    async def work(speech: AsyncTranscriber) -> None:
        with pytest.raises(ParameterError, match="beam_size"):
            speech.job(clips[0], beam_size=0)

    run(transcriber, work)


def test_a_real_step_says_that_it_is_healthy_also_while_others_run(transcriber: Transcriber, clips: list[Path]) -> None:
    async def work(speech: AsyncTranscriber) -> None:
        steps = transcriber.engine.core.statistics.num_steps
        await speech.engine.warm_up()
        assert transcriber.engine.core.statistics.num_steps > steps
        busy = asyncio.gather(*(speech.transcribe(clips[0]) for _ in range(3)))
        await speech.engine.check_health(timeout=PATIENCE)
        await busy

    run(transcriber, work)


def test_a_transcriber_in_another_thread_shares_the_engine(
    transcriber: Transcriber, clips: list[Path], expected: list[str]
) -> None:
    async def work(speech: AsyncTranscriber) -> list[str]:
        beside = asyncio.to_thread(lambda: [transcriber.transcribe(clip).text for clip in clips[:2]])
        ours = asyncio.gather(*map(speech.transcribe, clips[2:]))
        return [*await beside, *(each.text for each in await ours)]

    assert run(transcriber, work) == expected


def test_draining_ends_what_was_admitted_and_takes_nothing_new(
    transcriber: Transcriber, clips: list[Path], expected: list[str]
) -> None:
    async def work(speech: AsyncTranscriber) -> str:
        running = asyncio.create_task(speech.transcribe(clips[0]))
        while not speech.engine.num_running:
            await asyncio.sleep(0)
        drained = asyncio.create_task(speech.engine.drain(timeout=200))
        await asyncio.sleep(0)
        with pytest.raises(EngineClosedError, match="accepts no new requests"):
            speech.engine.admit()
        assert await drained
        return (await running).text

    assert run(transcriber, work) == expected[0]


def test_draining_gives_up_after_its_time(transcriber: Transcriber) -> None:
    release = threading.Event()

    def stuck() -> Any:
        yield Offload(release.wait)

    async def work(speech: AsyncTranscriber) -> None:
        task = asyncio.create_task(last(speech.engine.run(stuck())))
        while not speech.engine.num_running:
            await asyncio.sleep(0)
        assert not await speech.engine.drain(timeout=0.01)
        task.cancel()
        release.set()

    run(transcriber, work)


def test_closing_ends_everybody_with_an_error(tiny_en_dir: Path, clips: list[Path]) -> None:
    async def whole() -> None:
        speech = await AsyncTranscriber.load(tiny_en_dir, max_running=1)
        tasks = [asyncio.create_task(speech.transcribe(clip)) for clip in clips[:2]]
        while not speech.transcriber.engine.core.has_unfinished:
            await asyncio.sleep(0)
        await speech.close()
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, EngineClosedError)
        for call in (speech.engine.admit, speech.engine.admit):
            with pytest.raises(EngineClosedError, match="closed"):
                call()
        assert not speech.engine.is_alive

    asyncio.run(whole())


def test_an_error_in_the_engines_own_code_ends_everybody_and_says_so(tiny_en_dir: Path, clips: list[Path]) -> None:
    async def whole() -> None:
        speech = await AsyncTranscriber.load(tiny_en_dir)
        core = speech.transcriber.engine.core
        task = asyncio.create_task(speech.transcribe(clips[0]))
        while not core.has_unfinished:
            await asyncio.sleep(0)
        core.scheduler.schedule = None  # a fault
        with pytest.raises(EngineClosedError, match="internal error"):
            await task
        assert not speech.engine.is_alive
        with pytest.raises(EngineClosedError, match="internal error"):
            await speech.transcribe(clips[0])
        for _ in range(2):
            await speech.engine.close()
        with pytest.raises(EngineClosedError):
            speech.transcriber.engine.executor.check_open()

    asyncio.run(whole())


def test_a_model_that_cannot_be_warm_up_is_closed(tiny_en_dir: Path) -> None:
    async def whole() -> None:
        speech = await AsyncTranscriber.load(tiny_en_dir, kv_cache_bytes=1_000_000)
        with pytest.raises(CapacityError, match="the cache has"):
            await _warm_up(speech)
        assert not speech.engine.is_alive
        with pytest.raises(EngineClosedError):
            speech.transcriber.engine.executor.check_open()

    asyncio.run(whole())


def test_an_engine_belongs_to_one_event_loop(transcriber: Transcriber) -> None:
    speech = AsyncTranscriber(transcriber)

    async def admit() -> None:
        speech.engine.admit().leave()

    asyncio.run(admit())
    with pytest.raises(ParameterError, match="event loop"):
        asyncio.run(admit())
    speech.engine.stop()


@pytest.mark.parametrize("bounds", [{"max_running": 0}, {"max_queue": -1}, {"max_running": True}])
def test_bounds_are_checked(transcriber: Transcriber, bounds: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match=next(iter(bounds))):
        AsyncEngine(transcriber.engine, **bounds)


def test_prompts_stream_their_outputs(transcriber: Transcriber, clips: list[Path]) -> None:
    prompt = {"multi_modal_data": {"audio": clips[0]}}
    params = SamplingParams(temperature=0.0, max_tokens=12)
    (alone,) = transcriber.engine.generate(prompt, params)

    async def work(speech: AsyncTranscriber) -> list[Any]:
        return [output async for output in speech.engine.generate(prompt, params, stream=True)]

    outputs = run(transcriber, work)
    assert [len(output.outputs[0].token_ids) for output in outputs] == list(range(1, 13))
    assert outputs[-1].outputs == alone.outputs
    assert outputs[-1].finished
