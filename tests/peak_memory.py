"""The most memory that a process holds while something runs.

``ru_maxrss`` says something else. It never falls, so it hides growth below an earlier peak, and a process starts with
its parent's.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def forget_peak() -> int:
    """Reset the process's peak of memory to its present size, where the system can. Returns the peak, in KiB."""
    with suppress(OSError):  # on another system the peak so far counts, and growth beyond it
        CLEAR_REFS.write_text("5")  # proc(5)
    return peak()


def peak() -> int:
    """The most memory that the process has held since `forget_peak`, in KiB."""
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@contextmanager
def grows_by_less_than(mebibytes: int) -> Iterator[None]:
    """Fail where the process holds that much more at some moment of the block."""
    before = forget_peak()
    yield
    assert peak() - before < mebibytes << 10


def run_python(program: str, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a separate process, which can import the modules of this folder.

    options: of `subprocess.run`.
    """
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="backslashreplace",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        check=False,
        **options,
    )
