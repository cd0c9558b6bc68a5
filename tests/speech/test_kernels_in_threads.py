"""Jobs on a pool beside the engine: features, voice activity and alignment, while its kernels run on all threads."""

import subprocess
import sys
from pathlib import Path

from patience import PATIENCE

CHECKPOINT = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
PROGRAM = """
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np, torch
from transept import Engine, SamplingParams
from transept.multimodal.log_mel import recording_log_mel
from transept.speech.timing.words import median_filter, warping_path
from transept.core.kernels.cpu.speech.recurrence import recur

rng = np.random.default_rng(0)
engine = Engine({checkpoint!r}, device="cpu")
words = ["grapheme", "ox", "transept", "a", "engine", "nave"]
costs = rng.standard_normal((60, 800))
weights = rng.random((6, 60, 800)).astype(np.float32)
inputs, recurrent = (rng.standard_normal((rows, 512)).astype(np.float32) for rows in (300, 128))
waveform = rng.standard_normal(80_000).astype(np.float32)
JOBS = [
    lambda: warping_path(costs)[0],
    lambda: median_filter(weights),
    lambda: recur(inputs, recurrent, np.zeros(128, np.float32), np.zeros(128, np.float32)),
    lambda: recording_log_mel(waveform, 80).numpy(),
]

def decode():
    outputs = engine.generate(words, SamplingParams(temperature=0.0, max_tokens=20), progress=False)
    return [output.outputs[0].token_ids for output in outputs]

expected, alone = [job() for job in JOBS], decode()
done, begun = threading.Event(), threading.Barrier(len(JOBS) + 1)

def repeat(index):
    begun.wait()
    while not done.is_set():
        assert np.array_equal(JOBS[index](), expected[index])

with ThreadPoolExecutor(len(JOBS)) as pool:
    running = [pool.submit(repeat, index) for index in range(len(JOBS))]
    begun.wait()
    try:
        for _ in range(20):
            assert decode() == alone
    finally:
        done.set()
    for each in running:
        each.result()
"""


def test_jobs_on_a_pool_do_not_disturb_the_engine() -> None:
    program = PROGRAM.format(checkpoint=str(CHECKPOINT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
