"""Where the peers' environment is, and where files for them lie."""

from __future__ import annotations

import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"  # made by `make peers`
CACHE = Path(tempfile.gettempdir()) / "transept-benchmarks"  # model -> its weights in everyone's format


def interpreter() -> Path:
    """The peers' Python."""
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON} does not exist; run `make peers`")
    return PYTHON
