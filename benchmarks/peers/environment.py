"""Where the peers' environment is."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
PYTHON = REPOSITORY / ".venv-peers" / "bin" / "python"  # made by `make peers`


def interpreter() -> Path:
    """The peers' Python."""
    if not PYTHON.exists():
        raise SystemExit(f"{PYTHON} does not exist; run `make peers`")
    return PYTHON
