"""``transept`` and ``python -m transept``: the command line as a process."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
from typing import NoReturn

GARBAGE_THRESHOLD = 50_000  # objects between two collections; imports make many objects, but no garbage


def run() -> NoReturn:
    """Run one command and end the process with its exit code.

    With torch loaded, the interpreter's shutdown takes a fifth of the time of torch's import. So the process ends
    without it, unless other threads, a profiler or a tracer need it. After an interruption, the process ends at once if
    an engine's threads still read or compute. An interruption after the command ends the process with its exit code.
    """
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        from transept.cli import INTERRUPTED, main

        code = main()
    except KeyboardInterrupt:  # before the command began
        os._exit(128 + signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    offload = sys.modules.get("transept.core.jobs.offload")
    if code == INTERRUPTED and offload is not None and offload.has_threads():
        _end(code)
    if "torch" in sys.modules and sys.getprofile() is sys.gettrace() is None and not _has_threads_to_wait_for():
        atexit._run_exitfuncs()
        _end(code)
    sys.exit(code)


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _has_threads_to_wait_for() -> bool:
    """Return True if there are non-daemon threads, such as a plugin's, which Python waits for at exit."""
    return any(not thread.daemon and thread is not threading.main_thread() for thread in threading.enumerate())


if __name__ == "__main__":
    run()
