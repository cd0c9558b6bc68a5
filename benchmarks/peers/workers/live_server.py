"""WhisperLive's server around faster-whisper, in int8: the peer of `benchmarks.peers.live`. Runs in its environment.

    python benchmarks/peers/workers/live_server.py MODEL PORT MODE

MODE is ``batch``, in which one thread decodes windows of all clients together, greedily, or ``shared``, in which
clients take turns at one model, with its defaults of five beams and fallback.
"""

from __future__ import annotations

import sys

from whisper_live.server import TranscriptionServer

model, port, mode = sys.argv[1:]
TranscriptionServer().run(
    "127.0.0.1",
    int(port),
    backend="faster_whisper",
    faster_whisper_custom_model_path=model,
    single_model=True,
    max_clients=1000,
    max_connection_time=10_000,
    batch_enabled=mode == "batch",
    batch_max_queue_wait_s=1e9,  # it would refuse clients when it is slow
    batch_max_admissions_per_s=1e9,
)
