"""OffloadPool: a few threads for what jobs do beside the engine. Used by `transept.core.job_runner`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeAlias

Work: TypeAlias = tuple[Future[Any], Callable[[], Any]] | None  # None ends a thread


class OffloadPool:
    """Calls functions in threads, which start as they are needed and end with the pool.

    They are daemons, unlike those of ThreadPoolExecutor: a function that waits for ever, such as for a pipe that nobody
    writes to, keeps no process from ending.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._queue: SimpleQueue[Work] = SimpleQueue()
        self._num_started = 0
        weakref.finalize(self, _end, self._queue, num_threads)

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Call a function as soon as a thread is free. Called by one thread at a time."""
        future = Future[Any]()
        self._queue.put((future, function))
        if self._num_started < self.num_threads:
            self._num_started += 1
            name = f"transept-offload-{self._num_started}"
            threading.Thread(target=_work, args=(self._queue,), name=name, daemon=True).start()
        return future


def _work(queue: SimpleQueue[Work]) -> None:
    while (work := queue.get()) is not None:
        future, function = work
        del work
        if future.set_running_or_notify_cancel():
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
        del future, function  # what they hold is not kept while the thread waits


def _end(queue: SimpleQueue[Work], num_threads: int) -> None:
    for _ in range(num_threads):
        queue.put(None)
