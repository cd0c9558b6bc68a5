"""KeyboardInterrupts at chosen places, as a signal could strike them."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

CORE = "/transept/core/"


@contextmanager
def interrupted_after(num_lines: int, names: Sequence[str]) -> Iterator[list[str]]:
    """Raise KeyboardInterrupt before the so-manieth line of some files of the core, in this thread. Yields where."""
    files = tuple(f"/{name}.py" for name in names)
    left, struck = num_lines, []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(files) or CORE not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                struck.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}:{frame.f_lineno}")
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        yield struck
    finally:
        sys.settrace(None)
