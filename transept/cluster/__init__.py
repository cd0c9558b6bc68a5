"""Many machines, by Ray: Transept in Ray Data's pipelines, over folders of recordings, and behind Ray Serve.

Needs the extra ``ray``: ``pip install "transept[ray]"``. Every public name is loaded on first use, and Ray with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transept.cluster.data import Read, Summarize, Transcribe, Translate
    from transept.cluster.rank_actors import RankActors
    from transept.cluster.serve_app import build_app

_LAZY_IMPORTS = {
    "RankActors": "transept.cluster.rank_actors",
    "Read": "transept.cluster.data",
    "Summarize": "transept.cluster.data",
    "Transcribe": "transept.cluster.data",
    "Translate": "transept.cluster.data",
    "build_app": "transept.cluster.serve_app",
}

__all__ = ["RankActors", "Read", "Summarize", "Transcribe", "Translate", "build_app"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'transept.cluster' has no attribute {name!r}")
    from transept.cluster.runtime import require_ray

    require_ray()
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
