"""Engines in another Python environment, for `benchmarks.turns`: python -m benchmarks.elsewhere DESCRIPTOR

Run by that environment's interpreter, it is told through a socket which function of this folder to call, and with what.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Elsewhere:
    """An engine of another environment.

    python: the interpreter. load: loads the engine; travels as in `benchmarks.turns`, and its module has to import here
    as well as there.
    """

    python: Path
    load: Callable[[], Callable[[list[Any]], list[Any]]]


def start_elsewhere(engine: Elsewhere, pipe: Connection) -> subprocess.Popen[bytes]:
    """A process that calls the function that arrives through the pipe, with the arguments beside it and the pipe."""
    return subprocess.Popen(
        [engine.python, "-m", "benchmarks.elsewhere", str(pipe.fileno())],
        pass_fds=[pipe.fileno()],
        cwd=Path(__file__).parent.parent,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )


if __name__ == "__main__":
    socket = Connection(int(sys.argv[1]))
    function, arguments = socket.recv()
    function(*arguments, socket)
