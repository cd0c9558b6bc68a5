"""``transept`` and ``python -m transept``: the command line as a process."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from transept.cli import INTERRUPTED, main


def run() -> NoReturn:
    """Run one command and end the process with its exit code.

    After an interruption it ends at once where threads may still read or compute beside an engine: nothing waits for
    them.
    """
    code = main()
    offload = sys.modules.get("transept.core.offload")
    if code == INTERRUPTED and offload is not None and offload.has_threads():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
