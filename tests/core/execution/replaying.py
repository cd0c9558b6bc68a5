"""An engine whose steps are replayed, on a GPU or, by Triton's interpreter, from the same buffers without one."""

from pathlib import Path

import torch

from transept import Engine

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HERE = {"device": DEVICE, "dtype": "float32", "kv_cache_bytes": 1 << 26}  # of a GPU each takes a part only


def replaying(directory: Path, **options: object) -> Engine:
    engine = Engine(directory, attention_backend="triton", **{"block_size": 16, **HERE, **options})
    engine.executor.worker.runner.record_steps()
    return engine
