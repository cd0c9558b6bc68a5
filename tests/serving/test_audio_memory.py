"""The budget of decoded audio: shares wait in order, never hold more than all of it, and give it back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from test_released_memory import RATE, form, silence, status_of, undeclared

from transept.errors import QueueFullError
from transept.serving.audio_memory import AudioMemory, AudioShare
from transept.serving.http.app import build_app
from transept.serving.settings import ModelSource, ServerSettings


def started(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def wait_for(memory: AudioMemory, num_waiting: int) -> None:
    """Return once so many shares wait."""
    while True:
        with memory.changed:
            if len(memory.waiting) == num_waiting:
                return


def test_shares_wait_in_order_until_they_fit() -> None:
    memory = AudioMemory(100)
    first, second, third = memory.share(), memory.share(), memory.share()
    first.expect(60)
    large = started(lambda: second.expect(50))
    wait_for(memory, 1)
    small = started(lambda: third.expect(10))  # it would fit, but is not its turn
    wait_for(memory, 2)
    assert (memory.held, list(memory.waiting)) == (60, [second, third])
    first.release()
    large.join()
    small.join()
    assert (memory.held, second.held, third.held) == (60, 50, 10)


def test_a_share_gives_back_what_did_not_come() -> None:
    memory = AudioMemory(100)
    share, other = memory.share(), memory.share()
    share.expect(90)
    share.hold(20)
    waits = started(lambda: other.expect(80))
    wait_for(memory, 1)
    share.settle()
    waits.join()
    assert memory.held == 100


def test_what_was_not_declared_is_refused_where_it_does_not_fit() -> None:
    memory = AudioMemory(100)
    share, other = memory.share(), memory.share()
    other.expect(40)
    for num_bytes in range(10, 70, 10):
        share.hold(num_bytes)
    with pytest.raises(QueueFullError, match="try again later"):
        share.hold(61)
    assert memory.held == 100
    other.release()
    share.hold(1000)  # alone
    assert memory.held == 1000


def test_a_recording_larger_than_all_of_it_runs_alone() -> None:
    memory = AudioMemory(100)
    small, large = memory.share(), memory.share()
    small.expect(1)
    waits = started(lambda: large.expect(500))
    wait_for(memory, 1)
    small.release()
    waits.join()
    assert memory.held == 500


def test_a_share_that_is_released_ends_its_thread() -> None:
    memory = AudioMemory(100)
    first, second = memory.share(), memory.share()
    first.expect(100)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            second.expect(1)
        except QueueFullError as error:
            errors.append(error)

    waits = started(wait)
    wait_for(memory, 1)
    second.release()
    waits.join()
    assert len(errors) == 1
    assert (memory.held, len(memory.waiting)) == (100, 0)
    with pytest.raises(QueueFullError):
        second.hold(1)


class Watched(AudioMemory):
    """Keeps the most that was held."""

    highest = 0

    def fits(self, share: AudioShare, num_bytes: int) -> bool:
        self.highest = max(self.highest, self.held)
        return super().fits(share, num_bytes)


def test_requests_hold_no_more_than_the_budget_together(tiny_en_dir: Path) -> None:
    seconds, num_requests = 20, 6
    most = round(2.5 * seconds * RATE * 4)  # two of them, and not three
    settings = ServerSettings((ModelSource("tiny.en", str(tiny_en_dir)),), max_audio_seconds=3 * seconds)

    async def whole() -> None:
        app = build_app(settings)
        memory = app.state.models.audio_memory = Watched(most)
        app.state.models.start_loading()
        await app.state.models.wait_until_loaded()
        body = form(silence(seconds))
        async with asyncio.timeout(300):
            statuses = await asyncio.gather(*(status_of(app, body) for _ in range(num_requests)))
            assert set(statuses) == {200}
            assert 0 < memory.highest <= most
            assert await status_of(app, form(undeclared(3 * seconds - 1))) == 200  # more than all of it, alone
            assert await status_of(app, form(silence(4 * seconds))) == 413
            other = memory.share()
            other.expect(most)
            assert await status_of(app, form(undeclared(seconds))) == 429
            other.release()
        assert memory.held == 0
        await app.state.models.drain(10.0)

    asyncio.run(whole())
