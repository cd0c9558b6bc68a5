"""The package on Windows, as far as Linux can show it."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("without_posix.py")


def test_without_posix_everything_imports_and_one_process_runs_a_model(bart_dir):
    ran = subprocess.run([sys.executable, PROGRAM, bart_dir], capture_output=True, text=True, timeout=600)
    assert not ran.returncode, ran.stderr
    before, after, refusal = ran.stdout.splitlines()
    assert before == after
    assert refusal == (
        "on Windows one process runs a model: leave out tensor_parallel_size=3 and pipeline_parallel_size=1"
    )
