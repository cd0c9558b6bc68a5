"""``transept ...`` in the process of the tests: no interpreter starts, and nothing heavy is imported again."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from transept.cli import main

Command = Callable[..., subprocess.CompletedProcess[str]]


def in_process(capture: pytest.CaptureFixture[bytes], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command: its exit code, and all that was written to the process's own output and error streams."""
    capture.readouterr()
    try:
        code = main([*map(str, arguments)])
    except SystemExit as ended:  # bad usage
        code = ended.code
    out, err = capture.readouterr()
    return subprocess.CompletedProcess(arguments, code, out.decode(), err.decode())
